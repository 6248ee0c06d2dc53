//! How a guard starts, and how a start is refused: in words, with an exit code.

use std::time::Duration;

use super::Rules;
use crate::support::cli::casework;
use crate::support::postgres_server::free_port;
use crate::support::process::crate_root;
use crate::support::server::ServerOptions;

#[test]
fn rules_are_checked_and_shown_as_they_take_effect() {
    let rules = Rules::new("[[route]]\npath = \"/payments/*\"\nkey = \"required\"\nclaim_lease = \"1m\"\n");
    let shown =
        casework(["guard".as_ref(), "--check-rules".as_ref(), rules.path().as_os_str()]).expect_success().stdout;
    for line in ["[default]", "key = \"optional\"", "[[route]]", "claim_lease = \"1m\"", "response_lifetime = \"30m\""]
    {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    let again = Rules::new(&shown);
    let shown_again = casework(["guard".as_ref(), "--check-rules".as_ref(), again.path().as_os_str()]);
    assert_eq!(shown_again.expect_success().stdout, shown);
    let wrong = Rules::new("[[route]]\npath = \"/\"\nkeys = \"off\"\n");
    let refused = casework(["guard".as_ref(), "--check-rules".as_ref(), wrong.path().as_os_str()]).expect_code(1);
    assert!(refused.stderr.contains("line 3") && refused.stderr.contains("keys"), "{}", refused.stderr);
}

#[test]
fn a_start_that_makes_no_sense_is_refused_in_words() {
    let soon = Duration::from_secs(20);
    let guard = |upstream: &str, store: &str| ServerOptions::guard(upstream, store);
    let upstream = "http://127.0.0.1:9";
    for (options, code, words) in [
        (guard("127.0.0.1:9", "memory"), 1, "http://HOST:PORT"),
        (guard("http://a/?b", "memory"), 1, "without query"),
        (guard(upstream, "memcached://a"), 2, "--store is redis://HOST:PORT"),
        (guard(upstream, "redis://"), 1, "--store"),
        (guard(upstream, "memory").arguments(["--health-path", "/"]), 1, "health path"),
        (guard(upstream, "memory").arguments(["--drain-timeout", "5"]), 2, "is no time"),
        (guard(upstream, "memory").arguments(["--rules", "nowhere.toml"]), 1, "nowhere.toml can't be read"),
        (guard(upstream, "memory").listen(Some("127.0.0.1:99999")), 1, "--listen"),
    ] {
        let refused = options.start_refused(soon);
        assert_eq!(refused.code, Some(code), "{}", refused.stderr);
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
    let missing = casework(["guard"]).expect_code(2);
    assert!(missing.stderr.contains("--upstream") && missing.stderr.contains("--store"), "{}", missing.stderr);
}

#[test]
fn a_database_that_is_away_refuses_the_start_and_a_redis_that_is_away_does_not() {
    let port = free_port();
    let postgres = ServerOptions::guard("http://127.0.0.1:9", &format!("postgres://postgres@127.0.0.1:{port}/x"));
    let refused = postgres.start_refused(Duration::from_secs(60));
    assert_eq!(refused.code, Some(5), "{}", refused.stderr);
    assert!(refused.stderr.contains("check --store"), "{}", refused.stderr);
    let redis = ServerOptions::guard("http://127.0.0.1:9", &format!("redis://127.0.0.1:{port}")).start_unready();
    assert_eq!(redis.readiness(), Some(503));
}

/// The table in the documentation has every key with the default that is in effect, and its example can be used.
#[test]
fn the_documented_rules_are_those_in_effect() {
    let text = std::fs::read_to_string(crate_root().join("docs/guard.md")).unwrap();
    let nothing = Rules::new("");
    let shown =
        casework(["guard".as_ref(), "--check-rules".as_ref(), nothing.path().as_os_str()]).expect_success().stdout;
    let pairs: Vec<_> = shown.lines().filter_map(|line| line.split_once(" = ")).collect();
    assert!(pairs.len() >= 14, "{shown}");
    for (key, default) in pairs {
        let row = text.lines().find(|line| line.starts_with(&format!("| `{key}` |")));
        assert!(
            row.is_some_and(|row| row.ends_with(&format!(" `{default}` |")) || row.ends_with(&format!(" {default} |"))),
            "{key} = {default}: {row:?}"
        );
    }
    let example = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let example = Rules::new(example);
    let _ = casework(["guard".as_ref(), "--check-rules".as_ref(), example.path().as_os_str()]).expect_success();
    let help = casework(["guard", "--help"]).expect_success().stdout;
    for option in text.split('`').filter_map(|word| word.split(' ').next()).filter(|word| word.starts_with("--")) {
        assert!(help.contains(option), "{option} is no option of guard");
    }
}
