//! Commits of which the server can't know whether they happened, made for real under load, both halves proved.
//!
//! Each outcome travels in the commit's parameters with the time of its decision. So the rows say afterwards whether this
//! very send took effect: a command that was decided again has another outcome. Not committed: the connection is cut, or
//! its backend ended, after everything was sent but the message that commits. Committed: PostgreSQL has ended the
//! exchange (or waits for a standby after its commit), and the connection is cut or the backend ended before the server hears of it.

use std::sync::{Arc, Mutex};

use crate::support::database::TestDatabase;
use crate::support::postgres_messages::FrontendMessage;

/// What is in every batch that writes.
const COMMIT: &str = "INSERT INTO operations";
/// How every outcome begins.
const OUTCOME: &[u8] = br#"{"case_id":"#;

/// The outcomes in the commit that was caught.
#[derive(Clone, Default)]
struct Caught(Arc<Mutex<Vec<String>>>);

impl Caught {
    /// Matches the message of type `kind` of the next commit that writes something, and remembers its outcomes.
    fn matcher(&self, kind: u8) -> impl Fn(&FrontendMessage) -> bool + Send + use<> {
        let caught = self.clone();
        move |message| {
            if !message.is(kind, COMMIT) {
                return false;
            }
            let outcomes = outcomes_in(&message.parameters);
            let writes = !outcomes.is_empty();
            *caught.0.lock().unwrap() = outcomes;
            writes
        }
    }

    /// Matches nothing, and remembers the outcomes of all commits from now on.
    fn spy(&self) -> impl Fn(&FrontendMessage) -> bool + Send + use<> {
        let caught = self.clone();
        move |message| {
            if message.is(b'S', COMMIT) {
                caught.0.lock().unwrap().extend(outcomes_in(&message.parameters));
            }
            false
        }
    }

    /// How many there are, and how many of them are in the database.
    fn recorded(&self, database: &TestDatabase) -> (usize, usize) {
        let outcomes = self.0.lock().unwrap();
        let list: Vec<_> = outcomes.iter().map(|outcome| format!("'{}'", outcome.replace('\'', "''"))).collect();
        let sql = format!("SELECT count(*) FROM operations WHERE outcome IN ({})", list.join(","));
        (outcomes.len(), database.sql_value(&sql).parse().unwrap())
    }
}

/// The elements of a text array (each behind its length) that are outcomes.
fn outcomes_in(parameters: &[u8]) -> Vec<String> {
    let starts = (4..parameters.len()).filter(|start| parameters[*start..].starts_with(OUTCOME));
    let element = |start: usize| {
        let length = u32::from_be_bytes(parameters[start - 4..start].try_into().expect("four bytes"));
        String::from_utf8(parameters[start..start + length as usize].to_vec()).expect("PostgreSQL is sent UTF-8")
    };
    starts.map(element).collect()
}

mod heavy {
    use std::time::Instant;

    use super::Caught;
    use crate::rig::{Rig, RigOptions, SOON};
    use crate::size;
    use crate::support::database::TestDatabase;
    use crate::support::postgres::PrivateServer;
    use crate::support::tcp_proxy::Hold;
    use crate::support::wait::{eventually, eventually_some};

    const KINDS: [&str; 5] =
        ["cut-before-commit", "cut-after-commit", "cut-in-reply", "terminate-before-commit", "terminate-after-commit"];

    #[test]
    fn unknown_commits_of_both_halves_are_settled() {
        let postgres = PrivateServer::start();
        let database = TestDatabase::Postgres(postgres.database());
        let mut rig = Rig::start(&database, RigOptions::new("unknown-commits", 2).proxied());
        let rounds = size::rounds(1);
        let mut proved = [0, 0];
        for _ in 0..rounds {
            for kind in KINDS {
                rig.load(100);
                let node = rig.dice.below(2);
                let fences_before = fences(&rig);
                let (end, took_effect) = match kind {
                    "cut-before-commit" => (cut_before_commit(&rig, node), false),
                    "cut-after-commit" => (cut_after_commit(&rig, node, None), true),
                    "cut-in-reply" => (cut_after_commit(&rig, node, Some(b'Z')), true),
                    "terminate-before-commit" => (terminate_before_commit(&rig, node), false),
                    _ => (terminate_after_commit(&rig, &postgres), true),
                };
                rig.fired(kind, &format!("process {node}, took effect: {took_effect}"));
                rig.recovered(kind, end);
                let raised = fences(&rig) - fences_before;
                assert!(raised > 0, "an unknown commit is settled by the fence, not by a read alone ({kind})");
                rig.fired("fence", kind);
                proved[usize::from(took_effect)] += 1;
            }
        }
        rig.fact(format!("unknown commits: {} had not taken effect, {} had", proved[0], proved[1]));
        let kinds = KINDS.map(|kind| (kind, rounds));
        rig.finish(size::commands(4_000), &[&kinds[..], &[("fence", rounds * KINDS.len() as u64)]].concat());
    }

