//! Others keep their pace beside a case that everybody wants, and beside one that somebody holds.
//!
//! "Pace" is the p99 of commands that other cases get one after the other, in windows of one length within one run: the
//! median of the windows with the trouble is compared with the median of those without. There is one measurement, and it
//! counts.

mod heavy {
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use casework::actor::{CommandGateway, GatewayOptions, Submission, WorkflowRegistry};
    use casework::domain::{ActorId, CaseId, Command, CommandDraft, CommandName, Members, OperationId, parse_strict};
    use casework::engine::{self, Trouble};
    use casework::store::Database;
    use tokio::task::JoinHandle;

    use crate::support::database::{TestDatabase, block_on};
    use crate::support::http::command_path;
    use crate::support::scene::{
        Latencies, Sender, SentCommand, make_ready, median, recorded_outcomes, verify_is_clean,
    };
    use crate::support::server::ServerProcess;

    /// When a refused client comes back.
    const RETRY_AFTER: Duration = Duration::from_secs(1);
    /// Clients that each have a command in flight, or wait as long as they were told to.
    const CROWD: usize = 5_000;
    /// How many of their commands wait for one case at once.
    const CASE_COMMANDS_MAX: usize = 500;
    /// The cases over which the crowd spreads when it does not want the hot one.
    const CASES: usize = 250;

    /// Sends notes to cases of their own, one after the other, until told to stop.
    struct Probers {
        is_over: Arc<AtomicBool>,
        tasks: Vec<JoinHandle<Vec<(Instant, Duration)>>>,
    }

    impl Probers {
        fn start(sender: &Sender, cases: &[String]) -> Self {
            let is_over = Arc::new(AtomicBool::new(false));
            let tasks = cases
                .iter()
                .map(|case_id| {
                    let (sender, case_id, is_over) = (sender.clone(), case_id.clone(), is_over.clone());
                    tokio::spawn(async move {
                        let mut measured = Vec::new();
                        while !is_over.load(Ordering::Relaxed) {
                            let sent = Instant::now();
                            let _ = sender.send(&SentCommand::note(&case_id, "pace")).await.expect_status(200);
                            measured.push((sent, sent.elapsed()));
                        }
                        measured
                    })
                })
                .collect();
            Self { is_over, tasks }
        }

        /// When each command was sent, and how long its answer took.
        async fn stop(self) -> Vec<(Instant, Duration)> {
            self.is_over.store(true, Ordering::Relaxed);
            let mut measured = Vec::new();
            for task in self.tasks {
                measured.extend(task.await.unwrap());
            }
            measured
        }
    }

    /// The probes sent between two moments.
    fn between(measured: &[(Instant, Duration)], from: Instant, to: Instant) -> Latencies {
        let mut latencies = Latencies::default();
        latencies.extend(measured.iter().filter(|(sent, _)| (from..to).contains(sent)).map(|(_, took)| *took));
        latencies
    }

