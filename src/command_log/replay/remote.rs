//! A session with a server: one NDJSON stream, `POST /v1/commands`.
//!
//! Owns the way there and back: lines go out as they come, answers come back in the same order. Never resends by itself.
//! The token is sent and never shown.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::sync::mpsc;

use super::LineOutcome;
use super::session::{LineAnswer, Outgoing, SessionFault};

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a server may be silent while lines are in flight: well above a command's own deadline.
const READ_TIMEOUT: Duration = Duration::from_secs(90);
/// How long to wait for the end of a stream on which everything is answered.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer that is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The text names no server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a server is given as http://HOST:PORT or https://HOST")]
pub struct InvalidServerUrl;

/// A server and the right to use it.
#[derive(Clone)]
pub struct RemoteServer {
    client: reqwest::Client,
    commands: reqwest::Url,
    token: SecretString,
}

impl RemoteServer {
    /// A server by its base URL. A process-wide rustls provider must be installed.
    ///
    /// # Errors
    /// [`InvalidServerUrl`].
    pub fn new(url: &str, token: SecretString) -> Result<Self, InvalidServerUrl> {
        let mut commands = reqwest::Url::parse(url).map_err(|_| InvalidServerUrl)?;
        if !matches!(commands.scheme(), "http" | "https") || commands.host().is_none() {
            return Err(InvalidServerUrl);
        }
        let path = format!("{}/v1/commands", commands.path().trim_end_matches('/'));
        commands.set_path(&path);
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .read_timeout(READ_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|_| InvalidServerUrl)?;
        Ok(Self { client, commands, token })
    }
}

type Answer = Result<LineAnswer, SessionFault>;

pub(super) struct RemoteSession {
    lines: mpsc::Sender<Bytes>,
    answers: mpsc::Receiver<Answer>,
    /// Tickets of the lines that are not answered, in order.
    tickets: VecDeque<u64>,
}

impl RemoteSession {
    pub(super) fn open(server: &RemoteServer, in_flight_max: usize) -> Self {
        // Both have room for everything in flight, so that neither side ever waits for the other's reader.
        let (lines, body) = mpsc::channel(in_flight_max);
        let (sender, answers) = mpsc::channel(in_flight_max + 1);
        tokio::spawn(run_stream(server.clone(), body, sender));
        Self { lines, answers, tickets: VecDeque::new() }
    }

    pub(super) async fn send(&mut self, line: Outgoing<'_>) {
        let mut text = BytesMut::with_capacity(line.text.len() + 1);
        text.extend_from_slice(line.text);
        text.extend_from_slice(b"\n");
        self.tickets.push_back(line.ticket);
        // A stream that has ended says why in `answer`.
        let _ = self.lines.send(text.freeze()).await;
    }

    pub(super) async fn answer(&mut self) -> Result<(u64, LineAnswer), SessionFault> {
        let answer = self.answers.recv().await.unwrap_or_else(|| {
            Err(SessionFault::Unavailable("the server ended the stream before it had answered all lines".into()))
        })?;
        let ticket = self.tickets.pop_front();
        ticket.map(|ticket| (ticket, answer)).ok_or_else(|| {
            SessionFault::Refused("the server answered a line that was not sent; is it a Casework server?".into())
        })
    }

    pub(super) async fn close(mut self) {
        drop(self.lines);
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.answers.recv()).await;
    }
}

async fn run_stream(server: RemoteServer, mut body: mpsc::Receiver<Bytes>, answers: mpsc::Sender<Answer>) {
    let body = stream::poll_fn(move |context| body.poll_recv(context).map(|line| line.map(Ok::<_, std::io::Error>)));
    let request = server
        .client
        .post(server.commands.clone())
        .bearer_auth(server.token.expose_secret())
        .header("content-type", "application/x-ndjson")
        .body(reqwest::Body::wrap_stream(body));
    let outcome = match request.send().await {
        Ok(response) if response.status().is_success() => read_answers(response, &answers).await,
        Ok(response) => Err(refused_stream(response).await),
        Err(error) => Err(unavailable(&server.commands, &error)),
    };
    if let Err(fault) = outcome {
        // Whoever stopped listening does not want to know.
        let _ = answers.send(Err(fault)).await;
    }
}

async fn read_answers(mut response: reqwest::Response, answers: &mpsc::Sender<Answer>) -> Result<(), SessionFault> {
    let mut buffer = BytesMut::new();
    let mut line_number = 0;
    let url = response.url().clone();
    while let Some(chunk) = response.chunk().await.map_err(|error| unavailable(&url, &error))? {
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line = buffer.split_to(end + 1);
            line_number += 1;
            if answers.send(Ok(understand(line_number, &line)?)).await.is_err() {
                return Ok(());
            }
        }
        if buffer.len() > ANSWER_BYTES_MAX {
            return Err(SessionFault::Refused("the server's answer has no end; is it a Casework server?".into()));
        }
    }
    Ok(())
}

