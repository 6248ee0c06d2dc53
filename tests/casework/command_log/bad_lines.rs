//! Lines that can't be read: their number and the reason, where the replay stops, what it says it did.

use super::{case_62, line, log, migrate, replay_text, verify};
use crate::support::database::TestDatabase;

/// Each with what the message must say.
fn bad_lines() -> Vec<(String, &'static str)> {
    let note = |rest: &str| line("62", 90, "47", &format!(r#""command":"note",{rest}"#));
    let long = "x".repeat(64 * 1024);
    let deep = format!(r#""reason":"x","payload":{{"a":{}{}}}"#, "[".repeat(10_000), "]".repeat(10_000));
    vec![
        ("{\"case_id\":\"62\",".into(), "can't be read"),
        (note(r#""reason":"x","reason":"x""#), "stands twice"),
        (note(r#""reason":"x","payload":{"a":{"b":1,"b":2}}"#), "stands twice"),
        (note(r#""reason":"x","colour":"red""#), "/colour"),
        (note(r#""reason":"x","expected_revision":9007199254740992"#), "2^53"),
        (note(r#""reason":"x","expected_revision":-1"#), "/expected_revision"),
        (note(r#""reason":"x","expected_revision":1.5"#), "/expected_revision"),
        (note(r#""reason":"  ""#), "blank"),
        (note(&format!(r#""reason":"{}""#, "x".repeat(2_001))), "2001 characters"),
        (note(r#""reason":"a\u0000b""#), "NUL"),
        (note(r#""reason":"\ud800""#), "can't be read"),
        (note(&format!(r#""reason":"x","payload":{{"a":"{long}"}}"#)), "65536 bytes"),
        (note(&deep), "64 levels"),
        (line(&"c".repeat(129), 90, "47", r#""command":"open""#), "129 characters"),
        (line("62", 90, "sql:47", r#""command":"note","reason":"x""#), "sql:"),
        (line("62", 90, "47", r#""command":"edit","payload":{"table":"assignments","insert":"x"}"#), "sql:"),
        (r#"{"case_id":"62","actor":"47","command":"note","reason":"x"}"#.into(), "operation_id"),
        (note(r#""reason":"x""#).replace("6f1e4c52-", "6f1e4c52"), "UUID"),
        (note(r#""reason":"x","at":"yesterday""#), "/at"),
        ("[]".into(), "object"),
    ]
}

on_both_databases! {
    /// Everything before the line is run, nothing behind it, and the line and the reason are named.
    async fn a_line_that_cannot_be_read_stops_the_replay_before_it(database: &TestDatabase) {
        migrate(database);
        let mut lines = case_62();
        lines.insert(3, String::new());
        lines.insert(4, "{\"case_id\":".into());
        let output = replay_text(database, &log(&lines), &[]).expect_code(1);
        assert!(output.stderr.contains("line 5 can't be read"), "{output:#?}");
        assert!(output.stderr.contains("3 lines before it were run"), "{output:#?}");
        assert_eq!(output.json()["applied"], 3);
        assert_eq!(database.count("operations"), 3);
        verify(database).expect_success();
    }

    /// With --keep-going all other lines are run; the exit code still tells.
    async fn keep_going_leaves_out_what_cannot_be_read_and_says_so(database: &TestDatabase) {
        migrate(database);
        let bad = bad_lines();
        let mut lines = case_62();
        let behind = lines.split_off(5);
        lines.extend(bad.iter().map(|(line, _)| line.clone()));
        lines.extend(behind);
        let output = replay_text(database, &log(&lines), &["--keep-going"]).expect_code(1);
        for (number, (_, reason)) in (6..).zip(&bad) {
            let named = format!("line {number} is left out: ");
            let message = output.stderr.lines().find(|line| line.starts_with(&named));
            assert!(message.is_some_and(|message| message.contains(reason)), "line {number}, {reason}: {output:#?}");
        }
        let report = output.json();
        assert_eq!((&report["lines"], &report["applied"]), (&7.into(), &7.into()), "{output:#?}");
        assert_eq!(report["unreadable"], bad.len());
        assert_eq!((database.count("operations"), database.count("outbox")), (7, 7));
        verify(database).expect_success();
    }

    /// A rejection is an outcome: it leaves no row and the replay ends well.
    async fn a_rejection_is_an_outcome_and_not_an_error(database: &TestDatabase) {
        migrate(database);
        let mut lines = case_62();
        lines.push(line("62", 20, "47", r#""command":"reopen","expected_revision":2,"reason":"Late.""#));
        lines.push(line("62", 7, "47", r#""command":"approve","expected_revision":2,"reason":"Another reason.""#));
        lines.push(line("62", 21, "stranger", r#""command":"reopen","expected_revision":3,"reason":"Let me.""#));
        lines.push(line("62", 22, "47", r#""command":"deny","expected_revision":3,"reason":"No.""#));
        lines.push(line("63", 23, "47", r#""command":"note","reason":"Which case?""#));
        lines.push(line("62", 24, "47", r#""command":"open""#));
        lines.push(line("62", 25, "47", r#""command":"fly","reason":"x""#));
        let report = replay_text(database, &log(&lines), &[]).expect_success().json();
        let expected = serde_json::json!({
            "stale-revision": 1, "operation-conflict": 1, "not-assigned": 1, "illegal-transition": 1,
            "case-not-found": 1, "case-exists": 1, "invalid-command": 1,
        });
        assert_eq!((&report["lines"], &report["applied"], &report["rejected"]), (&14.into(), &7.into(), &expected));
        let again = replay_text(database, &log(&lines), &[]).expect_success().json();
        assert_eq!((&again["replayed"], &again["rejected"]), (&7.into(), &expected));
        assert_eq!((database.count("operations"), database.count("cases")), (7, 1));
    }
}

#[test]
fn each_kind_of_bad_line_stops_the_replay_with_its_reason() {
    for (bad, reason) in bad_lines() {
        let database = TestDatabase::sqlite();
        let output = replay_text(&database, &log(std::slice::from_ref(&bad)), &[]).expect_code(1);
        let shown: String = bad.chars().take(200).collect();
        assert!(output.stderr.contains("line 1 can't be read"), "{shown}: {output:#?}");
        assert!(output.stderr.contains(reason), "{shown} should be refused for {reason:?}: {output:#?}");
        assert_eq!(database.count("operations"), 0);
    }
}
