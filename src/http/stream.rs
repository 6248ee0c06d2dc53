//! `POST /v1/commands`: a stream of command lines in, one answer a line out, in input order.
//!
//! Owns the pipeline: lines are read only as fast as they are admitted, and no further ahead of the answers than a window,
//! so that a client that does not read holds up its own upload and nothing else. Lines of one case run in order on a lane;
//! a line without a final answer breaks it. A bad line gets its answer and the stream goes on. Roles are checked for each
//! line, the token every few seconds. A client that hangs up cancels nothing that was admitted.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use actix_web::{HttpResponse, web};
use bytes::Bytes;
use futures_util::{FutureExt as _, Stream};
use tokio::sync::{mpsc, watch};

use super::auth::{Identity, TokenHash};
use super::commands::status;
use super::exchange::{Exchange, ServerState};
use super::headers;
use super::lanes::Lanes;
use super::problems::{Problem, ProblemCode};
use crate::actor::{PendingAnswer, Submission};
use crate::command_log::{LineError, LineRules, StreamLine, StreamLineReader, parse_line};
use crate::domain::{CaseId, Command};
use crate::engine::{Answer, Lane, Receipt, Trouble};

/// How many lines may be read ahead of the answers.
const WINDOW_LINES: usize = 256;
/// About how many bytes of answers are put into one piece when they are ready together.
const PIECE_BYTES: usize = 16 * 1024;
/// How long a stream goes on to be read (and answered `draining`) once the server shuts down.
const DRAIN_READ: Duration = Duration::from_secs(2);

/// Answers a stream.
///
/// # Errors
/// Those of its head: `unauthenticated`, `unsupported-media-type`. All others are answers to lines.
pub(super) async fn run(exchange: &Exchange, payload: web::Payload) -> Result<HttpResponse, Problem> {
    let identity = exchange.identify().await?;
    let token = TokenHash::from_headers(exchange.request.headers())?;
    exchange.query(&[])?;
    if !headers::media_type(exchange.request.headers(), "application/x-ndjson")? {
        return Err(Problem::new(ProblemCode::UnsupportedMediaType, "say `Content-Type: application/x-ndjson`"));
    }
    let (entries, answers) = mpsc::channel(WINDOW_LINES);
    let lanes = Rc::new(RefCell::new(Lanes::default()));
    let reading = Reading { state: exchange.state.clone(), token, identity, lanes: lanes.clone(), entries };
    // A task of its own: reading goes on while an answer is awaited or written.
    actix_web::rt::spawn(reading.run(StreamLineReader::new(payload)));
    let (state, request_id) = (exchange.state.clone(), exchange.request_id.clone());
    let writing = Writing { state, answers, head: None, lanes, request_id };
    Ok(HttpResponse::Ok()
        .content_type("application/x-ndjson")
        // A proxy that collects the answers would stop a client that waits for them.
        .insert_header(("x-accel-buffering", "no"))
        .streaming(writing.into_stream()))
}

/// A line on its way from the reader to the writer.
struct Entry {
    line: u64,
    /// The lane that it was entered on.
    lane: Option<(CaseId, Lane)>,
    state: EntryState,
}

enum EntryState {
    Refused(Problem),
    Submitted(PendingAnswer),
}

/// The half that reads lines and submits them.
struct Reading {
    state: Arc<ServerState>,
    token: TokenHash,
    identity: Arc<Identity>,
    lanes: Rc<RefCell<Lanes>>,
    entries: mpsc::Sender<Entry>,
}

impl Reading {
    /// Reads until the end of the upload, until the client is gone, or until the server has drained for long enough.
    async fn run<S, E>(mut self, mut lines: StreamLineReader<S>)
    where
        S: Stream<Item = Result<Bytes, E>> + Unpin,
        E: std::fmt::Display,
    {
        let drained = drained(self.state.draining.clone());
        tokio::pin!(drained);
        loop {
            let line = tokio::select! {
                biased;
                line = lines.next() => line,
                () = &mut drained => None,
                () = self.entries.closed() => None,
            };
            let Some(line) = line else { return };
            let entry = self.take(line).await;
            if self.entries.send(entry).await.is_err() {
                return;
            }
        }
    }

    /// Submits a line, or says why not.
    async fn take(&mut self, line: StreamLine) -> Entry {
        let refused = |problem| Entry { line: line.number, lane: None, state: EntryState::Refused(problem) };
        let Some(text) = line.text else { return refused(LineError::TooLong.into()) };
        let rules = LineRules { default_actor: Some(&self.identity.subject), recorded: false };
        let command = match parse_line(&text, rules) {
            Ok(parsed) => parsed.command,
            Err(error) => return refused(error.into()),
        };
        let case_id = command.case_id().clone();
        let lane = self.lanes.borrow_mut().enter(&case_id);
        let state = match self.submit(command, &lane).await {
            Ok(pending) => EntryState::Submitted(pending),
            Err(problem) => {
                if problem.status() >= 500 {
                    lane.note(&Answer::Unsettled(Trouble::Unavailable));
                }
                EntryState::Refused(problem)
            }
        };
        Entry { line: line.number, lane: Some((case_id, lane)), state }
    }

