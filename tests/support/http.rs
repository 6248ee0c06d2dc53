//! Clients of the HTTP interface: one that says what it means, and one that sends any bytes at all.
//!
//! [`HttpClient`] sends commands as a careful client does and returns status, headers and the body's exact
//! bytes. [`RawConnection`] is a bare TCP connection for requests that no library would send. Neither retries
//! or follows redirects: what the server says is what the test sees.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

/// Longer than any answer may take (the server's own longest wait is 60 s).
const REQUEST_TIMEOUT: Duration = Duration::from_secs(90);

/// What stays itself in a path segment (RFC 3986, unreserved).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// An answer, whole.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The exact bytes of the body.
    pub body: Bytes,
}

impl Answer {
    /// A header as text; `None` when it is not there or no text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The body as text, for messages.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none; shows it.
    #[must_use]
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("no JSON in the body ({error}): {self:?}"))
    }

    /// The member `code` of a problem document.
    #[must_use]
    pub fn problem_code(&self) -> Option<String> {
        let problem: Value = serde_json::from_slice(&self.body).ok()?;
        Some(problem.get("code")?.as_str()?.to_owned())
    }

    /// Whether the answer says that it is the stored outcome of an earlier request.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.header("idempotent-replay") == Some("true")
    }

    /// The same, once it is sure that the status is `status`.
    ///
    /// # Panics
    /// When it is another; shows the body.
    #[track_caller]
    pub fn expect_status(self, status: u16) -> Self {
        let body = self.text();
        assert_eq!(self.status, status, "another status than expected: {body}");
        self
    }

    /// The same, once it is sure that it is a problem document with this status and code.
    ///
    /// # Panics
    /// When it is another answer; shows the body.
    #[track_caller]
    pub fn expect_problem(self, status: u16, code: &str) -> Self {
        let answer = self.expect_status(status);
        let media_type = answer.header("content-type").unwrap_or_default();
        assert!(
            media_type.starts_with("application/problem+json"),
            "a problem has its own media type, not {media_type:?}"
        );
        let got = answer.problem_code();
        assert_eq!(got.as_deref(), Some(code), "another problem: {}", answer.text());
        answer
    }
}

/// A client of one server. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct HttpClient {
    base: String,
    client: reqwest::Client,
}

impl HttpClient {
    /// A client of the server at `base` (`http://127.0.0.1:PORT`).
    ///
    /// # Panics
    /// Never in practice: when TLS can't be set up.
    #[must_use]
    pub fn new(base: &str) -> Self {
        // Another client of this process may have installed it; then it is there.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .timeout(REQUEST_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .build()
            .expect("a client without certificates of its own can be built");
        Self { base: base.trim_end_matches('/').to_owned(), client }
    }

    /// Sends one command.
    ///
    /// # Panics
    /// When there is no whole answer; [`try_post_command`](Self::try_post_command) is for such times.
    pub async fn post_command(&self, case_id: &str, command: &str, key: &str, body: &Value, token: &str) -> Answer {
        self.try_post_command(case_id, command, key, body, token)
            .await
            .unwrap_or_else(|error| panic!("no answer to {command} of {case_id}: {error:?}"))
    }

    /// Sends one command to a server that may be killed meanwhile.
    ///
    /// # Errors
    /// When there is no whole answer.
    pub async fn try_post_command(
        &self,
        case_id: &str,
        command: &str,
        key: &str,
        body: &Value,
        token: &str,
    ) -> Result<Answer, reqwest::Error> {
        let path = command_path(case_id, command);
        let headers = [
            ("authorization", format!("Bearer {token}")),
            ("content-type", "application/json".to_owned()),
            ("idempotency-key", key.to_owned()),
        ];
        self.try_send(Method::POST, &path, &headers, body.to_string()).await
    }

    /// Sends lines as `application/x-ndjson` to `/v1/commands` and returns the whole answer.
    ///
    /// # Panics
    /// When there is no whole answer.
    pub async fn post_lines(&self, lines: impl Into<reqwest::Body>, token: &str) -> Answer {
        let headers =
            [("authorization", format!("Bearer {token}")), ("content-type", "application/x-ndjson".to_owned())];
        self.try_send(Method::POST, "/v1/commands", &headers, lines)
            .await
            .unwrap_or_else(|error| panic!("no answer to a stream of commands: {error:?}"))
    }

