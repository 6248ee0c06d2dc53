//! Recorded command logs that lie beside the project, for tests and measurements only.
//!
//! They are looked for in the folder `CASEWORK_SHARED`, else in `../shared`. A checkout without them is a
//! normal thing: then [`recorded_log`] says `NOT RUN` (see [`say_not_run`]),
//! and the test returns. `./ci/test` says it again at its end.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::not_run::say_not_run;
use super::process::crate_root;

/// The files of one recorded log; each is there when the value exists.
#[derive(Debug, Clone)]
pub struct RecordedLog {
    /// The commands in time order: every line applies.
    pub commands: PathBuf,
    /// The workflow that the commands need.
    pub workflow: PathBuf,
    /// Table with header of case, revision, status and how many are assigned, after the log.
    pub final_table: PathBuf,
    /// The same commands with repeats, reused ids, stale revisions and strangers among them.
    pub storm: PathBuf,
    /// Table with header: what must come of each line of the storm.
    pub storm_expected: PathBuf,
}

/// The recorded log `name` (`"receipt"`, `"domestic"`), or `None` after saying so loudly.
///
/// # Panics
/// When the folder is there but incomplete: that is a fault, not a choice.
#[must_use]
#[track_caller]
pub fn recorded_log(name: &str) -> Option<RecordedLog> {
    let folder = shared_folder().join("data");
    if !folder.is_dir() {
        let folder = folder.display();
        say_not_run(format_args!("needs the recorded log {name:?}; there is no folder {folder} (set CASEWORK_SHARED)"));
        return None;
    }
    let file = |suffix: &str| {
        let path = folder.join(format!("{name}.{suffix}"));
        assert!(path.is_file(), "{} is missing", path.display());
        path
    };
    Some(RecordedLog {
        commands: file("commands.jsonl.gz"),
        workflow: file("workflow.toml"),
        final_table: file("final.tsv.gz"),
        storm: file("storm.jsonl.gz"),
        storm_expected: file("storm.expected.tsv.gz"),
    })
}

/// Where recorded logs and the SQL of the peers to measure against are looked for; it need not exist.
#[must_use]
pub fn shared_folder() -> PathBuf {
    let folder = std::env::var_os("CASEWORK_SHARED").map_or("../shared".into(), PathBuf::from);
    crate_root().join(folder)
}

/// All lines of a gzipped text file.
///
/// # Panics
/// When it can't be read.
#[must_use]
#[track_caller]
pub fn gzipped_lines(path: &Path) -> Vec<String> {
    let file = std::fs::File::open(path).unwrap_or_else(|error| panic!("{} can't be opened: {error}", path.display()));
    BufReader::new(MultiGzDecoder::new(file))
        .lines()
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| panic!("{} can't be read: {error}", path.display()))
}
