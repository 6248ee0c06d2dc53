//! One case that everybody wants, or that somebody holds, and its neighbours: bounded queues, and others keep their pace.
//!
//! "Pace" is the p99 of commands that other cases get one after the other, compared within one run.

mod heavy {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use tokio::task::JoinHandle;

    use crate::support::database::{TestDatabase, block_on};
    use crate::support::http::{RawConnection, command_path, raw_status};
    use crate::support::process::own_uid;
    use crate::support::scene::{
        Latencies, Sender, SentCommand, make_ready, median, recorded_outcomes, verify_is_clean,
    };
    use crate::support::server::{ServerOptions, ServerProcess};
    use crate::support::wait::{eventually, eventually_async};

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

    /// How often a figure is measured: on a busy machine a single measurement says more about its neighbours. One that
    /// keeps the bound shows that the product can; a product that can't never does.
    const MEASUREMENTS_MAX: u32 = 3;

    fn names(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|i| format!("{prefix}-{i}")).collect()
    }

    /// The probes sent between two moments.
    fn between(measured: &[(Instant, Duration)], from: Instant, to: Instant) -> Latencies {
        let mut latencies = Latencies::default();
        latencies.extend(measured.iter().filter(|(sent, _)| (from..to).contains(sent)).map(|(_, took)| *took));
        latencies
    }

    /// What came back for one command of a flood.
    struct RawAnswer {
        status: u16,
        retry_after: Option<String>,
        body: String,
    }

    /// Commands on their way, all at once.
    struct Flood {
        /// All of them are sent, and all that the queue does not hold are answered.
        is_refused: Arc<AtomicBool>,
        answers: JoinHandle<Vec<RawAnswer>>,
    }

    /// Sends one note to each of these cases, each on a connection of its own, and only then reads the answers.
    fn flood(server: SocketAddr, token: &str, cases: impl Iterator<Item = String>) -> Flood {
        let requests: Vec<_> = cases
            .map(|case_id| {
                let note = SentCommand::note(&case_id, "flood");
                let (path, body) = (command_path(&case_id, "note"), note.members.to_string());
                format!(
                    "POST {path} HTTP/1.1\r\nHost: {server}\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
                     Idempotency-Key: {}\r\nPrefer: wait=60\r\nContent-Type: application/json\r\n\
                     Content-Length: {}\r\n\r\n{body}",
                    note.id,
                    body.len()
                )
            })
            .collect();
        let is_refused = Arc::new(AtomicBool::new(false));
        let told = is_refused.clone();
        let exchange = move || {
            let send = |request: &String| {
                let mut connection = RawConnection::connect(server);
                connection.send(request.as_bytes());
                connection
            };
            let connections: Vec<RawConnection> = requests.iter().map(send).collect();
            let mut waiting: Vec<&RawConnection> = connections.iter().collect();
            // The queue holds so many, and the chain that is on its way already.
            eventually(Duration::from_secs(60), "what does not fit is answered", || {
                waiting.retain(|connection| !connection.has_answer());
                waiting.len() <= 2 * CASE_COMMANDS_MAX
            });
            told.store(true, Ordering::Relaxed);
            connections.into_iter().map(|mut connection| parse_answer(&connection.read_to_end())).collect()
        };
        Flood { is_refused, answers: tokio::task::spawn_blocking(exchange) }
    }

    fn parse_answer(answer: &[u8]) -> RawAnswer {
        let text = String::from_utf8(answer.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no whole answer: {text:?}"));
        let header = |name: &str| {
            let mut fields = head.lines().filter_map(|line| line.split_once(':'));
            fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned())
        };
        assert_eq!(header("content-length"), Some(body.len().to_string()), "cut off: {text:?}");
        RawAnswer { status: raw_status(answer).unwrap(), retry_after: header("retry-after"), body: body.to_owned() }
    }

    /// What was applied, once it is sure that all else was refused as it must be.
    #[track_caller]
    fn applied_of(answers: &[RawAnswer]) -> Vec<String> {
        let mut applied = Vec::new();
        for RawAnswer { status, retry_after, body } in answers {
            if *status == 200 {
                applied.push(body.clone());
                continue;
            }
            let problem: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!((*status, &problem["code"]), (503, &"overloaded".into()), "{body}");
            let seconds: u32 = retry_after.as_ref().expect("says when to come back").parse().unwrap();
            assert!(seconds > 0);
            assert_eq!((&problem["retryable"], &problem["reuse_key"]), (&true.into(), &true.into()));
        }
        applied
    }

    fn start(database: &TestDatabase, commands_max: usize) -> (ServerProcess, Sender, String) {
        let token = make_ready(database);
        // Each command has a connection of its own, at both ends.
        allow_files(FLOOD * 2 + 2_000);
        let server = ServerOptions::new(database.url())
            .argument(format!("--case-commands-max={CASE_COMMANDS_MAX}"))
            .argument(format!("--commands-max={commands_max}"))
            .start();
        let sender = Sender::new(server.url(), &token);
        (server, sender, token)
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
            let (server, sender, token) = start(database, 1_000);
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
            let flooding = flood(server.address(), &token, (0..FLOOD).map(|_| "hot".to_owned()));
            // Each of these takes a place in the queue or finds it full; none waits for the hold.
            let asking = sender.clone().waiting(0);
            let mut asked = 0;
            eventually_async(Duration::from_secs(60), "what does not fit is refused", || {
                asked += 1;
                let (asking, note) = (asking.clone(), SentCommand::note("hot", "is it full?"));
                let is_refused = flooding.is_refused.load(Ordering::Relaxed);
                async move { asking.send(&note).await.status == 503 && is_refused }
            })
            .await;
            if database.is_postgres() {
                for case_id in &others {
                    let _ = sender.send(&SentCommand::note(case_id, "others go on")).await.expect_status(200);
                }
            }
            let _ = holder.run("COMMIT").unwrap();
            let answers = flooding.answers.await.unwrap();
            let applied = applied_of(&answers);
            eprintln!("{} of {FLOOD} applied, the rest refused, in {:?}", applied.len(), started.elapsed());
            // What waited, and the chain that was on its way already.
            assert!(applied.len() + asked >= CASE_COMMANDS_MAX, "the queue was used");
            assert!(applied.len() <= CASE_COMMANDS_MAX * 2, "the queue was bounded: {}", applied.len());

            // Nothing but what was acknowledged is there; the case goes on.
            let _ = sender.send(&SentCommand::note("hot", "afterwards")).await.expect_status(200);
            let recorded = recorded_outcomes(database);
            assert!(applied.iter().all(|outcome| recorded.contains(outcome)));
            let of_flood = database.sql_value("SELECT count(*) FROM operations WHERE request LIKE '%\"flood\"%'");
            assert_eq!(of_flood, applied.len().to_string());
            assert!(recorded.len() > before + applied.len());
            verify_is_clean(database);
        }

        /// The same number of commands at once, once spread over many cases and once on a single one.
        async fn other_cases_keep_their_pace_beside_a_hot_one(database: &TestDatabase) {
            let (server, sender, token) = start(database, 2 * FLOOD);
            let (others, many) = (names("other", OTHERS), names("many", 250));
            sender.open_cases(&["hot".to_owned()]).await;
            sender.open_cases(&others).await;
            sender.open_cases(&many).await;
            for measurement in 1..=MEASUREMENTS_MAX {
                let probers = Probers::start(&sender, &others);
                let (mut spread, mut hot) = (Vec::new(), Vec::new());
                for _ in 0..2 {
                    let started = Instant::now();
                    let _ = flood(server.address(), &token, (0..FLOOD).map(|i| many[i % many.len()].clone())).answers.await.unwrap();
                    let turned = Instant::now();
                    let hot_flood = flood(server.address(), &token, (0..FLOOD).map(|_| "hot".to_owned()));
                    let answers = hot_flood.answers.await.unwrap();
                    spread.push((started, turned));
                    hot.push((turned, Instant::now()));
                    assert!(!applied_of(&answers).is_empty());
                }
                let measured = probers.stop().await;
                let p99 = |windows: &[(Instant, Instant)]| -> Vec<Duration> {
                    windows.iter().map(|(from, to)| between(&measured, *from, *to).percentile(99)).collect()
                };
                let (spread, hot) = (p99(&spread), p99(&hot));
                eprintln!(
                    "p99 of other cases beside {FLOOD} commands at once: spread {spread:?}, on one case {hot:?} ({} probes)",
                    measured.len()
                );
                if median(&hot) <= median(&spread) * 2 {
                    break;
                }
                assert!(measurement < MEASUREMENTS_MAX, "a hot case slows its neighbours down");
            }
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
            for measurement in 1..=MEASUREMENTS_MAX {
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
                let again = sender.send(&brief).await.expect_status(200);
                assert!(again.is_replay());
                assert_eq!(found.body, again.body);
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
                if median(&held) <= free * 2 {
                    break;
                }
                assert!(
                    measurement < MEASUREMENTS_MAX,
                    "a held case slows others down: {:?} to {free:?}",
                    median(&held)
                );
            }
        });
        verify_is_clean(&database);
    }
}
