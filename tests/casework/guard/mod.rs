//! `casework guard`: the built program in front of a service that is not ours.

mod once;
mod passing;
mod start;
mod trouble;
mod unclear;

use std::path::PathBuf;
use std::time::Duration;

use reqwest::Method;

use crate::support::http::{Answer, HttpClient};
use crate::support::server::{ServerOptions, ServerProcess};
use crate::support::upstream::Upstream;

/// How long something that must come may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// A guard with a memory store in front of a service, its client, and its rules file.
struct Guarded {
    upstream: Upstream,
    guard: ServerProcess,
    client: HttpClient,
    _rules: Rules,
}

impl Guarded {
    /// With these rules; the empty text for none.
    #[track_caller]
    fn start(rules: &str) -> Self {
        Self::start_with(rules, |options| options)
    }

    #[track_caller]
    fn start_with(rules: &str, more: impl FnOnce(ServerOptions) -> ServerOptions) -> Self {
        let (upstream, rules) = (Upstream::start(), Rules::new(rules));
        let guard = more(rules.apply(ServerOptions::guard(&upstream.url(), "memory"))).start();
        let client = HttpClient::new(guard.url());
        Self { upstream, guard, client, _rules: rules }
    }

    async fn post(&self, path: &str, key: &str, body: &str) -> Answer {
        post(&self.client, path, key, body).await
    }
}

/// A file of rules for as long as a guard may read it.
struct Rules(tempfile::TempDir);

impl Rules {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rules.toml"), text).unwrap();
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("rules.toml")
    }

    fn apply(&self, options: ServerOptions) -> ServerOptions {
        options.argument("--rules").argument(self.path())
    }
}

/// The headers of reviewer 47 with a key.
fn headers(key: &str) -> Vec<(&'static str, String)> {
    vec![
        ("idempotency-key", key.to_owned()),
        ("authorization", "Bearer 47".to_owned()),
        ("content-type", "application/json".to_owned()),
    ]
}

/// A POST of reviewer 47 under a key.
async fn post(client: &HttpClient, path: &str, key: &str, body: &str) -> Answer {
    client.send(Method::POST, path, &headers(key), body.to_owned()).await
}

/// The same as bytes, for a connection that is closed in the middle.
fn raw_post(path: &str, key: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: guard\r\nidempotency-key: {key}\r\nauthorization: Bearer 47\r\n\
         content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}"
    )
    .into_bytes()
}