    async fn submit(&mut self, command: Command, lane: &Lane) -> Result<PendingAnswer, Problem> {
        if lane.is_broken() || self.lanes.borrow().all_broken() {
            return Err(Problem::new(
                ProblemCode::Unavailable,
                "an earlier line of this case has no final answer, so this one was not run; send both again, in order, under \
                 the same ids",
            ));
        }
        // A stream can last for hours; a token that was revoked meanwhile must not.
        self.identity = self.state.authenticator.identify(self.token).await?;
        self.identity.may_send(command.name())?;
        self.identity.may_act_as(command.actor())?;
        if self.state.refuses_command() {
            return Err(Trouble::Draining.into());
        }
        let submission = Submission { command, recorded_at: None, lane: Some(lane.clone()) };
        Ok(self.state.gateway.submit_when_admitted(submission).await)
    }
}

/// Completes when the server has been shutting down for [`DRAIN_READ`].
async fn drained(mut draining: watch::Receiver<bool>) {
    // The sender lives as long as the server; without it there is nothing to wait for.
    let _ = draining.wait_for(|draining| *draining).await;
    tokio::time::sleep(DRAIN_READ).await;
}

/// The half that awaits answers, in order, and writes them.
struct Writing {
    state: Arc<ServerState>,
    answers: mpsc::Receiver<Entry>,
    /// A line that was taken and has no answer yet.
    head: Option<Entry>,
    lanes: Rc<RefCell<Lanes>>,
    request_id: String,
}

impl Writing {
    fn into_stream(self) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> {
        futures_util::stream::unfold(self, |mut writing| async move {
            let piece = writing.next_piece().await?;
            Some((Ok(piece), writing))
        })
    }

    /// Waits for the next answer, then takes those behind it that are ready, too.
    async fn next_piece(&mut self) -> Option<Bytes> {
        let mut piece = Vec::new();
        let mut entry = match self.head.take() {
            Some(entry) => entry,
            None => self.answers.recv().await?,
        };
        loop {
            let answer = match &mut entry.state {
                EntryState::Refused(problem) => Err(problem.clone()),
                EntryState::Submitted(pending) if piece.is_empty() => Ok(self.state.settle(pending).await),
                EntryState::Submitted(pending) => match pending.now_or_never() {
                    Some(answer) => Ok(answer),
                    None => {
                        self.head = Some(entry);
                        return Some(piece.into());
                    }
                },
            };
            self.write(&mut piece, &entry, answer);
            if piece.len() >= PIECE_BYTES {
                return Some(piece.into());
            }
            match poll_fn(|context| Poll::Ready(self.answers.poll_recv(context))).await {
                Poll::Ready(Some(next)) => entry = next,
                Poll::Ready(None) | Poll::Pending => return Some(piece.into()),
            }
        }
    }

    fn write(&self, piece: &mut Vec<u8>, entry: &Entry, answer: Result<Answer, Problem>) {
        let line = entry.line;
        let outcome = match answer {
            Ok(answer) => {
                if let Some((_, lane)) = &entry.lane {
                    lane.note(&answer);
                }
                match answer {
                    Answer::Applied(receipt) => Ok((receipt, false)),
                    Answer::Replayed(receipt) => Ok((receipt, true)),
                    Answer::Rejected(rejection) => Err(Problem::from(rejection)),
                    Answer::Unsettled(trouble) => Err(Problem::from(trouble)),
                }
            }
            Err(problem) => Err(problem),
        };
        if let Some((case_id, _)) = &entry.lane {
            self.lanes.borrow_mut().leave(case_id);
        }
        let written = match &outcome {
            Ok((receipt, replayed)) => write_outcome(piece, line, receipt, *replayed),
            Err(problem) => {
                self.state.problems.count(problem);
                let (status, document) = (problem.status(), problem.to_json(&self.request_id));
                writeln!(piece, r#"{{"line":{line},"status":{status},"problem":{document}}}"#)
            }
        };
        written.expect("a Vec takes every byte");
    }
}

fn write_outcome(piece: &mut Vec<u8>, line: u64, receipt: &Receipt, replayed: bool) -> std::io::Result<()> {
    let (status, outcome) = (status(receipt).as_u16(), &receipt.outcome);
    writeln!(piece, r#"{{"line":{line},"status":{status},"replayed":{replayed},"outcome":{outcome}}}"#)
}
