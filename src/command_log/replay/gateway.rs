//! A session with the actors of this process.
//!
//! Owns one lane a case, as long as the case has lines in flight. Never waits for an answer before it sends the next line.

use std::collections::HashMap;
use std::future::{Future, pending};
use std::pin::Pin;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::LineOutcome;
use super::session::{LineAnswer, Outgoing};
use crate::actor::{CommandGateway, Submission};
use crate::domain::CaseId;
use crate::engine::{Answer, Lane, Trouble};

type Answering = Pin<Box<dyn Future<Output = (u64, CaseId, Answer)>>>;

pub(super) struct GatewaySession {
    gateway: CommandGateway,
    lanes: HashMap<CaseId, (Lane, usize)>,
    answers: FuturesUnordered<Answering>,
}

impl GatewaySession {
    pub(super) fn open(gateway: CommandGateway) -> Self {
        Self { gateway, lanes: HashMap::new(), answers: FuturesUnordered::new() }
    }

    pub(super) async fn send(&mut self, line: Outgoing<'_>) {
        let case_id = line.case_id().clone();
        let (lane, in_flight) = self.lanes.entry(case_id.clone()).or_default();
        *in_flight += 1;
        let submission =
            Submission { command: line.line.command.clone(), recorded_at: line.line.at, lane: Some(lane.clone()) };
        let answer = self.gateway.submit_when_admitted(submission).await;
        let ticket = line.ticket;
        self.answers.push(Box::pin(async move { (ticket, case_id, answer.await) }));
    }

    pub(super) async fn answer(&mut self) -> (u64, LineAnswer) {
        let Some((ticket, case_id, answer)) = self.answers.next().await else { return pending().await };
        if let Some((lane, in_flight)) = self.lanes.get_mut(&case_id) {
            *in_flight -= 1;
            // A broken lane stays: what comes later in this session must not overtake what failed.
            if *in_flight == 0 && !lane.is_broken() {
                self.lanes.remove(&case_id);
            }
        }
        (ticket, understand(answer))
    }
}

fn understand(answer: Answer) -> LineAnswer {
    match answer {
        Answer::Applied(_) => LineAnswer::Final(LineOutcome::Applied),
        Answer::Replayed(_) => LineAnswer::Final(LineOutcome::Replayed),
        Answer::Rejected(rejection) => LineAnswer::Final(LineOutcome::Rejected(rejection.code().into())),
        Answer::Unsettled(Trouble::Internal) => {
            LineAnswer::Refused("an invariant of the database is broken; run `casework verify`".into())
        }
        Answer::Unsettled(trouble) => LineAnswer::Unsettled(trouble.code().into()),
    }
}
