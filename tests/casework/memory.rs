//! Memory is bounded: ids that name nothing leave nothing, and a full memory makes room.

mod heavy {
    use std::time::Duration;

    use serde_json::json;

    use crate::metrics::scrape::Scrape;
    use crate::support::http::{HttpClient, case_path};
    use crate::support::long_tests_wanted;
    use crate::support::scene::{Sender, SentCommand, make_ready, verify_is_clean};
    use crate::support::server::{ServerOptions, ServerProcess};
    use crate::support::wait::eventually_async;

    /// Commands of one stream: many enough to keep it busy, few enough to hold in a test's memory.
    const STREAM: usize = 5_000;

    /// Resident memory of the server in bytes.
    fn resident_bytes(server: &ServerProcess) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap() * 1024
    }

    async fn scan(sender: &Sender, from: usize, count: usize) {
        for begin in (from..from + count).step_by(STREAM) {
            let end = (begin + STREAM).min(from + count);
            let commands: Vec<_> = (begin..end).map(|i| SentCommand::note(&format!("nobody-{i}"), "hello?")).collect();
            for answer in sender.stream(&commands).await {
                assert_eq!((&answer["status"], &answer["problem"]["code"]), (&json!(404), &json!("case-not-found")));
            }
        }
    }

    on_both_databases! {
        /// Each unknown id is answered 404, and none of them stays in memory.
        async fn a_scan_of_unknown_ids_leaves_no_actors(database: &TestDatabase) {
            // An actor with its mailbox, its machine and its name takes over a kilobyte.
            const BYTES_PER_ID_MAX: usize = 256;
            const SCANS_MAX: usize = 8;
            let count = if long_tests_wanted() { 200_000 } else { 20_000 };
            let token = make_ready(database);
            let server = ServerProcess::start(database.url());
            let sender = Sender::new(server.url(), &token);
            let _ = sender.send(&SentCommand::note("nobody", "hello?")).await.expect_problem(404, "case-not-found");
            let client = HttpClient::new(server.url());
            // The allocator keeps what was free once, so memory need not come back; but it stops growing, and what each id
            // leaves would make it grow with every scan.
            let mut resident = vec![resident_bytes(&server)];
            let has_stopped_growing = |resident: &[usize]| match resident {
                [.., before, after] => *after <= before + count * BYTES_PER_ID_MAX,
                _ => false,
            };
            while !has_stopped_growing(&resident) {
                assert!(resident.len() <= SCANS_MAX, "each of {count} ids leaves something: {resident:?} bytes");
                scan(&sender, resident.len() * count, count).await;
                eventually_async(Duration::from_secs(15), "no case is left in memory", async || {
                    let scrape = Scrape::of(&client).await;
                    ["live", "passive"].iter().all(|state| scrape.value("casework_cases", &[("state", state)]) == 0.0)
                })
                .await;
                resident.push(resident_bytes(&server));
            }
            for table in ["cases", "operations", "outbox"] {
                assert_eq!(database.count(table), 0, "{table}");
            }
        }

        /// A memory for 100 cases serves 5,000, and each is answered right after it was evicted.
        async fn a_full_memory_makes_room(database: &TestDatabase) {
            const CASES: usize = 5_000;
            let token = make_ready(database);
            let server = ServerOptions::new(database.url()).argument("--cases-max=100").start();
            let sender = Sender::new(server.url(), &token);
            let case_ids: Vec<String> = (0..CASES).map(|i| format!("case-{i}")).collect();
            let opens: Vec<_> = case_ids.iter().map(|id| SentCommand::new(id, "open", "clerk", json!({}))).collect();
            let first = sender.stream(&opens).await;
            let notes: Vec<_> = case_ids.iter().map(|id| SentCommand::note(id, "after the eviction")).collect();
            let noted = sender.stream(&notes).await;
            let again = sender.stream(&opens).await;
            for i in 0..CASES {
                assert_eq!((&first[i]["status"], &first[i]["replayed"]), (&json!(201), &json!(false)), "{}", first[i]);
                assert_eq!((&noted[i]["status"], &noted[i]["outcome"]["version"]), (&json!(200), &json!(2)), "{}", noted[i]);
                assert_eq!((&again[i]["status"], &again[i]["replayed"]), (&json!(201), &json!(true)), "{}", again[i]);
                assert_eq!(first[i]["outcome"], again[i]["outcome"]);
            }
            // One by one as well: another command under a known id, a stale one, a new one.
            for i in (0..CASES).step_by(500) {
                let mut other = notes[i].clone();
                other.members["reason"] = json!("something else");
                let _ = sender.send(&other).await.expect_problem(409, "operation-conflict");
                let stale = json!({ "reason": "late", "expected_revision": 7 });
                let stale = SentCommand::new(&case_ids[i], "note", "clerk", stale);
                let _ = sender.send(&stale).await.expect_problem(412, "stale-revision");
                let case = sender.get(&case_path(&case_ids[i])).await.expect_status(200).json();
                assert_eq!(case["version"], 2);
            }
            assert_eq!(database.count("operations"), 2 * CASES as u64);
            verify_is_clean(database);
        }
    }
}