#[derive(Deserialize)]
struct AnswerLine {
    line: u64,
    status: u16,
    #[serde(default)]
    replayed: bool,
    problem: Option<Problem>,
}

#[derive(Deserialize)]
struct Problem {
    code: String,
    detail: Option<String>,
}

impl Problem {
    fn sentence(self) -> String {
        match self.detail {
            Some(detail) => format!("the server answered {}: {detail}", self.code),
            None => format!("the server answered {}", self.code),
        }
    }
}

fn understand(line_number: u64, text: &[u8]) -> Result<LineAnswer, SessionFault> {
    let answer: AnswerLine = serde_json::from_slice(text).map_err(|error| {
        SessionFault::Refused(format!("the server's answer can't be read ({error}); is it a Casework server?"))
    })?;
    if answer.line != line_number {
        let reason = format!("the server answered line {} where line {line_number} was due", answer.line);
        return Err(SessionFault::Refused(reason));
    }
    Ok(match (answer.status, answer.problem) {
        (202, _) => LineAnswer::Unsettled("not settled in time".into()),
        (200..=299, _) if answer.replayed => LineAnswer::Final(LineOutcome::Replayed),
        (200..=299, _) => LineAnswer::Final(LineOutcome::Applied),
        (429 | 502..=504, Some(problem)) => LineAnswer::Unsettled(problem.code.into()),
        (429 | 502..=504, None) => LineAnswer::Unsettled("unavailable".into()),
        (401 | 500.., Some(problem)) => LineAnswer::Refused(problem.sentence()),
        // A role that is missing for one line is missing for the next; `not-assigned` (403 too) is an outcome.
        (_, Some(problem)) if problem.code == "forbidden" => LineAnswer::Refused(problem.sentence()),
        (_, Some(problem)) => LineAnswer::Final(LineOutcome::Rejected(problem.code.into())),
        (status, None) => LineAnswer::Refused(format!("the server answered status {status} without a problem")),
    })
}

/// The whole stream was answered with a status: no line was run.
async fn refused_stream(response: reqwest::Response) -> SessionFault {
    let status = response.status();
    let text = response.bytes().await.unwrap_or_default();
    let sentence = serde_json::from_slice::<Problem>(&text)
        .map_or_else(|_| format!("the server answered {status}"), Problem::sentence);
    if matches!(status.as_u16(), 429 | 502..=504) {
        SessionFault::Unavailable(sentence)
    } else {
        SessionFault::Refused(sentence)
    }
}

/// The URL in front, the innermost cause behind: reqwest's own text names neither port nor reason.
fn unavailable(url: &reqwest::Url, error: &reqwest::Error) -> SessionFault {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    SessionFault::Unavailable(format!("{}: {cause}", url.origin().ascii_serialization()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(text: &str) -> String {
        match understand(7, text.as_bytes()) {
            Ok(LineAnswer::Final(outcome)) => outcome.as_str().to_owned(),
            Ok(LineAnswer::Unsettled(code)) => format!("again: {code}"),
            Ok(LineAnswer::Refused(reason)) => format!("stop: {reason}"),
            Err(_) => "no answer".into(),
        }
    }

    #[test]
    fn answers_are_final_unsettled_or_the_end() {
        for (text, expected) in [
            (r#"{"line":7,"status":201,"replayed":false,"outcome":{}}"#, "applied"),
            (r#"{"line":7,"status":200,"replayed":true,"outcome":{}}"#, "replayed"),
            (r#"{"line":7,"status":403,"problem":{"code":"not-assigned"}}"#, "not-assigned"),
            (r#"{"line":7,"status":412,"problem":{"code":"stale-revision"}}"#, "stale-revision"),
            (r#"{"line":7,"status":503,"problem":{"code":"contention"}}"#, "again: contention"),
            (r#"{"line":7,"status":202}"#, "again: not settled in time"),
            (
                r#"{"line":7,"status":403,"problem":{"code":"forbidden","detail":"No."}}"#,
                "stop: the server answered forbidden: No.",
            ),
            (r#"{"line":7,"status":500,"problem":{"code":"internal"}}"#, "stop: the server answered internal"),
            (r#"{"line":8,"status":200}"#, "no answer"),
            ("<html>", "no answer"),
        ] {
            assert_eq!(outcome(text), expected, "{text}");
        }
    }

    #[test]
    fn a_server_is_given_by_its_base_url() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let server = |url| RemoteServer::new(url, SecretString::from("t")).map(|server| server.commands.to_string());
        assert_eq!(server("http://127.0.0.1:8080").expect("valid"), "http://127.0.0.1:8080/v1/commands");
        assert_eq!(server("https://x.example/casework/").expect("valid"), "https://x.example/casework/v1/commands");
        assert!(server("localhost:8080").is_err());
        assert!(server("ftp://x").is_err());
    }
}
