//! A stream of commands towards a target, and of answers back.
//!
//! Owns what the driver needs of a target, and nothing of a target itself. Within a session the lines of one case run in
//! order; once one of them has no final answer, the later ones get none either, so that they can be sent again in order
//! in a new session.

use std::borrow::Cow;

use super::gateway::GatewaySession;
use super::remote::RemoteSession;
use super::{LineOutcome, ReplayTarget};
use crate::domain::CaseId;

/// A line on its way.
pub(super) struct Outgoing<'a> {
    /// What its answer is known by.
    pub ticket: u64,
    /// Its text without a line feed.
    pub text: &'a [u8],
    /// What it says.
    pub line: &'a super::super::LogLine,
}

impl Outgoing<'_> {
    pub(super) fn case_id(&self) -> &CaseId {
        self.line.command.case_id()
    }
}

/// What a target says to one line.
pub(super) enum LineAnswer {
    /// A final answer.
    Final(LineOutcome),
    /// No clear answer: send it again under its id, in a new session. The code, or a sentence.
    Unsettled(Cow<'static, str>),
    /// The target will not answer this, however often it is sent.
    Refused(String),
}

/// Why a session ended before its answers came.
pub(super) enum SessionFault {
    /// Try a new one.
    Unavailable(String),
    /// A new one would end the same way.
    Refused(String),
}

/// An open session.
pub(super) enum Session {
    Gateway(GatewaySession),
    Remote(RemoteSession),
}

impl Session {
    /// Opens one for at most `in_flight_max` lines at a time.
    pub(super) fn open(target: &ReplayTarget, in_flight_max: usize) -> Self {
        match target {
            ReplayTarget::Gateway(gateway) => Self::Gateway(GatewaySession::open(gateway.clone())),
            ReplayTarget::Server(server) => Self::Remote(RemoteSession::open(server, in_flight_max)),
        }
    }

    /// Sends a line as soon as the target takes it. A fault is told by [`Self::answer`].
    pub(super) async fn send(&mut self, line: Outgoing<'_>) {
        match self {
            Self::Gateway(session) => session.send(line).await,
            Self::Remote(session) => session.send(line).await,
        }
    }

    /// The next answer, with the ticket of its line. Safe to drop before it is ready. Call it while a line is in flight.
    pub(super) async fn answer(&mut self) -> Result<(u64, LineAnswer), SessionFault> {
        match self {
            Self::Gateway(session) => Ok(session.answer().await),
            Self::Remote(session) => session.answer().await,
        }
    }

    /// Ends the session when nothing is in flight any more.
    pub(super) async fn close(self) {
        if let Self::Remote(session) = self {
            session.close().await;
        }
    }
}
