//! Acknowledged means durable, in the order of the system calls: no acknowledgement is written to a client before the
//! disk has been forced (SQLite) or PostgreSQL has said that it is done.
//!
//! `strace` shows what the server really asks of the system. For SQLite: after a request was read, the log is written, and
//! a `fdatasync` (or `fsync`) of it begins and ends before the acknowledgement is written. For PostgreSQL: the operation is sent, and the
//! end of that exchange (ReadyForQuery) is read before the acknowledgement is written. A check that can't fail shows nothing:
//! with calls that force the disk made to do nothing, as with `synchronous=OFF`, and with acknowledgements that were
//! written as soon as the operation had been sent, the same check fails.

use std::collections::HashMap;

use crate::support::database::{TestDatabase, block_on};
use crate::support::scene::{Sender, SentCommand, make_ready};
use crate::support::server::ServerProcess;
use crate::support::strace::Strace;
use crate::syscalls::{Syscall, parse};

/// Commands that are acknowledged under the eye of `strace`.
const COMMANDS: usize = 1_000;
const CLIENTS: usize = 8;

const CALLS: &str = "trace=fsync,fdatasync,pwrite64,read,recvfrom,recvmsg,write,writev,sendto,sendmsg";
/// ReadyForQuery, outside of a transaction: the end of an exchange.
const READY: &str = r"Z\0\0\0\5I";

/// Sends commands to a server that is being traced; returns the trace.
fn traced_run(database: &TestDatabase, strace_arguments: &[&str]) -> String {
    let token = make_ready(database);
    let server = ServerProcess::start(database.url());
    let sender = Sender::new(server.url(), &token);
    let cases: Vec<_> = (0..CLIENTS).map(|number| format!("case-{number}")).collect();
    block_on(async {
        sender.open_cases(&cases).await;
        // Whole buffers: an operation id may stand anywhere in them.
        let arguments = [&["-yy", "-s", "70000", "-e", CALLS], strace_arguments].concat();
        let strace = tokio::task::block_in_place(|| Strace::attach(server.pid(), &arguments));
        let clients: Vec<_> = cases
            .into_iter()
            .map(|case_id| {
                let sender = sender.clone();
                tokio::spawn(async move {
                    for _ in 0..COMMANDS.div_ceil(CLIENTS) {
                        let _ = sender.send(&SentCommand::note(&case_id, "under strace")).await.expect_status(200);
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        strace.detach()
    })
}

/// An acknowledgement on its way out.
struct Acknowledgement<'a> {
    operation_id: &'a str,
    /// When the last of the request had been read.
    request_read: usize,
    /// When writing the answer began.
    written: usize,
}

fn is_read(call: &Syscall) -> bool {
    matches!(call.name.as_str(), "read" | "recvfrom" | "recvmsg")
}

fn is_write(call: &Syscall) -> bool {
    matches!(call.name.as_str(), "write" | "writev" | "sendto" | "sendmsg")
}

/// All first answers with an outcome, each with the request that it belongs to: the last one read from its connection.
fn acknowledgements(calls: &[Syscall]) -> Vec<Acknowledgement<'_>> {
    let mut requests = HashMap::new();
    let mut found = Vec::new();
    for call in calls {
        if is_read(call) && call.result > Some(0) {
            requests.insert(call.descriptor, call.ended);
        } else if is_write(call)
            && call.arguments.contains("HTTP/1.1 200")
            && !call.arguments.contains("idempotent-replay")
        {
            let (_, rest) =
                call.arguments.split_once(r#"\"operation_id\":\""#).expect("an outcome names its operation");
            let request_read = *requests.get(&call.descriptor).expect("an answer has a request");
            found.push(Acknowledgement { operation_id: &rest[..36], request_read, written: call.began });
        }
    }
    found
}

/// Calls that force SQLite's log to disk; which of the two it makes is settled when it is built.
fn forces_of_log(calls: &[Syscall]) -> impl Iterator<Item = &Syscall> {
    calls.iter().filter(|call| matches!(call.name.as_str(), "fdatasync" | "fsync") && call.on.ends_with("-wal"))
}

/// Operations that were acknowledged before the log was written and forced.
fn not_forced<'a>(calls: &[Syscall], acknowledged: &[Acknowledgement<'a>]) -> Vec<&'a str> {
    let forced: Vec<_> = forces_of_log(calls).filter(|call| call.result == Some(0) && !call.is_injected).collect();
    let written = calls.iter().filter(|call| call.name == "pwrite64" && call.on.ends_with("-wal"));
    let written: Vec<_> = written.collect();
    let is_durable = |acknowledged: &&Acknowledgement<'_>| {
        forced.iter().any(|force| {
            force.ended < acknowledged.written
                && written.iter().any(|write| write.began > acknowledged.request_read && write.ended < force.began)
        })
    };
    acknowledged.iter().filter(|one| !is_durable(one)).map(|one| one.operation_id).collect()
}

/// Reads with which the end of an exchange was there. It may come in two pieces.
fn ends_of_exchanges(calls: &[Syscall]) -> Vec<&Syscall> {
    let mut unread: HashMap<i64, String> = HashMap::new();
    let mut ends = Vec::new();
    for call in calls.iter().filter(|call| is_read(call) && call.result > Some(0)) {
        let Some((_, text)) = call.arguments.split_once('"') else { continue };
        let text = text.rsplit_once('"').map_or(text, |(text, _)| text);
        let unread = unread.entry(call.descriptor).or_default();
        unread.push_str(text);
        if let Some(at) = unread.rfind(READY) {
            ends.push(call);
            unread.drain(..at + READY.len());
        }
        // Only the beginning of a next end is of interest.
        let keep = unread.len().saturating_sub(READY.len());
        if unread.is_char_boundary(keep) {
            unread.drain(..keep);
        }
    }
    ends
}

