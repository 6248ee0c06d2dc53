//! What is kept in memory, and what is refused because a bound is reached.

use std::time::Duration;

use casework::actor::{CommandGateway, GatewayOptions, Submission, WorkflowRegistry};
use casework::domain::{ActorId, CaseId, Command, CommandDraft, CommandName, Members, OperationId};
use casework::engine::{Answer, Trouble};
use casework::store::Database;
use uuid::Uuid;

use super::scrape::{Scrape, eventually_risen};
use super::{hold, new_note, note_in_flight};
use crate::case_62::Desk;
use crate::support::database::TestDatabase;
use crate::support::http::HttpClient;
use crate::support::server::ServerProcess;
use crate::support::wait::{eventually, eventually_some};

const REFUSALS: &str = "casework_admission_refusals_total";
const CASES: &str = "casework_cases";
const BYTES: &str = "casework_case_bytes";
const LIVE: (&str, &str) = ("state", "live");
const PASSIVE: (&str, &str) = ("state", "passive");

/// Longer than an actor stays without work.
const IDLE: Duration = Duration::from_secs(60);

fn cases(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("case-{i}")).collect()
}

/// A client of the listener that has nothing but metrics.
fn metrics_client(server: &ServerProcess) -> HttpClient {
    let url = eventually_some(IDLE, "the server says where its metrics are", || {
        let log = server.log();
        let (_, rest) = log.split_once("metrics at ")?;
        Some(rest.split_once("/metrics")?.0.to_owned())
    });
    HttpClient::new(&url)
}

on_both_databases! {
    async fn cases_are_live_then_passive_and_never_more_than_the_bound(database: &TestDatabase) {
        let desk = Desk::open_with(database, |options| options.argument("--shards=1").argument("--cases-max=20"));
        desk.open_all(&cases(8)).await;
        let scrape = Scrape::of(&desk.client).await;
        assert_eq!([LIVE, PASSIVE].map(|state| scrape.value(CASES, &[state])), [8.0, 0.0]);
        assert!(scrape.value("casework_operation_cache_bytes", &[]) > 0.0);
        eventually_risen(&desk.client, &scrape, BYTES, &[LIVE], 8.0 * 100.0).await;
        eventually_risen(&desk.client, &scrape, CASES, &[PASSIVE], 8.0).await;
        let idle = Scrape::of(&desk.client).await;
        assert_eq!(idle.value(CASES, &[LIVE]), 0.0);
        assert!(idle.value(BYTES, &[PASSIVE]) > 8.0 * 100.0, "{}", idle.value(BYTES, &[PASSIVE]));
        // One by one: lines of a stream may pass the bound.
        for case_id in &cases(48)[8..] {
            desk.open_all(std::slice::from_ref(case_id)).await;
        }
        let full = Scrape::of(&desk.client).await;
        assert_eq!(full.value(CASES, &[]), 20.0, "the bound");
    }

    async fn refusals_are_told_apart_by_the_bound_that_was_reached(database: &TestDatabase) {
        let desk = Desk::open_with(database, |options| {
            options.arguments(["--shards=1", "--committers=1", "--commands-max=6", "--case-commands-max=2", "--cases-max=2"])
        });
        desk.open_all(&cases(2)).await;
        let refused = async |reason| Scrape::of(&desk.client).await.value(REFUSALS, &[("reason", reason)]);
        let before = Scrape::of(&desk.client).await;
        // Each is on its way before the next is sent, so that it is known which one is refused.
        let mut waiting = Vec::new();
        let send = async |waiting: &mut Vec<_>, case_id| {
            waiting.push(note_in_flight(&desk, case_id, Uuid::new_v4()));
            let sent = waiting.len() as f64;
            eventually_risen(&desk.client, &before, "casework_commands_admitted", &[], sent).await;
        };
        // Both cases in memory are held up.
        let mut holders = Vec::new();
        if database.is_postgres() {
            holders.push(hold(database, "case-0"));
            holders.push(hold(database, "case-1"));
        } else {
            holders.push(hold(database, "any"));
        }
        send(&mut waiting, "case-0").await;
        send(&mut waiting, "case-1").await;
        new_note(&desk, "case-2").await.expect_problem(503, "overloaded");
        assert_eq!(refused("cases-max").await, 1.0);
        send(&mut waiting, "case-0").await;
        send(&mut waiting, "case-0").await;
        new_note(&desk, "case-0").await.expect_problem(503, "overloaded");
        assert_eq!(refused("case-commands-max").await, 1.0);
        send(&mut waiting, "case-1").await;
        send(&mut waiting, "case-1").await;
        new_note(&desk, "case-1").await.expect_problem(503, "overloaded");
        assert_eq!(refused("commands-max").await, 1.0);
        for holder in &mut holders {
            let _ = holder.run("COMMIT").unwrap();
        }
        for note in waiting {
            note.await.unwrap().expect_status(200);
        }
        assert_eq!(Scrape::of(&desk.client).await.value(REFUSALS, &[]), 3.0);
    }

    /// The listener of the metrics shows it to the end.
    async fn what_comes_while_the_server_shuts_down_is_counted(database: &TestDatabase) {
        let mut desk = Desk::open_with(database, |options| options.argument("--metrics-listen=127.0.0.1:0"));
        desk.review("62").await;
        let metrics = metrics_client(&desk.server);
        let before = Scrape::of(&metrics).await;
        let mut holder = hold(database, "62");
        let waiting = note_in_flight(&desk, "62", Uuid::new_v4());
        eventually_risen(&metrics, &before, "casework_commands_admitted", &[], 1.0).await;
        desk.server.sigterm();
        tokio::task::block_in_place(|| eventually(IDLE, "it drains", || desk.server.readiness() == Some(503)));
        new_note(&desk, "62").await.expect_problem(503, "draining");
        assert_eq!(Scrape::of(&metrics).await.value(REFUSALS, &[("reason", "draining")]), 1.0);
        let _ = holder.run("COMMIT").unwrap();
        waiting.await.unwrap().expect_status(200);
        let ended = tokio::task::block_in_place(|| desk.server.wait(Duration::from_secs(10)));
        assert_eq!(ended.code(), Some(0));
    }
}