    /// Reads a path, with a token or without.
    ///
    /// # Panics
    /// When there is no whole answer.
    pub async fn get(&self, path: &str, token: Option<&str>) -> Answer {
        let headers: Vec<_> = token.map(|token| ("authorization", format!("Bearer {token}"))).into_iter().collect();
        self.send(Method::GET, path, &headers, "").await
    }

    /// Sends any request with exactly these headers (and what HTTP itself needs).
    ///
    /// # Panics
    /// When there is no whole answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, String)],
        body: impl Into<reqwest::Body>,
    ) -> Answer {
        self.try_send(method.clone(), path, headers, body)
            .await
            .unwrap_or_else(|error| panic!("no answer to {method} {path}: {error:?}"))
    }

    /// Sends any request with exactly these headers to a server that may be killed meanwhile.
    ///
    /// # Errors
    /// When there is no whole answer.
    ///
    /// # Panics
    /// When a header is none: use [`RawConnection`] for such.
    pub async fn try_send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, String)],
        body: impl Into<reqwest::Body>,
    ) -> Result<Answer, reqwest::Error> {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        for (name, value) in headers {
            let name = HeaderName::try_from(*name).expect("a header's name");
            request = request.header(name, HeaderValue::try_from(value).expect("a header's value"));
        }
        let response = request.body(body).send().await?;
        Ok(Answer {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            body: response.bytes().await?,
        })
    }
}

/// Path of a command of a case whose id may hold anything.
#[must_use]
pub fn command_path(case_id: &str, command: &str) -> String {
    format!("{}/{command}", case_path(case_id))
}

/// Path of a case whose id may hold anything.
#[must_use]
pub fn case_path(case_id: &str) -> String {
    format!("/v1/cases/{}", utf8_percent_encode(case_id, SEGMENT))
}

/// A bare TCP connection: any bytes, in any pieces.
#[derive(Debug)]
pub struct RawConnection {
    stream: TcpStream,
}

impl RawConnection {
    /// Connects, with a time limit on every read.
    ///
    /// # Panics
    /// When nobody listens.
    #[must_use]
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap_or_else(|error| panic!("nobody listens at {address}: {error}"));
        stream.set_read_timeout(Some(REQUEST_TIMEOUT)).expect("a read timeout can be set");
        Self { stream }
    }

    /// Sends bytes as they are. The server may have closed already: what it said can still be read.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Says that nothing more will be sent.
    pub fn finish_sending(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Whether something came back that was not read yet. Does not wait.
    #[must_use]
    pub fn has_answer(&self) -> bool {
        self.stream.set_nonblocking(true).expect("a socket can be told not to block");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_nonblocking(false).expect("a socket can be told to block");
        peeked.is_ok_and(|bytes| bytes > 0)
    }

    /// Reads until the server closes the connection.
    #[must_use]
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset after the answer still leaves the answer.
        let _ = self.stream.read_to_end(&mut bytes);
        bytes
    }

    /// Reads until what came satisfies `enough`, or the server closes the connection.
    #[must_use]
    pub fn read_until(&mut self, enough: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        while !enough(&bytes) {
            match self.stream.read(&mut piece) {
                Ok(length) if length > 0 => bytes.extend_from_slice(&piece[..length]),
                _ => break,
            }
        }
        bytes
    }
}

/// Sends bytes on a connection of their own and returns all that comes back until the server closes it.
///
/// A request that should be answered says `Connection: close`.
#[must_use]
#[track_caller]
pub fn raw_exchange(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut connection = RawConnection::connect(address);
    connection.send(request);
    connection.read_to_end()
}

/// Status in the first line of an HTTP/1.1 answer.
#[must_use]
pub fn raw_status(answer: &[u8]) -> Option<u16> {
    let line = answer.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

/// Status of a GET without a client or a runtime; `None` when nobody answers within two seconds.
#[must_use]
pub fn raw_get_status(address: SocketAddr, path: &str) -> Option<u16> {
    let limit = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    raw_status(&answer)
}