/// The send in which the outcome of an operation went to PostgreSQL.
fn send_of<'a>(calls: &'a [Syscall], one: &Acknowledgement<'_>) -> Option<&'a Syscall> {
    // In order of their ends, so that the ones before the request are passed over at once.
    let first = calls.partition_point(|call| call.ended < one.request_read);
    let mut later = calls[first..].iter().filter(|call| is_write(call) && !call.arguments.contains("HTTP/1.1"));
    later.find(|send| send.arguments.contains(one.operation_id))
}

/// Operations that were acknowledged before PostgreSQL had said that it is done with them.
fn not_confirmed<'a>(calls: &[Syscall], acknowledged: &[Acknowledgement<'a>]) -> Vec<&'a str> {
    let ends = ends_of_exchanges(calls);
    let is_confirmed = |one: &&Acknowledgement<'_>| {
        send_of(calls, one).is_some_and(|sent| {
            let is_its_end = |end: &&&Syscall| end.descriptor == sent.descriptor && end.began > sent.began;
            ends.iter().find(is_its_end).is_some_and(|end| end.ended < one.written)
        })
    };
    acknowledged.iter().filter(|one| !is_confirmed(one)).map(|one| one.operation_id).collect()
}

/// A trace that shows something wrong is kept, for who has to find out why.
fn keep_if_wrong(trace: &str, wrong: &[&str]) {
    if !wrong.is_empty() {
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("durability-order.trace");
        std::fs::write(&path, trace).unwrap();
        eprintln!("the trace is in {}", path.display());
    }
}

mod heavy {
    use super::*;

    #[test]
    fn sqlite_is_forced_to_disk_before_each_acknowledgement() {
        let trace = traced_run(&TestDatabase::sqlite(), &[]);
        let calls = parse(&trace);
        let acknowledged = acknowledgements(&calls);
        assert!(acknowledged.len() >= COMMANDS, "{} of {COMMANDS} acknowledgements seen", acknowledged.len());
        keep_if_wrong(&trace, &not_forced(&calls, &acknowledged));
        let forced = forces_of_log(&calls).count();
        eprintln!("{} acknowledgements, and {forced} times the log was forced to disk", acknowledged.len());
        assert_eq!(not_forced(&calls, &acknowledged), Vec::<&str>::new());
    }

    /// `fdatasync` and `fsync` are not carried out and claim success: what `synchronous=OFF` makes of them.
    #[test]
    fn sqlite_that_is_not_forced_to_disk_is_found_out() {
        let trace = traced_run(&TestDatabase::sqlite(), &["-e", "inject=fsync,fdatasync:retval=0"]);
        let calls = parse(&trace);
        let acknowledged = acknowledgements(&calls);
        assert!(acknowledged.len() >= COMMANDS, "{} of {COMMANDS} acknowledgements seen", acknowledged.len());
        assert_eq!(not_forced(&calls, &acknowledged).len(), acknowledged.len(), "nothing was ever forced");
        assert!(calls.iter().any(|call| call.is_injected), "the calls were made");
    }

    #[test]
    fn postgresql_has_confirmed_before_each_acknowledgement() {
        let trace = traced_run(&TestDatabase::postgres(), &[]);
        let calls = parse(&trace);
        let mut acknowledged = acknowledgements(&calls);
        assert!(acknowledged.len() >= COMMANDS, "{} of {COMMANDS} acknowledgements seen", acknowledged.len());
        let wrong = not_confirmed(&calls, &acknowledged);
        keep_if_wrong(&trace, &wrong);
        eprintln!("{} acknowledgements, {} exchanges", acknowledged.len(), ends_of_exchanges(&calls).len());
        assert_eq!(wrong, Vec::<&str>::new());

        // The same, had the server answered as soon as it had sent.
        for one in &mut acknowledged {
            one.written = send_of(&calls, one).expect("it was confirmed").ended + 1;
        }
        assert_eq!(not_confirmed(&calls, &acknowledged).len(), acknowledged.len(), "the check finds each of them");
    }
}

#[test]
fn the_end_of_an_exchange_is_found_in_two_pieces() {
    let trace = r#"7 recvfrom(16<TCP:[a->b]>, "C\0\0\0\rSELECT 3\0Z", 128, 0, NULL, NULL) = 128
7 recvfrom(21<TCP:[a->c]>, "\0\0\0\5I", 8191, 0, NULL, NULL) = 5
7 recvfrom(16<TCP:[a->b]>, "\0\0\0\5I", 8191, 0, NULL, NULL) = 5
7 recvfrom(16<TCP:[a->b]>, "2Z\0\0\0\5I", 8191, 0, NULL, NULL) = 7
7 recvfrom(16<TCP:[a->b]>, "2", 8191, 0, NULL, NULL) = 1"#;
    let calls = parse(trace);
    assert_eq!(ends_of_exchanges(&calls).iter().map(|end| end.ended).collect::<Vec<_>>(), [2, 3]);
}
