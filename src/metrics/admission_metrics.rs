//! What the gateway lets in.
//!
//! Owns the reasons for which a command is sent away without being looked at.

use prometheus::{IntCounter, IntGauge, Registry};

use super::{counters, gauge, signed};

/// Why a command was not taken on. Nothing of it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// As many commands are on their way as may be (`--commands-max`).
    CommandsMax,
    /// As many wait for its case as may wait for one (`--case-commands-max`).
    CaseCommandsMax,
    /// Memory is full of cases that are all busy (`--cases-max`).
    CasesMax,
    /// It waited until its deadline and was not decided.
    Deadline,
    /// The process is shutting down.
    Draining,
}

/// Counters of the gateway.
#[derive(Debug)]
pub struct AdmissionMetrics {
    refusals: [IntCounter; 5],
    admitted: IntGauge,
}

impl AdmissionMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let refusals = counters(
            registry,
            "casework_admission_refusals_total",
            "Commands that were sent away undecided, by the bound that was reached.",
            "reason",
        );
        let reasons = ["commands-max", "case-commands-max", "cases-max", "deadline", "draining"];
        Self {
            refusals: reasons.map(|reason| refusals.with_label_values(&[reason])),
            admitted: gauge(
                registry,
                "casework_commands_admitted",
                "Commands on their way: admitted and not answered.",
            ),
        }
    }

    /// So many commands were refused.
    pub fn refused(&self, refusal: Refusal, commands: u64) {
        let place = match refusal {
            Refusal::CommandsMax => 0,
            Refusal::CaseCommandsMax => 1,
            Refusal::CasesMax => 2,
            Refusal::Deadline => 3,
            Refusal::Draining => 4,
        };
        self.refusals[place].inc_by(commands);
    }

    /// So many commands are on their way now.
    pub fn show_admitted(&self, commands: usize) {
        self.admitted.set(signed(commands));
    }
}
