//! Which requests are one, and which are not; golden values pin version 1.

use super::*;

fn post<'a>(body: &'a [u8]) -> RequestParts<'a> {
    RequestParts {
        method: "POST",
        path: "/payments",
        query: "",
        content_type: Some("application/json"),
        content_encoding: None,
        body,
    }
}

fn of(request: &RequestParts<'_>) -> Fingerprint {
    Fingerprint::of(request).expect("valid")
}

fn json(body: &str) -> Fingerprint {
    of(&post(body.as_bytes()))
}

#[test]
fn order_of_members_white_space_and_escapes_do_not_count() {
    for (a, b) in [
        (r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#),
        (r#"{"a":[{"x":1,"y":{"p":1,"q":2}}]}"#, " {\n\"a\" : [ {\"y\":{\"q\":2,\"p\":1} ,\t\"x\":1.0} ] }\r\n"),
        (r#"{"name":"é/"}"#, r#"{"name":"\u00e9\/"}"#),
    ] {
        assert_eq!(json(a), json(b), "{a} {b}");
    }
}

#[test]
fn what_is_said_counts() {
    for (a, b) in [
        ("[1,2]", "[2,1]"),
        (r#"{"a":null}"#, "{}"),
        (r#"{"a":1}"#, r#"{"a":"1"}"#),
        (r#"{"a":9007199254740991}"#, r#"{"a":9007199254740990}"#),
    ] {
        assert_eq!(json(a).differing(&json(b)), [Part::Body], "{a} {b}");
    }
}

#[test]
fn json_that_can_be_read_in_two_ways_is_refused() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for body in [r#"{"a":1,"a":1}"#, r#"{"a":"\ud800"}"#, "9007199254740993", "1e999", "{", "", &deep] {
        let request = post(body.as_bytes());
        assert_eq!(Fingerprint::of(&request).is_ok(), body.is_empty(), "{}", &body[..body.len().min(20)]);
    }
    // What does not say that it is JSON is taken as it is.
    assert!(Fingerprint::of(&RequestParts { content_type: Some("text/plain"), ..post(b"{\"a\":1,\"a\":1}") }).is_ok());
}

#[test]
fn each_part_is_told_apart() {
    let base = post(b"{}");
    let differing = |other: RequestParts<'_>| of(&base).differing(&of(&other));
    assert_eq!(differing(base), []);
    assert_eq!(differing(RequestParts { method: "PUT", ..base }), [Part::Method]);
    assert_eq!(differing(RequestParts { path: "/refunds", ..base }), [Part::Path]);
    assert_eq!(differing(RequestParts { query: "dry_run=1", ..base }), [Part::Query]);
    assert_eq!(differing(RequestParts { content_type: Some("application/x+json"), ..base }), [Part::MediaType]);
    assert_eq!(differing(RequestParts { path: "/", body: b"[]", ..base }), [Part::Path, Part::Body]);
}

#[test]
fn queries_count_by_name() {
    let query = |query: &str| of(&RequestParts { query, ..post(b"{}") });
    assert_eq!(query("a=1&b=2"), query("b=2&a=1"));
    assert_eq!(query("a=%41&"), query("&a=A"));
    assert_ne!(query("a=1&a=2"), query("a=2&a=1"));
    assert_ne!(query("a"), query("a="));
    assert_ne!(query("a=1&b=2"), query("a=1%26b=2"));
}

#[test]
fn media_types_count_without_boundary_and_the_usual_charset() {
    let typed = |text: &str| of(&RequestParts { content_type: Some(text), ..post(b"{}") });
    assert_eq!(typed("application/json"), typed("Application/JSON; charset=UTF-8"));
    assert_eq!(typed("application/json; a=1; b=2"), typed("application/json;B=2;A=1"));
    assert_ne!(typed("application/json"), typed("application/json; version=2"));
    let form = |boundary: &str, value: &str| {
        let body =
            format!("--{boundary}\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\n{value}\r\n--{boundary}--\r\n");
        let content_type = format!("multipart/form-data; boundary=\"{boundary}\"");
        of(&RequestParts { content_type: Some(&content_type), ..post(body.as_bytes()) })
    };
    assert_eq!(form("x1", "47"), form("another", "47"));
    assert_eq!(form("x1", "47").differing(&form("x1", "81")), [Part::Body]);
}

#[test]
fn an_encoded_body_counts_byte_for_byte() {
    let encoded = |body| RequestParts { content_encoding: Some("gzip"), ..post(body) };
    assert_ne!(of(&encoded(b"{\"a\":1}")), of(&encoded(b"{ \"a\":1}")));
}

#[test]
fn bytes_are_read_back() {
    let fingerprint = json("{}");
    assert_eq!(Fingerprint::from_bytes(&fingerprint.to_bytes()), Some(fingerprint));
    assert_eq!(Fingerprint::from_bytes(&fingerprint.to_bytes()[1..]), None);
}

#[test]
fn version_1_is_pinned() {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let requests = [
        post(br#"{"b":2,"a":[1.50,"\u00e9"]}"#),
        RequestParts { method: "DELETE", query: "b=2&a=1", content_type: None, ..post(b"") },
    ];
    let golden = [
        "4795a1e871011eaeb06556f02814b9ec91491e4ad4b4f974c452d364f863e8629aee6b1b\
         cdf617d82686bdb4a67c5983e3b0c44298fc1c14bacb769b46f6d1694195b4d1d0348bec",
        "c829d79ae9d8d189d7ff9ef99d791659fa541b82340e30e6ae6ba7aba9d075e165daeb37\
         8bdec35d2686bdb4a67c59835cd4b010d0eeb582e3b0c44298fc1c14e3b0c44298fc1c14",
    ];
    for (request, golden) in requests.iter().zip(golden) {
        assert_eq!(hex(&of(request).to_bytes()), golden);
    }
}
