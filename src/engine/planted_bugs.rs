//! Bugs that the simulator plants in the engine, to prove that it would catch them.
//!
//! Owns their names and which one is active on this thread. Without the feature `planted-bugs` none ever is, and the
//! compiler leaves nothing of them in the product. A hook is one `if planted(..)` beside the rule that it breaks.

use super::chain::Chain;
use crate::domain::Version;

/// A rule of the engine that can be broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlantedBug {
    /// After an unclear commit the database is read at once, without the fence.
    UnclearWithoutFence,
    /// An unclear chain is forgotten: its callers are told that nothing was recorded.
    ForgottenWhileUnclear,
    /// A chain that does not fit the batch's quota is cut.
    ChainCut,
    /// A full memory evicts whatever was used least recently, busy or not.
    BusyCaseEvicted,
    /// Callers are answered when the batch is sent.
    AcknowledgedBeforeCommit,
    /// A known id is answered whatever the command under it says.
    DigestNotCompared,
    /// Assignments in memory outlive a reload.
    AssignmentFromMemoryOnly,
    /// A rejection is answered from memory, without the version check.
    RejectionWithoutCheck,
    /// A repeat of a command in flight is answered from speculative state.
    DuplicateFromSpeculation,
    /// After a miss the commands are decided again on the memory that had missed.
    MemoryKeptAfterMiss,
    /// A case whose chain is held up decides again while that chain still waits.
    TwoChainsInFlight,
    /// A chain that missed is sent again on the version that was seen, without deciding again.
    RetriedWithoutDeciding,
    /// Status and revision are checked before the id is looked up.
    LookUpAfterRevision,
    /// The answer to any read is taken, also to one that was given up.
    OldReadTaken,
    /// "No such case" is answered to commands that arrived after the read had begun.
    AbsenceFromEarlierRead,
    /// A halved batch reports its second half as it reported the first.
    HalvesShareAFate,
    /// A wake-up that comes too early is the last one.
    WakeUpLost,
    /// A command behind others that were answered from memory is not looked up, so that it waits for the next event.
    LookUpForgotten,
    /// A line of a stream is answered although an earlier one has no final answer, where its outcome is known.
    BrokenLaneAnswered,
    /// A line of a stream whose outcome is known is answered before the lines ahead of it are settled.
    LineAnsweredAhead,
    /// The fence of one connection is taken for the fence of the other one as well.
    FenceTakenForBoth,
    /// When an unclear chain proves to have landed, what it had rejected is decided again, behind what it had accepted.
    RejectionDecidedAgain,
}

#[cfg(feature = "planted-bugs")]
mod active {
    use std::cell::Cell;

    use super::PlantedBug;

    thread_local! {
        static ACTIVE: Cell<Option<PlantedBug>> = const { Cell::new(None) };
    }

    /// Plants a bug on this thread, or takes it away.
    pub fn plant(bug: Option<PlantedBug>) {
        ACTIVE.set(bug);
    }

    pub(in crate::engine) fn planted(bug: PlantedBug) -> bool {
        ACTIVE.get() == Some(bug)
    }
}

#[cfg(feature = "planted-bugs")]
pub use active::plant;
#[cfg(feature = "planted-bugs")]
pub(super) use active::planted;

/// Without the feature no bug is ever planted.
#[cfg(not(feature = "planted-bugs"))]
pub(super) const fn planted(_: PlantedBug) -> bool {
    false
}

/// Moves a chain to another version as it stands: what a retry does that does not decide again.
pub(super) fn rebase(chain: &mut Chain, seen: Version) {
    let shift = seen.get() - chain.expected.get();
    chain.expected = seen;
    if let Some(step) = &mut chain.step {
        step.after.version = Version::new(step.after.version.get() + shift);
        for operation in &mut step.operations {
            operation.version = Version::new(operation.version.get() + shift);
        }
    }
}
