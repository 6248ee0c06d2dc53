//! What a simulation is told: seed, length, which kinds of trouble it may make, and which bug is planted.
//!
//! Owns the names that stand in reports and on the command line of `examples/simulate.rs`.

use std::collections::BTreeSet;

use casework::engine::PlantedBug;

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Its name in reports and on the command line.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

named! {
    /// A kind of trouble, made by the world or by clients. Each can be switched off.
    Kind {
        /// The server refuses a batch: nothing is written.
        CommitFailed = "commit-failed",
        /// A deadlock or the like: nothing is written, the transaction may run again.
        CommitRetry = "commit-retry",
        /// A unique key refuses a whole batch.
        CommitDuplicate = "commit-duplicate",
        /// The answer to a commit is lost; the commit is done, before or after the caller learns so.
        CommitCut = "commit-cut",
        /// A batch never reaches the database, and its sender can't tell.
        CommitLost = "commit-lost",
        /// A message takes much longer than others.
        Stall = "stall",
        /// A transaction holds its locks for long.
        LongTransaction = "long-transaction",
        /// A process dies; it starts again later.
        Crash = "crash",
        /// Another process raises the epoch of a running writer.
        ForeignFence = "foreign-fence",
        /// The fence can't be raised, or was raised and the answer is lost, or lands later.
        FenceFailed = "fence-failed",
        /// A read fails.
        ReadFailed = "read-failed",
        /// A connection can't be opened.
        OpenFailed = "open-failed",
        /// A person holds the lock on a case.
        RowLock = "row-lock",
        /// A person changes a case or its assignments.
        Edit = "edit",
        /// An operation becomes a tombstone.
        Prune = "prune",
        /// A value that the database can't store.
        Poison = "poison",
        /// A client stops waiting for good.
        GiveUp = "give-up",
        /// A client uses an id again for another command.
        ChangedPayload = "changed-payload",
        /// A client uses the id of another actor.
        OtherActor = "other-actor",
        /// The same command goes to two processes at once.
        ConcurrentRepeat = "concurrent-repeat",
        /// A command that was answered long ago is sent again.
        LateRepeat = "late-repeat",
        /// Lines of one stream for one case.
        Stream = "stream",
        /// A case that may be there already is opened.
        OpenRace = "open-race",
        /// A client goes to another process than the one that has the case in memory.
        Switch = "switch",
    }
}

named! {
    /// A rule of the store that can be broken on purpose: these live in the model store, not in the product.
    StoreBug {
        /// The version is not compared.
        NoCompareAndSwap = "no-compare-and-swap",
        /// The columns of a case come from a later snapshot than its assignments and ids.
        TornLoad = "torn-load",
        /// A tombstone moves to another table, so that its id is not found any more.
        TombstoneElsewhere = "tombstone-elsewhere",
        /// Outbox rows are written in a transaction of their own, after the answer.
        OutboxApart = "outbox-apart",
        /// After a deadlock the last statement alone runs again.
        RetryOfLastStatement = "retry-of-last-statement",
        /// The batch does not test its writer's epoch.
        EpochNotTested = "epoch-not-tested",
        /// Rows of the answer are taken for the commit, which can still fail.
        AnswerBeforeCommit = "answer-before-commit",
        /// A process that starts does not fence what its earlier self left behind.
        RestartWithoutFence = "restart-without-fence",
    }
}

/// A planted bug.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// In `src/engine`, behind the feature `planted-bugs`.
    Engine(PlantedBug),
    /// In the model store.
    Store(StoreBug),
}

