//! Where a case stood at each place, and whether a rejection is what is decided there.
//!
//! Owns the comparison of a rejection with the state that it speaks of. Keeps statuses, workflows and assignees shared
//! between places. What a place's state can't be known for certain (behind a pruned row) fits every rejection.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use super::event::ReplyProblem;
use crate::domain::{
    ActorId, Case, CaseState, Command, Decision, Rejection, Revision, Status, Timestamp, Version, Workflow, decide,
};

/// The state behind one operation.
#[derive(Debug, Clone)]
struct Standing {
    workflow: Arc<Workflow>,
    status: Status,
    revision: Revision,
    version: Version,
    assignees: Arc<BTreeSet<ActorId>>,
}

/// The states of one case, by place: 0 is before it was opened.
#[derive(Debug)]
pub(super) struct Standings(Vec<Option<Standing>>);

impl Standings {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Notes the state behind the next operation.
    pub(super) fn push(&mut self, state: Option<&CaseState>) {
        let before = self.0.last().and_then(Option::as_ref).map(|standing| standing.assignees.clone());
        self.0.push(state.and_then(CaseState::case).map(|case| Standing {
            workflow: case.workflow.clone(),
            status: case.status.clone(),
            revision: case.revision,
            version: case.version,
            assignees: match before {
                Some(before) if *before == case.assignees => before,
                _ => Arc::new(case.assignees.clone()),
            },
        }));
    }

    /// What the command gives at a place; `None`: the state there is not known.
    pub(super) fn decide(&self, place: usize, command: &Command) -> Option<Result<Decision, Rejection>> {
        static ANY_WORKFLOW: LazyLock<Arc<Workflow>> = LazyLock::new(Workflow::permit);
        let Some(before) = place.checked_sub(1) else {
            return Some(decide(&ANY_WORKFLOW, &CaseState::Absent, command));
        };
        let standing = self.0[before].as_ref()?;
        let state = CaseState::Present(Case {
            workflow: standing.workflow.clone(),
            status: standing.status.clone(),
            revision: standing.revision,
            version: standing.version,
            assignees: (*standing.assignees).clone(),
            data: Arc::from(""),
            opened_at: Timestamp::from_micros(0),
            updated_at: Timestamp::from_micros(0),
        });
        Some(decide(&standing.workflow, &state, command))
    }

    /// Whether the rejection is what the command gives at a place.
    pub(super) fn fits(&self, place: usize, command: &Command, problem: &ReplyProblem) -> bool {
        match self.decide(place, command) {
            None => true,
            Some(Ok(_)) => false,
            Some(Err(rejection)) => says(problem, &rejection),
        }
    }

    /// What the command gives at a place, in words.
    pub(super) fn describe(&self, place: usize, command: &Command) -> String {
        match self.decide(place, command) {
            None => "a state that is not known".into(),
            Some(Ok(_)) => "it is accepted".into(),
            Some(Err(rejection)) => match &rejection {
                Rejection::IllegalTransition { status, revision, .. } => {
                    format!("`illegal-transition` (status `{status}`, revision {revision})")
                }
                Rejection::StaleRevision { current } => format!("`stale-revision` (revision {current})"),
                other => format!("`{}`", other.code()),
            },
        }
    }
}

fn says(problem: &ReplyProblem, rejection: &Rejection) -> bool {
    problem.code == rejection.code()
        && match rejection {
            Rejection::IllegalTransition { status, revision, allowed } => {
                problem.current_status.as_deref() == Some(status.as_str())
                    && problem.current_revision == Some(revision.get())
                    && problem.allowed.as_ref().is_some_and(|said| said.iter().eq(allowed.iter().map(|a| a.as_str())))
            }
            Rejection::StaleRevision { current } => problem.current_revision == Some(current.get()),
            _ => true,
        }
}

/// What a rejection says, in words.
pub(super) fn answer_in_words(problem: &ReplyProblem) -> String {
    let mut words = format!("`{}`", problem.code);
    if let Some(status) = &problem.current_status {
        words.push_str(&format!(" at status `{status}`"));
    }
    if let Some(revision) = problem.current_revision {
        words.push_str(&format!(" at revision {revision}"));
    }
    words
}