    /// How often the fence of any writer was raised.
    fn fences(rig: &Rig<'_>) -> i64 {
        rig.database.sql_value("SELECT coalesce(sum(epoch - 1), 0) FROM writers").parse().unwrap()
    }

    fn cut_before_commit(rig: &Rig<'_>, node: usize) -> Instant {
        let caught = Caught::default();
        let hold = rig.proxy(node).hold_next(caught.matcher(b'S'));
        hold.wait_held(SOON);
        hold.cut();
        let end = Instant::now();
        assert_never_committed(rig, &caught);
        assert_eq!(hold.answer().ready, 0, "PostgreSQL never had the message that commits");
        end
    }

    /// The answer of PostgreSQL is lost, all of it or from its message `kind` on.
    fn cut_after_commit(rig: &Rig<'_>, node: usize, kind: Option<u8>) -> Instant {
        // A batch in which every case missed writes nothing: the next one then.
        loop {
            let caught = Caught::default();
            let proxy = rig.proxy(node);
            let hold = match kind {
                None => proxy.hold_answer_to_next(caught.matcher(b'S')),
                Some(kind) => proxy.hold_answer_from(kind, caught.matcher(b'E')),
            };
            hold.wait_held(SOON);
            assert_eq!(hold.wait_answered(SOON).error_codes, Vec::<String>::new());
            let (_, recorded) = caught.recorded(rig.database);
            hold.cut();
            if recorded > 0 {
                return Instant::now();
            }
        }
    }

    /// The backend is ended by name while it waits for the message that commits.
    fn terminate_before_commit(rig: &Rig<'_>, node: usize) -> Instant {
        let caught = Caught::default();
        let hold = rig.proxy(node).hold_next(caught.matcher(b'S'));
        hold.wait_held(SOON);
        let waiting = format!(
            "SELECT pid FROM pg_stat_activity WHERE client_port = {} AND state = 'active' AND wait_event = 'ClientRead'",
            hold.port_at_server()
        );
        let pid = eventually_some(SOON, "the backend waits for its client", || {
            rig.database.sql(&waiting).first().map(|row| row[0].clone())
        });
        let ended = rig.database.sql_value(&format!("SELECT pg_terminate_backend({pid}, 10000)"));
        assert_eq!(ended, "t", "the backend is gone");
        let end = Instant::now();
        assert_never_committed(rig, &caught);
        hold.release();
        end
    }

    /// Backends have committed, wait for a standby that does not exist, and are ended there. Nobody sees their rows before.
    fn terminate_after_commit(rig: &Rig<'_>, postgres: &PrivateServer) -> Instant {
        let reports = || postgres.log().matches("already committed locally").count();
        let before = reports();
        let caught = Caught::default();
        let spies = [0, 1].map(|node| rig.proxy(node).hold_next(caught.spy()));
        postgres.sql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
        postgres.sql("SELECT pg_reload_conf()");
        let waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep' \
                       AND application_name LIKE 'casework-writer-%'";
        let pids = eventually_some(SOON, "a writer waits for the standby", || {
            let pids: Vec<_> = rig.database.sql(waiting).into_iter().flatten().collect();
            (!pids.is_empty()).then_some(pids)
        });
        // They see no more: what was sent later is not waited for.
        spies.iter().for_each(Hold::release);
        let (_, seen_before) = caught.recorded(rig.database);
        for pid in pids {
            assert_eq!(rig.database.sql_value(&format!("SELECT pg_terminate_backend({pid}, 10000)")), "t");
        }
        let (_, seen_after) = caught.recorded(rig.database);
        postgres.sql("ALTER SYSTEM RESET synchronous_standby_names");
        postgres.sql("SELECT pg_reload_conf()");
        let end = Instant::now();
        eventually(SOON, "PostgreSQL has logged what it did", || reports() > before);
        assert!(
            seen_after > seen_before,
            "what was committed before its backend ended is there: {seen_before}, {seen_after}"
        );
        end
    }

    fn assert_never_committed(rig: &Rig<'_>, caught: &Caught) {
        // The load goes on over it: whatever could still happen has happened.
        rig.load(50);
        let (sent, recorded) = caught.recorded(rig.database);
        assert!(
            sent > 0 && recorded == 0,
            "{recorded} of {sent} outcomes of a batch that was never committed are there"
        );
    }
}
