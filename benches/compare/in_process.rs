//! Casework in process, on a fresh database of the same server: what is left when HTTP and the client are taken away.
//!
//! Owns three figures without a peer: a recorded log, notes on one case, and repeats of them, which must touch no database.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use casework::actor::{CommandGateway, GatewayOptions, PendingAnswer, Submission, WorkflowRegistry};
use casework::command_log::{LogInput, LogReader, ReplayOptions, ReplayTarget, replay};
use casework::domain::{
    ActorId, CaseId, Command, CommandDraft, CommandName, Members, OperationId, Workflow, parse_strict,
};
use casework::engine::Answer;
use casework::store::Database;

use super::figures::{Figure, Measure, standing};
use super::options::Options;
use super::support::data::recorded_log;
use super::support::postgres::PostgresDatabase;
use super::support::postgres_server::PrivateServer;

/// For `--only`.
pub const NAME: &str = "in-process";
/// Commands in flight.
const IN_FLIGHT: usize = 256;
/// The figures.
const CONTENDERS: [&str; 3] =
    ["in process: the log `domestic`", "in process: notes on one case", "in process: their repeats, from memory"];

/// Measures all three; the log only where it is.
pub fn measure(server: &PrivateServer, options: &Options, round: usize) -> Vec<Figure> {
    let figure = |contender: &'static str, per_second| Figure {
        contender,
        variant: format!("{IN_FLIGHT} in flight"),
        round,
        per_second,
        p50_ms: None,
        p99_ms: None,
        max_ms: None,
        errors: 0,
        cost: None,
    };
    let notes = if options.smoke { 2_000 } else { 60_000 };
    let hot = hot_case(&server.database(), notes, IN_FLIGHT);
    assert_eq!(hot.statements_during_replays, 0, "a repeat from memory touches no database");
    let mut figures = vec![figure(CONTENDERS[1], hot.notes_per_second), figure(CONTENDERS[2], hot.replays_per_second)];
    if !options.smoke {
        figures.extend(domestic(&server.database(), IN_FLIGHT).map(|per_second| figure(CONTENDERS[0], per_second)));
    }
    figures
}

/// Prints what was measured of them.
pub fn print(figures: &[Figure]) {
    let standings: Vec<_> = CONTENDERS.iter().filter_map(|name| standing(figures, name, Measure::Throughput)).collect();
    if !standings.is_empty() {
        println!("| in process, {IN_FLIGHT} in flight | commands/s |\n|---|---|");
    }
    for standing in standings {
        println!("| {} | {:.0} ({:.0} to {:.0}) |", standing.contender, standing.median, standing.least, standing.most);
    }
}

async fn gateway(database: &PostgresDatabase, workflows: Vec<Arc<Workflow>>) -> CommandGateway {
    let database = Database::open(&database.url().parse().unwrap()).unwrap();
    database.call(|store| async move { store.schema_migrate().await }).await.unwrap();
    let registry = WorkflowRegistry::open(database.clone(), workflows, None).await.unwrap();
    CommandGateway::start(database, registry, GatewayOptions::default()).await.unwrap()
}

/// Commands a second of the log `domestic`, each line of a case in order; `None`: the log is not there.
pub fn domestic(database: &PostgresDatabase, in_flight: usize) -> Option<f64> {
    let log = recorded_log("domestic")?;
    let report = actix::System::new().block_on(async {
        let workflow = Workflow::parse(&std::fs::read_to_string(&log.workflow).unwrap()).unwrap();
        let gateway = gateway(database, vec![Arc::new(workflow)]).await;
        let options = ReplayOptions { concurrency: in_flight, ..ReplayOptions::default() };
        let reader = LogReader::new(LogInput::open(&log.commands).unwrap());
        replay(reader, &ReplayTarget::Gateway(gateway), &options, |_| {}).await.unwrap()
    });
    assert_eq!(report.applied, report.lines, "every line applies");
    Some(report.per_second())
}

/// What became of the hot case.
pub struct HotRun {
    pub notes_per_second: f64,
    pub replays_per_second: f64,
    /// Transactions that the database saw while the repeats ran.
    pub statements_during_replays: u64,
}

fn command(name: &str, body: &str) -> Command {
    let serde_json::Value::Object(mut object) = parse_strict(body.as_bytes()).unwrap() else { panic!("an object") };
    let members = Members::take(&mut object, &mut Vec::new());
    Command::new(CommandDraft {
        case_id: CaseId::parse("62").unwrap(),
        operation_id: OperationId::from_uuid(uuid::Uuid::new_v4()),
        actor: ActorId::parse("47").unwrap(),
        name: CommandName::parse(name).unwrap(),
        members,
    })
    .unwrap()
}

/// Notes on one case, `in_flight` at a time, then repeats of the last thousand of them.
pub fn hot_case(database: &PostgresDatabase, notes: usize, in_flight: usize) -> HotRun {
    actix::System::new().block_on(async {
        let gateway = gateway(database, Vec::new()).await;
        assert!(matches!(submit(&gateway, &command("open", "{}")).await, Answer::Applied(_)));
        let commands: Vec<Command> =
            (0..notes).map(|_| command("note", r#"{"reason":"All documents reviewed."}"#)).collect();
        let notes_per_second = run(&gateway, commands.iter(), in_flight, false).await;
        let repeats = commands[notes - 1_000..].iter().cycle().take(notes);
        let before = transactions(database);
        let replays_per_second = run(&gateway, repeats, in_flight, true).await;
        let statements_during_replays = transactions(database) - before;
        HotRun { notes_per_second, replays_per_second, statements_during_replays }
    })
}

fn submit(gateway: &CommandGateway, command: &Command) -> PendingAnswer {
    gateway.submit(Submission { command: command.clone(), recorded_at: None, lane: None })
}

async fn run(
    gateway: &CommandGateway,
    commands: impl Iterator<Item = &Command>,
    in_flight: usize,
    expect_replay: bool,
) -> f64 {
    let start = Instant::now();
    let mut pending: VecDeque<PendingAnswer> = VecDeque::with_capacity(in_flight);
    let mut answered = 0_u32;
    let check = |answer: Answer| match answer {
        Answer::Applied(_) if !expect_replay => {}
        Answer::Replayed(_) if expect_replay => {}
        other => panic!("{other:?}"),
    };
    for command in commands {
        if pending.len() == in_flight {
            check(pending.pop_front().unwrap().await);
        }
        pending.push_back(submit(gateway, command));
        answered += 1;
    }
    for answer in pending {
        check(answer.await);
    }
    f64::from(answered) / start.elapsed().max(Duration::from_millis(1)).as_secs_f64()
}

/// Row writes and reads that the database's statistics saw, from another connection, once they stand still.
fn transactions(database: &PostgresDatabase) -> u64 {
    let count = || -> u64 {
        let sql = "SELECT seq_scan + coalesce(idx_scan, 0) + n_tup_ins + n_tup_upd FROM pg_stat_user_tables \
                   WHERE relname IN ('operations', 'cases', 'writers')";
        database.sql(sql).iter().map(|row| row[0].parse::<u64>().unwrap()).sum()
    };
    let mut last = count();
    loop {
        std::thread::sleep(Duration::from_millis(1_200));
        let now = count();
        if now == last {
            return now;
        }
        last = now;
    }
}
