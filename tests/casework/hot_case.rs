//! One case that everybody wants, or that somebody holds, and its neighbours: bounded queues, and others keep their pace.
//!
//! "Pace" is the p99 of commands that other cases get one after the other, compared within one run.

mod heavy {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use tokio::sync::Barrier;
    use tokio::task::JoinHandle;

    use crate::support::database::{TestDatabase, block_on};
    use crate::support::http::{Answer, command_path};
    use crate::support::process::own_uid;
    use crate::support::scene::{
        Latencies, Sender, SentCommand, make_ready, median, recorded_outcomes, verify_is_clean,
    };
    use crate::support::server::{ServerOptions, ServerProcess};
    use crate::support::wait::eventually_async;

    /// Commands in flight at once on the hot case.
    const FLOOD: usize = 5_000;
    /// How many of them the queues hold.
    const CASE_COMMANDS_MAX: usize = 200;
    const OTHERS: usize = 4;

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

    fn names(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|i| format!("{prefix}-{i}")).collect()
    }

    /// The probes sent between two moments.
    fn between(measured: &[(Instant, Duration)], from: Instant, to: Instant) -> Latencies {
        let mut latencies = Latencies::default();
        latencies.extend(measured.iter().filter(|(sent, _)| (from..to).contains(sent)).map(|(_, took)| *took));
        latencies
    }

    /// Sends one note to each of these cases, all at once, and returns the answers.
    async fn flood(sender: &Sender, cases: impl Iterator<Item = String>) -> Vec<Answer> {
        let commands: Vec<_> = cases.map(|case_id| SentCommand::note(&case_id, "flood")).collect();
        let start = Arc::new(Barrier::new(commands.len()));
        let tasks: Vec<_> = commands
            .into_iter()
            .map(|command| {
                let (sender, start) = (sender.clone(), start.clone());
                tokio::spawn(async move {
                    start.wait().await;
                    sender.send(&command).await
                })
            })
            .collect();
        let mut answers = Vec::new();
        for task in tasks {
            answers.push(task.await.unwrap());
        }
        answers
    }

    /// What was applied, once it is sure that all else was refused as it must be.
    #[track_caller]
    fn applied_of(answers: &[Answer]) -> Vec<String> {
        let mut applied = Vec::new();
        for answer in answers {
            if answer.status == 200 {
                applied.push(answer.text());
                continue;
            }
            let refused = answer.clone().expect_problem(503, "overloaded");
            let seconds: u32 = refused.header("retry-after").expect("says when to come back").parse().unwrap();
            assert!(seconds > 0);
            let problem = refused.json();
            assert_eq!((&problem["retryable"], &problem["reuse_key"]), (&true.into(), &true.into()));
        }
        applied
    }

    fn start(database: &TestDatabase) -> (ServerProcess, Sender) {
        let token = make_ready(database);
        // Each command has a connection of its own, at both ends.
        allow_files(FLOOD * 2 + 2_000);
        let server = ServerOptions::new(database.url())
            .argument(format!("--case-commands-max={CASE_COMMANDS_MAX}"))
            .argument("--commands-max=1000")
            .start();
        let sender = Sender::new(server.url(), &token);
        (server, sender)
    }

    /// Lets this process, and those that it starts, have so many open files.
    fn allow_files(count: usize) {
        let limit = |soft: usize| {
            let status = std::process::Command::new("prlimit")
                .args(["--pid", &std::process::id().to_string(), &format!("--nofile={soft}:")])
                .status();
            status.is_ok_and(|status| status.success())
        };
        assert!(limit(count), "user {} may not open {count} files: raise `ulimit -Hn`", own_uid());
    }

    on_both_databases! {
        /// While the database is held up, exactly what the case's queue holds is admitted; the rest is told to come back.
        async fn what_does_not_fit_is_refused_and_leaves_nothing(database: &TestDatabase) {
            let (_server, sender) = start(database);
            let others = names("other", OTHERS);
            sender.open_cases(&["hot".to_owned()]).await;
            sender.open_cases(&others).await;
            let before = recorded_outcomes(database).len();

            // PostgreSQL: one case's row is held. SQLite has one lock for all.
            let mut holder = database.session();
            let hold = if database.is_postgres() {
                "BEGIN; SELECT 1 FROM cases WHERE case_id = 'hot' FOR UPDATE"
            } else {
                "BEGIN IMMEDIATE; SELECT 1 FROM cases WHERE case_id = 'hot'"
            };
            let _ = holder.run(hold).unwrap();
            let started = Instant::now();
            let flooding = tokio::spawn({
                let sender = sender.clone();
                async move { flood(&sender, (0..FLOOD).map(|_| "hot".to_owned())).await }
            });
            eventually_async(Duration::from_secs(30), "the hot case is overloaded", || async {
                let answer = sender.send(&SentCommand::note("hot", "is it full?")).await;
                answer.status == 503
            })
            .await;
            if database.is_postgres() {
                for case_id in &others {
                    let _ = sender.send(&SentCommand::note(case_id, "others go on")).await.expect_status(200);
                }
            }
            let _ = holder.run("COMMIT").unwrap();
            let answers = flooding.await.unwrap();
            let applied = applied_of(&answers);
            eprintln!("{} of {FLOOD} applied, the rest refused, in {:?}", applied.len(), started.elapsed());
            assert!(applied.len() >= CASE_COMMANDS_MAX / 2, "the queue was used");
            assert!(applied.len() < FLOOD, "the queue was bounded");

            // Nothing but what was acknowledged is there; the case goes on.
            let recorded = recorded_outcomes(database);
            assert!(applied.iter().all(|outcome| recorded.contains(outcome)));
            let of_flood = database.sql_value("SELECT count(*) FROM operations WHERE request LIKE '%\"flood\"%'");
            assert_eq!(of_flood, applied.len().to_string());
            assert!(recorded.len() >= before + applied.len());
            let _ = sender.send(&SentCommand::note("hot", "afterwards")).await.expect_status(200);
            verify_is_clean(database);
        }

        /// The same number of commands at once, once spread over many cases and once on a single one.
        async fn other_cases_keep_their_pace_beside_a_hot_one(database: &TestDatabase) {
            let (_server, sender) = start(database);
            let (others, many) = (names("other", OTHERS), names("many", 250));
            sender.open_cases(&["hot".to_owned()]).await;
            sender.open_cases(&others).await;
            sender.open_cases(&many).await;
            // The connections are made before anything is measured: they cost more than commands.
            let _ = flood(&sender, (0..FLOOD).map(|i| many[i % many.len()].clone())).await;

            let probers = Probers::start(&sender, &others);
            let (mut spread, mut hot) = (Vec::new(), Vec::new());
            for _ in 0..3 {
                let started = Instant::now();
                let _ = flood(&sender, (0..FLOOD).map(|i| many[i % many.len()].clone())).await;
                let turned = Instant::now();
                let applied = applied_of(&flood(&sender, (0..FLOOD).map(|_| "hot".to_owned())).await);
                spread.push((started, turned));
                hot.push((turned, Instant::now()));
                assert!(!applied.is_empty());
            }
            let measured = probers.stop().await;
            let p99 = |windows: &[(Instant, Instant)]| -> Vec<Duration> {
                windows.iter().map(|(from, to)| between(&measured, *from, *to).percentile(99)).collect()
            };
            let (spread, hot) = (p99(&spread), p99(&hot));
            eprintln!("p99 of other cases beside {FLOOD} commands at once: spread {spread:?}, on one case {hot:?}");
            assert!(median(&hot) <= median(&spread) * 2, "a hot case slows its neighbours down");
            verify_is_clean(database);
        }
    }

    /// A person's open transaction holds up the case that it holds, and no other.
    #[test]
    fn a_held_case_waits_alone() {
        const WINDOW: Duration = Duration::from_secs(1);
        const WINDOWS: u32 = 5;
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
            let before = windows(WINDOWS).await;

            let mut holder = database.session();
            let _ = holder.run("BEGIN; SELECT 1 FROM cases WHERE case_id = 'held' FOR UPDATE").unwrap();
            let (patient, brief) = (SentCommand::note("held", "patient"), SentCommand::note("held", "brief"));
            let waiting = tokio::spawn({
                let (sender, patient) = (sender.clone(), patient.clone());
                async move { sender.send(&patient).await }
            });
            let brief_answer = tokio::spawn({
                let (sender, brief) = (sender.clone().waiting(1), brief.clone());
                async move { sender.send(&brief).await }
            });
            let held = windows(WINDOWS).await;
            assert!(!waiting.is_finished(), "the held case's command waits");
            let released = Instant::now();
            let _ = holder.run("COMMIT").unwrap();
            let answer = waiting.await.unwrap().expect_status(200);
            let answered = released.elapsed();
            let after = windows(WINDOWS).await;
            let measured = probers.stop().await;

            // The one that would not wait was told where to look.
            let accepted = brief_answer.await.unwrap().expect_status(202);
            let path = accepted.header("location").expect("says where the operation will be").to_owned();
            assert!(accepted.header("retry-after").is_some());
            assert_eq!(path, format!("{}/{}", command_path("held", "operations"), brief.id));
            let found = sender.get(&path).await.expect_status(200);
            assert!(sender.send(&brief).await.expect_status(200).is_replay());
            assert_eq!(found.json()["reason"], "brief");
            assert!(recorded_outcomes(&database).contains(&answer.text()));

            let p99 = |from: Instant| -> Vec<Duration> {
                (0..WINDOWS)
                    .map(|i| between(&measured, from + WINDOW * i, from + WINDOW * (i + 1)).percentile(99))
                    .collect()
            };
            let (before, held, after) = (p99(before), p99(held), p99(after));
            eprintln!(
                "p99 of other cases, in windows of {WINDOW:?}: before {before:?}, while one case is held {held:?}, \
                 after {after:?}; the held command was answered {answered:?} after the release"
            );
            let free = median(&[before, after].concat());
            assert!(median(&held) <= free * 2, "a held case slows others down: {:?} to {free:?}", median(&held));
        });
        verify_is_clean(&database);
    }
}
