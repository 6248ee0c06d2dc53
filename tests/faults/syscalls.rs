//! Reads what `strace -f -yy` wrote: which call began when, ended when, on what, and with which result.
//!
//! Time is the number of the line: `strace` writes one line for a call during which nothing else happened, and two (`unfinished`,
//! `resumed`) for any other. Lines that are no calls (signals, exits) are left out.

use std::collections::HashMap;

/// One system call.
#[derive(Debug, Clone)]
pub struct Syscall {
    /// `fdatasync`, `recvfrom`, ...
    pub name: String,
    /// The number of the descriptor that is its first argument; -1 where that is none.
    pub descriptor: i64,
    /// What its first argument, a descriptor, stands for: a path, or `TCP:[...]`.
    pub on: String,
    /// Its arguments, as `strace` shows them.
    pub arguments: String,
    /// What it returned; `None` when it failed or never ended.
    pub result: Option<i64>,
    /// `strace` did something else in its place.
    pub is_injected: bool,
    /// The line at which it began.
    pub began: usize,
    /// The line at which it ended.
    pub ended: usize,
}

/// All calls that ended, in the order in which they ended.
pub fn parse(trace: &str) -> Vec<Syscall> {
    let mut open: HashMap<&str, (usize, String)> = HashMap::new();
    let mut calls = Vec::new();
    for (number, line) in trace.lines().enumerate() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some(begin) = rest.strip_suffix("<unfinished ...>") {
            open.insert(thread, (number, begin.to_owned()));
        } else if rest.starts_with("<... ") {
            let (Some((began, begin)), Some((_, end))) = (open.remove(thread), rest.split_once(" resumed>")) else {
                continue;
            };
            calls.extend(call(&(begin + end), began, number));
        } else {
            calls.extend(call(rest, number, number));
        }
    }
    calls
}

fn call(text: &str, began: usize, ended: usize) -> Option<Syscall> {
    let (name, rest) = text.split_once('(')?;
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    // The last one: an argument may hold any text.
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let first = arguments.split(", ").next()?;
    let on = first.split_once('<').map_or("", |(_, on)| on.trim_end_matches([')', ' ']).trim_end_matches('>'));
    Some(Syscall {
        name: name.to_owned(),
        descriptor: first.split('<').next()?.trim_end_matches([')', ' ']).parse().unwrap_or(-1),
        on: on.to_owned(),
        arguments: arguments.to_owned(),
        result: result.split(' ').next()?.parse().ok().filter(|result| *result >= 0),
        is_injected: result.contains("INJECTED"),
        began,
        ended,
    })
}

#[test]
fn calls_are_read_with_their_begin_and_their_end() {
    let trace = "9 recvfrom(36<TCP:[127.0.0.1:80->127.0.0.1:98]>,  <unfinished ...>\n\
                 9 <... recvfrom resumed>\"POST\", 8192, 0, NULL, NULL) = 4\n\
                 7 fdatasync(12</tmp/a b.db-wal> <unfinished ...>\n\
                 8 recvfrom(20<TCP:[127.0.0.1:80->127.0.0.1:99]>, \"POST x = 3\", 8192, 0, NULL, NULL) = 10\n\
                 7 <... fdatasync resumed>) = 0\n\
                 8 --- SIGCHLD {si_signo=SIGCHLD} ---\n\
                 8 fdatasync(12</tmp/a b.db-wal>) = 0 (INJECTED)\n\
                 8 read(3</x>, 0x7f, 10) = -1 EAGAIN (Resource temporarily unavailable)\n\
                 9 +++ exited with 0 +++\n";
    let calls = parse(trace);
    let seen: Vec<_> = calls.iter().map(|c| (c.name.as_str(), c.on.as_str(), c.result, c.began, c.ended)).collect();
    assert_eq!(
        seen,
        [
            ("recvfrom", "TCP:[127.0.0.1:80->127.0.0.1:98]", Some(4), 0, 1),
            ("recvfrom", "TCP:[127.0.0.1:80->127.0.0.1:99]", Some(10), 3, 3),
            ("fdatasync", "/tmp/a b.db-wal", Some(0), 2, 4),
            ("fdatasync", "/tmp/a b.db-wal", Some(0), 6, 6),
            ("read", "/x", None, 7, 7),
        ]
    );
    assert!(calls[3].is_injected && !calls[2].is_injected);
}
