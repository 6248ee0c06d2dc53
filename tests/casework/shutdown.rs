//! SIGTERM: no new work, what is admitted commits and is answered, and the process ends with 0 within ten seconds.

use std::time::{Duration, Instant};

use crate::support::database::{TestDatabase, block_on};
use crate::support::scene::{Sender, SentCommand, make_ready, recorded_outcomes, verify_is_clean};
use crate::support::server::ServerProcess;
use crate::support::wait::eventually_async;

/// Within this time the process is gone.
const END: Duration = Duration::from_secs(10);

/// A command that can't be settled (somebody holds its case) does not hold up the end, and can be sent again.
#[test]
fn a_command_that_cannot_be_settled_does_not_hold_up_the_end() {
    let database = TestDatabase::postgres();
    let token = make_ready(&database);
    let mut server = ServerProcess::start(database.url());
    let sender = Sender::new(server.url(), &token);
    let note = SentCommand::note("62", "held up");
    block_on(async {
        sender.open_cases(&["62".to_owned()]).await;
        let mut holder = database.session();
        let _ = holder.run("BEGIN; SELECT 1 FROM cases WHERE case_id = '62' FOR UPDATE").unwrap();
        let waiting = tokio::spawn({
            let (sender, note) = (sender.clone(), note.clone());
            async move { sender.try_send(&note).await }
        });
        let path = format!("/v1/cases/62/operations/{}", note.id);
        eventually_async(END, "the command is in flight", || async { sender.get(&path).await.status == 202 }).await;
        let started = Instant::now();
        server.sigterm();
        assert_eq!(server.wait(END).code(), Some(0));
        eprintln!("ended {:?} after SIGTERM with a command held up", started.elapsed());
        // Nobody knows yet whether it will be applied, and that is what it says.
        let answer = waiting.await.unwrap().expect("it is answered all the same");
        let problem = answer.expect_problem(503, "unavailable").json();
        assert_eq!((&problem["retryable"], &problem["reuse_key"]), (&true.into(), &true.into()));
        let _ = holder.run("COMMIT").unwrap();

        server.start_again();
        let sender = Sender::new(server.url(), &token);
        let answer = sender.send(&note).await.expect_status(200);
        let again = sender.send(&note).await.expect_status(200);
        assert!(again.is_replay() && again.body == answer.body);
        assert!(recorded_outcomes(&database).contains(&answer.text()));
        assert_eq!(database.count("operations"), 4);
    });
    verify_is_clean(&database);
}

mod heavy {
    use std::sync::Arc;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::support::wait::eventually;

    const CASES: usize = 20;
    const SENDERS: usize = 32;

    /// What came of the commands of all senders.
    #[derive(Default)]
    struct Sent {
        applied: Mutex<Vec<(SentCommand, String)>>,
        applied_count: AtomicUsize,
        draining: AtomicUsize,
        unanswered: AtomicUsize,
    }

    impl Sent {
        /// Sends notes until the server is gone.
        async fn send_until_gone(self: Arc<Self>, sender: Sender, number: usize) {
            for i in 0.. {
                let case_id = format!("case-{}", (number + i) % CASES);
                let note = SentCommand::note(&case_id, "while it lasts");
                match sender.try_send(&note).await {
                    Ok(answer) if answer.status == 200 => {
                        self.applied.lock().unwrap().push((note, answer.text()));
                        self.applied_count.fetch_add(1, Ordering::Relaxed);
                    }
                    Ok(answer) => {
                        let refused = answer.expect_problem(503, "draining");
                        assert!(refused.header("retry-after").is_some());
                        self.draining.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) if error.is_connect() => return,
                    // The connection was closed between two requests, just as this one was written.
                    Err(_) => drop(self.unanswered.fetch_add(1, Ordering::Relaxed)),
                }
            }
        }
    }

    on_both_databases! {
        async fn what_is_admitted_commits_and_is_answered(database: &TestDatabase) {
            let token = make_ready(database);
            let mut server = ServerProcess::start(database.url());
            let sender = Sender::new(server.url(), &token);
            let case_ids: Vec<String> = (0..CASES).map(|i| format!("case-{i}")).collect();
            sender.open_cases(&case_ids).await;
            let before = recorded_outcomes(database).len();

            let sent = Arc::new(Sent::default());
            let senders: Vec<_> = (0..SENDERS)
                .map(|number| tokio::spawn(sent.clone().send_until_gone(sender.clone(), number)))
                .collect();
            eventually_async(Duration::from_secs(60), "the load is on", || async {
                sent.applied_count.load(Ordering::Relaxed) >= 500
            })
            .await;
            let started = Instant::now();
            server.sigterm();
            tokio::task::block_in_place(|| {
                eventually(END, "readiness is 503", || server.readiness() == Some(503));
                assert_eq!(server.wait(END.saturating_sub(started.elapsed())).code(), Some(0));
            });
            let took = started.elapsed();
            for task in senders {
                task.await.unwrap();
            }
            let applied = std::mem::take(&mut *sent.applied.lock().unwrap());
            eprintln!(
                "ended {took:?} after SIGTERM: {} applied, {} told that it drains, {} without an answer",
                applied.len(),
                sent.draining.load(Ordering::Relaxed),
                sent.unanswered.load(Ordering::Relaxed)
            );
            assert!(sent.draining.load(Ordering::Relaxed) > 0, "somebody was told");

            // Everything acknowledged is there, and nothing that was not: what was admitted was answered.
            let recorded = recorded_outcomes(database);
            assert!(applied.iter().all(|(_, outcome)| recorded.contains(outcome)));
            assert_eq!(recorded.len(), before + applied.len());
            verify_is_clean(database);

            server.start_again();
            let sender = Sender::new(server.url(), &token);
            for (note, outcome) in applied.iter().rev().step_by(10) {
                let again = sender.send(note).await.expect_status(200);
                assert!(again.is_replay());
                assert_eq!(again.text(), *outcome);
            }
        }
    }
}
