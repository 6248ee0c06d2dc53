//! Commands by command and outcome, replays by where they were answered, rejections by code.

use uuid::Uuid;

use super::scrape::{Scrape, eventually_risen};
use super::{hold, new_note, note_in_flight};
use crate::case_62::{Desk, act, log_line};
use crate::support::http::HttpClient;

const COMMANDS: &str = "casework_command_duration_seconds_count";
const PROBLEMS: &str = "casework_problems_total";
const REPLAYS: &str = "casework_replays_total";
const ADMITTED: &str = "casework_commands_admitted";

on_both_databases! {
    async fn commands_are_told_apart_by_command_and_outcome(database: &TestDatabase) {
        let desk = Desk::open(database);
        let start = Scrape::of(&desk.client).await;
        assert_eq!(start.value("casework_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
        assert_eq!(start.value(PROBLEMS, &[("code", "stale-revision")]), 0.0);
        assert!(start.has(PROBLEMS, &[("code", "stale-revision")]), "the first of a kind is seen as a rise");
        desk.review("62").await;
        let (approve, r47) = (Uuid::new_v4(), &desk.tokens.r47);
        act(&desk.client, r47, "62", "approve", Uuid::new_v4(), 4).await.expect_problem(412, "stale-revision");
        act(&desk.client, r47, "62", "approve", approve, 5).await.expect_status(200);
        act(&desk.client, r47, "62", "approve", approve, 5).await.expect_status(200);
        act(&desk.client, r47, "62", "approve", Uuid::new_v4(), 6).await.expect_problem(409, "illegal-transition");
        act(&desk.client, r47, "62", "approve-all", Uuid::new_v4(), 6).await.expect_problem(422, "invalid-command");
        act(&desk.client, r47, "63", "approve", Uuid::new_v4(), 6).await.expect_problem(404, "case-not-found");
        // Refused before it is a command; a line of a stream; and a path.
        act(&desk.client, &desk.tokens.clerk, "62", "approve", Uuid::new_v4(), 6).await.expect_problem(403, "forbidden");
        let line = log_line("62", "47", "approve", serde_json::json!({ "expected_revision": 6, "reason": "Again." }));
        desk.client.post_lines(line, &desk.tokens.proxy).await.expect_status(200);
        desk.client.get("/nothing", None).await.expect_problem(404, "not-found");

        let scrape = Scrape::of(&desk.client).await;
        let commands = |command, outcome| scrape.value(COMMANDS, &[("command", command), ("outcome", outcome)]);
        assert_eq!(commands("open", "applied"), 1.0);
        assert_eq!(commands("assign", "applied"), 2.0);
        assert_eq!(commands("approve", "applied"), 1.0);
        assert_eq!(commands("approve", "replayed"), 1.0);
        assert_eq!(commands("approve", "stale-revision"), 1.0);
        assert_eq!(commands("approve", "illegal-transition"), 2.0);
        assert_eq!(commands("approve", "case-not-found"), 1.0);
        assert_eq!(commands("other", "invalid-command"), 1.0, "a name that a client made up is no label");
        assert!(!scrape.has(COMMANDS, &[("command", "approve-all")]));
        let took = scrape.value("casework_command_duration_seconds_sum", &[("command", "approve"), ("outcome", "applied")]);
        assert!(took > 0.0 && took < 60.0, "{took}");
        for (code, count) in [
            ("stale-revision", 1.0),
            ("illegal-transition", 2.0),
            ("invalid-command", 1.0),
            ("case-not-found", 1.0),
            ("forbidden", 1.0),
            ("not-found", 1.0),
            ("internal", 0.0),
        ] {
            assert_eq!(scrape.value(PROBLEMS, &[("code", code)]), count, "{code}");
        }
        // What was decided has waited and was committed, each batch with at least one case in it.
        let commits = scrape.value("casework_commit_duration_seconds_count", &[("outcome", "committed")]);
        assert!(commits >= 4.0, "{commits}");
        assert_eq!(scrape.value("casework_batch_cases_count", &[]), commits);
        assert!(scrape.value("casework_batch_cases_sum", &[]) >= commits);
        assert_eq!(scrape.value("casework_batch_operations_sum", &[]), 9.0, "what was applied");
        assert!(scrape.value("casework_queue_wait_seconds_count", &[]) >= commits);
    }

    async fn replays_are_told_apart_by_where_they_were_answered(database: &TestDatabase) {
        let mut desk = Desk::open(database);
        desk.review("62").await;
        let id = Uuid::new_v4();
        act(&desk.client, &desk.tokens.r47, "62", "approve", id, 5).await.expect_status(200);
        let replays = |scrape: &Scrape| ["memory", "database", "in-flight"].map(|of| scrape.value(REPLAYS, &[("source", of)]));
        assert_eq!(replays(&Scrape::of(&desk.client).await), [0.0; 3]);
        assert!(act(&desk.client, &desk.tokens.r47, "62", "approve", id, 5).await.is_replay());
        assert_eq!(replays(&Scrape::of(&desk.client).await), [1.0, 0.0, 0.0]);

        // Whoever starts knows nothing: the first repeat is found by the read, the next one in memory.
        desk.server.kill_9();
        desk.server.start_again();
        desk.client = HttpClient::new(desk.server.url());
        assert!(act(&desk.client, &desk.tokens.r47, "62", "approve", id, 5).await.is_replay());
        assert_eq!(replays(&Scrape::of(&desk.client).await), [0.0, 1.0, 0.0]);
        assert!(act(&desk.client, &desk.tokens.r47, "62", "approve", id, 5).await.is_replay());
        assert_eq!(replays(&Scrape::of(&desk.client).await), [1.0, 1.0, 0.0]);

        // Two under one id while the database is held up: the second waits for the first one's commit.
        new_note(&desk, "62").await.expect_status(200);
        let mut holder = hold(database, "62");
        let (id, before) = (Uuid::new_v4(), Scrape::of(&desk.client).await);
        let first = note_in_flight(&desk, "62", id);
        eventually_risen(&desk.client, &before, ADMITTED, &[], 1.0).await;
        let second = note_in_flight(&desk, "62", id);
        eventually_risen(&desk.client, &before, ADMITTED, &[], 2.0).await;
        let _ = holder.run("COMMIT").unwrap();
        let answers = [first.await.unwrap().expect_status(200), second.await.unwrap().expect_status(200)];
        assert_eq!(answers.each_ref().map(|answer| answer.is_replay()), [false, true]);
        let after = Scrape::of(&desk.client).await;
        assert_eq!(replays(&after), [1.0, 1.0, 1.0]);
        assert_eq!(after.value(ADMITTED, &[]), 0.0);
    }
}
