//! The rules that the tidy test keeps, as data: layers, bounds, banned words, and each exception with its reason.

/// The layers from left to right; those of one step stand side by side and do not know each other.
pub const LAYERS: &[&[&str]] = &[
    &["domain"],
    &["engine"],
    &["store"],
    &["outbox", "lock", "idempotency", "cluster", "metrics"],
    &["actor"],
    &["command_log"],
    &["history"],
    &["load"],
    &["http"],
    &["guard"],
    &["cli"],
];

/// Modules that serve all layers but [`PURE`] ones. Of the layers they know `domain` alone.
pub const SERVING_ALL: &[&str] = &["config", "clock", "telemetry"];

/// Layers that take time and settings as arguments, so that they can be tested without a world.
const PURE: &[&str] = &["domain", "engine"];

/// Place of a module among the layers; `None` for one that is no layer.
pub fn rank(module: &str) -> Option<usize> {
    LAYERS.iter().position(|step| step.contains(&module))
}

/// Whether the layer `own` may use `crate::used`.
pub fn may_use(own: &str, used: &str) -> bool {
    if own == used {
        return true;
    }
    if SERVING_ALL.contains(&used) {
        return !PURE.contains(&own);
    }
    if SERVING_ALL.contains(&own) {
        return rank(used).is_none_or(|used| used == 0);
    }
    match (rank(own), rank(used)) {
        (Some(own), Some(used)) => used < own,
        // A macro or an item of the crate's root, which every layer sees.
        _ => true,
    }
}

/// Most lines of a file, its tests included.
pub const LINES_MAX: usize = 400;

/// Most lines of a file in [`LONG_FILES`].
pub const LINES_MAX_EXCUSED: usize = 500;

/// Files that may be longer than [`LINES_MAX`], each with its reason.
pub const LONG_FILES: &[(&str, &str)] = &[];

/// A call or word that stays out of `src`.
pub struct BannedCall {
    /// As it stands in code; see `source::has_token`.
    pub token: &'static str,
    /// What to do instead.
    pub instead: &'static str,
    /// Whether code under `#[cfg(test)]` may use it.
    pub allowed_in_tests: bool,
    /// Starts of paths where it is right, each with its reason.
    pub allowed: &'static [(&'static str, &'static str)],
}

/// Places that talk to a person on a terminal.
const TERMINAL: &[(&str, &str)] = &[
    ("src/cli/", "the command line prints: data on standard output, messages on standard error"),
    ("src/main.rs", "the last error of the program is a sentence on standard error"),
];

const TO_THE_LOG: &str = "return it, or log it with `tracing`; only the command line prints";

/// Calls that stay out of `src`.
pub const BANNED_CALLS: &[BannedCall] = &[
    BannedCall {
        token: ".unwrap()",
        instead: "use `expect(\"why it holds\")` for what can't happen, an error for what can",
        allowed_in_tests: true,
        allowed: &[],
    },
    BannedCall {
        token: "unsafe",
        instead: "the crate has none; a well-kept library does it behind a safe interface",
        allowed_in_tests: false,
        allowed: &[],
    },
    BannedCall {
        token: "todo!",
        instead: "build it, or leave it out; nothing half-made is on main",
        allowed_in_tests: false,
        allowed: &[],
    },
    BannedCall {
        token: "unimplemented!",
        instead: "build it, or leave it out; nothing half-made is on main",
        allowed_in_tests: false,
        allowed: &[],
    },
    BannedCall {
        token: "dbg!",
        instead: "log it with `tracing`, or take it out",
        allowed_in_tests: false,
        allowed: &[],
    },
    BannedCall {
        token: "thread::sleep",
        instead: "wait for a signal or with the runtime's timer; a blocked thread is one actor thread less",
        allowed_in_tests: true,
        allowed: &[(
            "src/store/sqlite/connect.rs",
            "a database thread of its own, which SQLite itself would let wait as well",
        )],
    },
    BannedCall { token: "println!", instead: TO_THE_LOG, allowed_in_tests: true, allowed: TERMINAL },
    BannedCall { token: "print!", instead: TO_THE_LOG, allowed_in_tests: true, allowed: TERMINAL },
    BannedCall { token: "eprintln!", instead: TO_THE_LOG, allowed_in_tests: true, allowed: TERMINAL },
    BannedCall { token: "eprint!", instead: TO_THE_LOG, allowed_in_tests: true, allowed: TERMINAL },
];

const NO_MACHINE_PATH: &str = "a path of one machine: say it relative to the project, or take it as an argument";
const NO_REGISTRY: &str = "a registry's host: name the package; its client knows the host";
const NOT_ON_MAIN: &str = "do it now, or open an issue; a note in the code is read by nobody";

/// Words that stand in no file of the project (in parts here, so that this file holds none of them).
pub const BANNED_EVERYWHERE: &[(&[&str], &str)] = &[
    (&["/wo", "rk/"], NO_MACHINE_PATH),
    (&["/ro", "ot/"], NO_MACHINE_PATH),
    (&["crates", ".io"], NO_REGISTRY),
    (&["pypi", ".org"], NO_REGISTRY),
    (&["npmjs", ".org"], NO_REGISTRY),
    (&["npmjs", ".com"], NO_REGISTRY),
    (&["deb.debian", ".org"], NO_REGISTRY),
    (&["proxy.golang", ".org"], NO_REGISTRY),
    (&["TO", "DO"], NOT_ON_MAIN),
    (&["FIX", "ME"], NOT_ON_MAIN),
];
