//! Rules: what a file may say, what is refused and where, and which rule a request falls under.

use super::*;

const FILE: &str = r#"
[default]
claim_lease = "10s"

[[route]]
path = "/payments/*"
key = "required"
principal = "header:X-Account"
when_unclear = "release"
kept_headers = ["X-Payment"]

[[route]]
path = "/payments"
methods = ["GET", "POST"]
key = "off"

[[route]]
path = "/free"
principal = "none"
in_flight = 409
"#;

#[test]
fn the_first_route_that_matches_counts() {
    let rules = Rules::parse(FILE).expect("valid");
    let find = |method: Method, path: &str| rules.find(&method, path);
    assert_eq!(find(Method::POST, "/payments"), Match { index: 0, has_key: true });
    assert_eq!(find(Method::POST, "/payments/1"), Match { index: 0, has_key: true });
    assert_eq!(find(Method::POST, "/%70ayments/1"), Match { index: 0, has_key: true });
    assert_eq!(find(Method::GET, "/payments"), Match { index: 1, has_key: false });
    assert_eq!(find(Method::GET, "/payments/1"), Match { index: 3, has_key: false });
    assert_eq!(find(Method::DELETE, "/other"), Match { index: 3, has_key: true });
    let rule = &rules.routes[0].rule;
    assert_eq!((rule.claim_lease, rule.when_unclear), (Duration::from_secs(10), WhenUnclear::Release));
    assert_eq!(rule.principal.to_string(), "header:x-account");
}

#[test]
fn effective_rules_are_a_file_that_says_the_same() {
    let rules = Rules::parse(FILE).expect("valid");
    let again = Rules::parse(&rules.to_string()).expect("what is shown can be read");
    assert_eq!(rules.to_string(), again.to_string());
    assert_eq!(again.routes[0].rule, rules.routes[0].rule);
    assert_eq!(Rules::parse("").expect("nothing is said").default, Rule::default());
}

#[test]
fn what_makes_no_sense_is_refused_in_words() {
    for (file, words) in [
        ("[default]\nkey = \"maybe\"\n", "line 2"),
        ("[default]\n\nkeys = \"off\"\n", "line 3"),
        ("[[routes]]\npath = \"/\"\n", "unknown field"),
        ("[[route]]\nkey = \"off\"\n", "route 1: it needs a `path`"),
        ("[default]\npath = \"/\"\n", "it names none"),
        ("[[route]]\npath = \"payments\"\n", "is no path of a route"),
        ("[[route]]\npath = \"/\"\nclaim_lease = \"30\"\n", "is no time"),
        ("[[route]]\npath = \"/\"\nclaim_lease = \"0s\"\n", "route 1: the lease of a claim"),
        ("[[route]]\npath = \"/\"\nin_flight = 200\n", "202 or 409"),
        ("[[route]]\npath = \"/\"\nmismatch = 400\n", "409 or 422"),
        ("[[route]]\npath = \"/\"\nmethods = []\n", "`methods` is empty"),
        ("[[route]]\npath = \"/\"\nmethods = [\"post\"]\n", "in capitals"),
        ("[[route]]\npath = \"/\"\nprincipal = \"cookie\"\n", "is no principal"),
        ("[[route]]\npath = \"/\"\nkept_headers = [\"Set-Cookie\"]\n", "session"),
        ("[[route]]\npath = \"/\"\nfinal_statuses = [99]\n", "no final status"),
        ("[default]\nupstream_timeout = \"0s\"\n", "longer than nothing"),
        ("[default]\nrequest_bytes_max = 100000000\n", "64 MiB"),
    ] {
        let error = Rules::parse(file).expect_err(file).to_string();
        assert!(error.contains(words), "{file}: {error}");
    }
}
