//! One case that everybody wants at once: its queue is bounded, and what does not fit leaves nothing.

mod heavy {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use tokio::task::JoinHandle;

    use crate::support::database::TestDatabase;
    use crate::support::http::{RawConnection, command_path, raw_status};
    use crate::support::process::allow_files;
    use crate::support::scene::{Sender, SentCommand, make_ready, recorded_outcomes, verify_is_clean};
    use crate::support::server::{ServerOptions, ServerProcess};
    use crate::support::wait::{eventually, eventually_async};

    /// Commands in flight at once on the hot case.
    const FLOOD: usize = 5_000;
    /// How many of them the queues hold.
    const CASE_COMMANDS_MAX: usize = 200;
    const OTHERS: usize = 4;

    fn names(prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|i| format!("{prefix}-{i}")).collect()
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

    }
}