    fn names(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|i| format!("{prefix}-{i}")).collect()
    }

    /// The gateway of this process on an empty database.
    async fn open_gateway(database: &TestDatabase) -> CommandGateway {
        let database = Database::open(&database.url().parse().unwrap()).unwrap();
        database.call(|store| async move { store.schema_migrate().await }).await.unwrap();
        let workflows = WorkflowRegistry::open(database.clone(), Vec::new(), None).await.unwrap();
        let options = GatewayOptions { case_commands_max: CASE_COMMANDS_MAX, ..GatewayOptions::default() };
        CommandGateway::start(database, workflows, options).await.unwrap()
    }

    /// A command of the clerk under a new id, submitted and answered.
    async fn submit(gateway: &CommandGateway, case_id: &CaseId, name: &str, body: &str) -> engine::Answer {
        let serde_json::Value::Object(mut object) = parse_strict(body.as_bytes()).unwrap() else { panic!("an object") };
        let command = Command::new(CommandDraft {
            case_id: case_id.clone(),
            operation_id: OperationId::from_uuid(uuid::Uuid::new_v4()),
            actor: ActorId::parse("clerk").unwrap(),
            name: CommandName::parse(name).unwrap(),
            members: Members::take(&mut object, &mut Vec::new()),
        });
        gateway.submit(Submission { command: command.unwrap(), recorded_at: None, lane: None }).await
    }

    async fn open_cases(gateway: &CommandGateway, prefix: &str, count: usize) -> Vec<CaseId> {
        let cases: Vec<CaseId> = names(prefix, count).iter().map(|name| CaseId::parse(name).unwrap()).collect();
        for case_id in &cases {
            assert!(matches!(submit(gateway, case_id, "open", "{}").await, engine::Answer::Applied(_)));
        }
        cases
    }

    /// What the crowd does and what it has met.
    #[derive(Default)]
    struct Crowd {
        wants_hot_case: Cell<bool>,
        is_over: Cell<bool>,
        applied: Cell<usize>,
        refused: Cell<usize>,
    }

    impl Crowd {
        /// One of it: sends notes for ever, comes back later when it is told to.
        async fn belong(self: Rc<Self>, gateway: CommandGateway, hot: CaseId, own: CaseId) {
            while !self.is_over.get() {
                let case_id = if self.wants_hot_case.get() { &hot } else { &own };
                match submit(&gateway, case_id, "note", r#"{"reason":"crowd"}"#).await {
                    engine::Answer::Applied(_) => self.applied.set(self.applied.get() + 1),
                    engine::Answer::Unsettled(Trouble::Overloaded) => {
                        self.refused.set(self.refused.get() + 1);
                        tokio::time::sleep(RETRY_AFTER).await;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }

        /// Notes to one case, one after the other: when each was sent, and how long its answer took.
        async fn probe(self: Rc<Self>, gateway: CommandGateway, case_id: CaseId) -> Vec<(Instant, Duration)> {
            let mut measured = Vec::new();
            while !self.is_over.get() {
                let sent = Instant::now();
                let answer = submit(&gateway, &case_id, "note", r#"{"reason":"pace"}"#).await;
                assert!(matches!(answer, engine::Answer::Applied(_)), "{answer:?}");
                measured.push((sent, sent.elapsed()));
            }
            measured
        }
    }

    /// The same crowd, in turns spread over many cases and all on one. In process: 5,000 sockets would measure the
    /// system's accept queue.
    fn other_cases_keep_their_pace_beside_a_hot_one(database: &TestDatabase) {
        const ROUNDS: usize = 5;
        const WINDOW: Duration = Duration::from_secs(2);
        let windows = actix::System::new().block_on(async {
            let gateway = open_gateway(database).await;
            let hot = open_cases(&gateway, "hot", 1).await.remove(0);
            let (others, many) = (open_cases(&gateway, "other", 4).await, open_cases(&gateway, "many", CASES).await);
            let crowd = Rc::new(Crowd::default());
            let probes: Vec<_> =
                others.into_iter().map(|case_id| actix::spawn(crowd.clone().probe(gateway.clone(), case_id))).collect();
            let members: Vec<_> = (0..CROWD)
                .map(|i| many[i % many.len()].clone())
                .map(|own| actix::spawn(crowd.clone().belong(gateway.clone(), hot.clone(), own)))
                .collect();
            let mut windows = Vec::new();
            for turn in 0..2 * ROUNDS {
                let is_hot = turn % 2 == 1;
                crowd.wants_hot_case.set(is_hot);
                // What the turn before left behind is over then: who was refused comes back.
                tokio::time::sleep(RETRY_AFTER + WINDOW / 4).await;
                let (from, applied, refused) = (Instant::now(), crowd.applied.get(), crowd.refused.get());
                tokio::time::sleep(WINDOW).await;
                windows.push((is_hot, from, crowd.applied.get() - applied, crowd.refused.get() - refused));
            }
            crowd.is_over.set(true);
            let mut measured = Vec::new();
            for probe in probes {
                measured.extend(probe.await.unwrap());
            }
            for member in members {
                member.await.unwrap();
            }
            windows
                .into_iter()
                .map(|(is_hot, from, applied, refused)| {
                    (is_hot, between(&measured, from, from + WINDOW), applied, refused)
                })
                .collect::<Vec<_>>()
        });
        let mut p99 = [Vec::new(), Vec::new()];
        for (is_hot, probes, applied, refused) in windows {
            let (name, count) = (if is_hot { "one case" } else { "spread" }, probes.count());
            let (middle, late) = (probes.percentile(50), probes.percentile(99));
            eprintln!("{name}: {applied} applied, {refused} refused; {count} probes, p50 {middle:?}, p99 {late:?}");
            assert_eq!(refused > 0, is_hot, "the bound of the case is what is hit");
            assert!(applied > CROWD, "the crowd is served");
            p99[usize::from(is_hot)].push(late);
        }
        let [spread, hot] = p99.map(|windows| median(&windows));
        assert!(hot <= spread * 2, "a hot case slows others down: p99 {hot:?} to {spread:?}");
        verify_is_clean(database);
    }

    #[test]
    fn other_cases_keep_their_pace_beside_a_hot_one_on_sqlite() {
        other_cases_keep_their_pace_beside_a_hot_one(&TestDatabase::sqlite());
    }

    #[test]
    fn other_cases_keep_their_pace_beside_a_hot_one_on_postgres() {
        other_cases_keep_their_pace_beside_a_hot_one(&TestDatabase::postgres());
    }

    /// A person's open transaction holds up the case that it holds, and no other. Held and free seconds take turns, so that
    /// what else the machine does meets both.
    #[test]
    fn a_held_case_waits_alone() {
        const WINDOW: Duration = Duration::from_secs(1);
        const WINDOWS: u32 = 5;
        const ROUNDS: usize = 3;
        let database = TestDatabase::postgres();
        let token = make_ready(&database);
        let server = ServerProcess::start(database.url());
        let sender = Sender::new(server.url(), &token);
        block_on(async {
            let others = names("other", 8);
            sender.open_cases(&["held".to_owned()]).await;
            sender.open_cases(&others).await;
            let probers = Probers::start(&sender, &others);
            // A deadline for each window, not a sleep in place of a condition: the probes are the measurement.
            let windows = async |count: u32| {
                let from = Instant::now();
                tokio::time::sleep(WINDOW * count).await;
                from
            };
            // The first second warms up.
            windows(1).await;
            let (mut free, mut held) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                free.push(windows(WINDOWS).await);
                held.push(hold_for(&database, &sender, windows(WINDOWS)).await);
            }
            let measured = probers.stop().await;
            let p99 = |turns: &[Instant]| -> Vec<Duration> {
                let windows = turns.iter().flat_map(|from| (0..WINDOWS).map(|i| *from + WINDOW * i));
                windows.map(|from| between(&measured, from, from + WINDOW).percentile(99)).collect()
            };
            let (free, held) = (p99(&free), p99(&held));
            eprintln!("p99 of other cases, in windows of {WINDOW:?}: free {free:?}; while one case is held {held:?}");
            let (free, held) = (median(&free), median(&held));
            assert!(held <= free * 2, "a held case slows others down: {held:?} to {free:?}");
        });
        verify_is_clean(&database);
    }

    /// Holds the case `held` with a session of its own while `meanwhile` goes on, and looks after two commands to it: one
    /// that waits and one that will not.
    async fn hold_for<T>(database: &TestDatabase, sender: &Sender, meanwhile: impl Future<Output = T>) -> T {
        let mut holder = database.session();
        let _ = holder.run("BEGIN; SELECT 1 FROM cases WHERE case_id = 'held' FOR UPDATE").unwrap();
        let (patient, brief) = (SentCommand::note("held", "patient"), SentCommand::note("held", "brief"));
        let send = |sender: Sender, command: SentCommand| tokio::spawn(async move { sender.send(&command).await });
        let waiting = send(sender.clone(), patient);
        let brief_answer = send(sender.clone().waiting(1), brief.clone());
        let result = meanwhile.await;
        assert!(!waiting.is_finished(), "the held case's command waits");
        let released = Instant::now();
        let _ = holder.run("COMMIT").unwrap();
        let answer = waiting.await.unwrap().expect_status(200);
        eprintln!("the held command was answered {:?} after the release", released.elapsed());
        assert!(recorded_outcomes(database).contains(&answer.text()));

        // The one that would not wait was told where to look.
        let accepted = brief_answer.await.unwrap().expect_status(202);
        let path = accepted.header("location").expect("says where the operation will be").to_owned();
        assert!(accepted.header("retry-after").is_some());
        assert_eq!(path, format!("{}/{}", command_path("held", "operations"), brief.id));
        let again = sender.send(&brief).await.expect_status(200);
        assert!(again.is_replay());
        assert_eq!(sender.get(&path).await.expect_status(200).body, again.body);
        result
    }
}
