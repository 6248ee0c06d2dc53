//! Operating-system things that several helpers need: who we are, signals, finding a program.
//!
//! Signals go through the shell's `kill`, because the crate forbids `unsafe` and needs no libc for it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// User id of this process.
#[must_use]
pub fn own_uid() -> u32 {
    std::fs::metadata("/proc/self").expect("Linux shows each process its own /proc/self").uid()
}

/// User and group id of a user by name, from `/etc/passwd`.
#[must_use]
pub fn ids_of_user(name: &str) -> Option<(u32, u32)> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some((uid, gid))
    })
}

/// Sends a signal, named as `kill` names it (`"TERM"`, `"KILL"`, `"STOP"`). True if the process was there.
pub fn send_signal(signal: &str, pid: u32) -> bool {
    Command::new("sh")
        .args(["-c", r#"kill -s "$1" "$2""#, "kill", signal])
        .arg(pid.to_string())
        .stderr(Stdio::null())
        .status()
        .expect("every system with tests has sh")
        .success()
}

/// First folder of `PATH` that holds `program`.
#[must_use]
pub fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

/// The folder of the crate, whatever the current folder is.
#[must_use]
pub fn crate_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Lets this process, and those that it starts, have so many open files.
///
/// # Panics
/// When the system does not allow it.
#[track_caller]
pub fn allow_files(count: usize) {
    let limit = |soft: usize| {
        let status = Command::new("prlimit")
            .args(["--pid", &std::process::id().to_string(), &format!("--nofile={soft}:")])
            .status();
        status.is_ok_and(|status| status.success())
    };
    assert!(limit(count), "user {} may not open {count} files: raise `ulimit -Hn`", own_uid());
}