/// Every bug with its name and the number of seeds within which it must be caught.
pub const BUGS: &[(&str, Bug, u64)] = &[
    ("no-compare-and-swap", Bug::Store(StoreBug::NoCompareAndSwap), 20),
    ("unclear-without-fence", Bug::Engine(PlantedBug::UnclearWithoutFence), 500),
    ("forgotten-while-unclear", Bug::Engine(PlantedBug::ForgottenWhileUnclear), 20),
    ("chain-cut", Bug::Engine(PlantedBug::ChainCut), 100),
    ("busy-case-evicted", Bug::Engine(PlantedBug::BusyCaseEvicted), 20),
    ("torn-load", Bug::Store(StoreBug::TornLoad), 100),
    ("tombstone-elsewhere", Bug::Store(StoreBug::TombstoneElsewhere), 50),
    ("acknowledged-before-commit", Bug::Engine(PlantedBug::AcknowledgedBeforeCommit), 20),
    ("digest-not-compared", Bug::Engine(PlantedBug::DigestNotCompared), 20),
    ("assignment-from-memory-only", Bug::Engine(PlantedBug::AssignmentFromMemoryOnly), 50),
    ("rejection-without-check", Bug::Engine(PlantedBug::RejectionWithoutCheck), 20),
    ("outbox-apart", Bug::Store(StoreBug::OutboxApart), 20),
    ("duplicate-from-speculation", Bug::Engine(PlantedBug::DuplicateFromSpeculation), 50),
    ("memory-kept-after-miss", Bug::Engine(PlantedBug::MemoryKeptAfterMiss), 20),
    ("two-chains-in-flight", Bug::Engine(PlantedBug::TwoChainsInFlight), 50),
    ("retry-of-last-statement", Bug::Store(StoreBug::RetryOfLastStatement), 20),
    ("retried-without-deciding", Bug::Engine(PlantedBug::RetriedWithoutDeciding), 20),
    ("look-up-after-revision", Bug::Engine(PlantedBug::LookUpAfterRevision), 20),
    ("old-read-taken", Bug::Engine(PlantedBug::OldReadTaken), 300),
    ("absence-from-earlier-read", Bug::Engine(PlantedBug::AbsenceFromEarlierRead), 800),
    ("halves-share-a-fate", Bug::Engine(PlantedBug::HalvesShareAFate), 500),
    ("epoch-not-tested", Bug::Store(StoreBug::EpochNotTested), 100),
    ("restart-without-fence", Bug::Store(StoreBug::RestartWithoutFence), 50),
    ("answer-before-commit", Bug::Store(StoreBug::AnswerBeforeCommit), 50),
    ("wake-up-lost", Bug::Engine(PlantedBug::WakeUpLost), 1_000),
    ("look-up-forgotten", Bug::Engine(PlantedBug::LookUpForgotten), 100),
    ("broken-lane-answered", Bug::Engine(PlantedBug::BrokenLaneAnswered), 200),
    ("line-answered-ahead", Bug::Engine(PlantedBug::LineAnsweredAhead), 200),
    ("fence-taken-for-both", Bug::Engine(PlantedBug::FenceTakenForBoth), 200),
    ("rejection-decided-again", Bug::Engine(PlantedBug::RejectionDecidedAgain), 500),
];

/// The bug of this name.
pub fn bug_named(name: &str) -> Option<Bug> {
    BUGS.iter().find(|(known, ..)| *known == name).map(|(_, bug, _)| *bug)
}

/// One simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Everything that happens follows from it and the rest.
    pub seed: u64,
    /// Events until the trouble ends and all must settle.
    pub steps: usize,
    /// Clients at work.
    pub clients: usize,
    /// Kinds of trouble that are switched off.
    pub without: BTreeSet<Kind>,
    /// The planted bug.
    pub bug: Option<Bug>,
    /// Whether the history is kept.
    pub traced: bool,
}

impl Options {
    /// The usual length and all kinds of trouble.
    pub fn new(seed: u64) -> Self {
        Self { seed, steps: 2_000, clients: 6, without: BTreeSet::new(), bug: None, traced: false }
    }

    /// Whether this bug of the store is planted.
    pub fn has(&self, bug: StoreBug) -> bool {
        self.bug == Some(Bug::Store(bug))
    }

    /// The command that runs this simulation again.
    pub fn command(&self) -> String {
        let mut command = format!(
            "cargo run --release --features planted-bugs --example simulate -- --seed {} --steps {} --clients {}",
            self.seed, self.steps, self.clients
        );
        if let Some((name, ..)) = BUGS.iter().find(|(_, bug, _)| Some(*bug) == self.bug) {
            command.push_str(&format!(" --bug {name}"));
        }
        if !self.without.is_empty() {
            let names: Vec<_> = self.without.iter().map(|kind| kind.name()).collect();
            command.push_str(&format!(" --without {}", names.join(",")));
        }
        command
    }
}