/// A command whose deadline has passed before it is decided, in a gateway that allows it no time at all. Another gateway of
/// the same process has figures of its own.
#[test]
fn a_command_that_is_too_late_is_counted() {
    let database = TestDatabase::sqlite();
    actix::System::new().block_on(async {
        let store = Database::open(&database.url().parse().unwrap()).unwrap();
        store.call(|store| async move { store.schema_migrate().await }).await.unwrap();
        let workflows = WorkflowRegistry::open(store.clone(), Vec::new(), None).await.unwrap();
        let patient = CommandGateway::start(store.clone(), workflows.clone(), GatewayOptions::default()).await.unwrap();
        let options = GatewayOptions { deadline: Duration::ZERO, ..GatewayOptions::default() };
        let hasty = CommandGateway::start(store, workflows, options).await.unwrap();
        let command = Command::new(CommandDraft {
            case_id: CaseId::parse("62").unwrap(),
            operation_id: OperationId::from_uuid(Uuid::new_v4()),
            actor: ActorId::parse("clerk").unwrap(),
            name: CommandName::parse("open").unwrap(),
            members: Members::take(&mut serde_json::Map::new(), &mut Vec::new()),
        });
        let submission = Submission { command: command.unwrap(), recorded_at: None, lane: None };
        assert_eq!(hasty.submit(submission).await, Answer::Unsettled(Trouble::Overloaded));
        let of_hasty = Scrape::parse(&hasty.metrics_text().await);
        assert_eq!(of_hasty.value(REFUSALS, &[("reason", "deadline")]), 1.0);
        assert_eq!(of_hasty.value(REFUSALS, &[]), 1.0);
        let of_patient = Scrape::parse(&patient.metrics_text().await);
        assert_eq!(of_patient.value(REFUSALS, &[]), 0.0);
    });
}
