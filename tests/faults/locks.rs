//! Locks that a person holds, and errors that PostgreSQL may answer to anybody: deadlock, serialization failure.

mod heavy {
    use std::time::{Duration, Instant};

    use crate::rig::{Rig, RigOptions, SOON};
    use crate::size;
    use crate::support::database::TestDatabase;
    use crate::support::wait::eventually;

    /// Errors that are raised in a row: more than one batch tries again, fewer than a chain gives up after.
    const RAISED: u64 = 12;

    const LOCKS: [(&str, &str); 3] = [
        ("lock-cases", "SELECT 1 FROM cases WHERE case_id < 'case/06' FOR UPDATE"),
        ("lock-writers", "SELECT 1 FROM writers FOR UPDATE"),
        ("lock-table", "LOCK TABLE operations IN SHARE MODE"),
    ];
    const ERRORS: [(&str, &str); 2] = [("deadlock-error", "40P01"), ("serialization-error", "40001")];

    #[test]
    fn locks_are_waited_for_and_transient_errors_tried_again() {
        let database = TestDatabase::postgres();
        let mut rig = Rig::start(&database, RigOptions::new("locks", 2));
        // A sequence moves on whatever becomes of the transaction.
        database.sql(
            "CREATE SEQUENCE raised; CREATE TABLE armed (code text, until bigint); \
             CREATE FUNCTION raise_when_armed() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE armed record; BEGIN \
               SELECT * INTO armed FROM public.armed; \
               IF FOUND AND nextval('raised') <= armed.until THEN \
                 RAISE EXCEPTION 'raised by a test' USING ERRCODE = armed.code; END IF; \
               RETURN NULL; END $$; \
             CREATE TRIGGER raise_when_armed BEFORE INSERT ON operations FOR EACH STATEMENT \
               EXECUTE FUNCTION raise_when_armed()",
        );
        let rounds = size::rounds(1);
        for _ in 0..rounds {
            for (kind, lock) in LOCKS {
                rig.load(150);
                hold_lock(&mut rig, kind, lock);
            }
            for (kind, code) in ERRORS {
                rig.load(150);
                raise(&mut rig, kind, code);
            }
            rig.load(150);
            cross_locks(&mut rig);
        }
        let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        rig.fact(format!("deadlocks that PostgreSQL itself found: {}", database.sql_value(deadlocks)));
        let kinds = LOCKS.iter().chain(&ERRORS).map(|(kind, _)| (*kind, rounds));
        rig.finish(size::commands(4_000), &kinds.chain([("cross-locks", rounds)]).collect::<Vec<_>>());
    }

    /// A person's transaction holds the lock for two seconds.
    fn hold_lock(rig: &mut Rig<'_>, kind: &'static str, lock: &str) {
        let mut person = rig.database.session();
        let _ = person.run("BEGIN").unwrap();
        let _ = person.run(lock).unwrap();
        let started = Instant::now();
        let waiting = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
                       AND wait_event_type = 'Lock' AND application_name LIKE 'casework-%'";
        eventually(SOON, "somebody waits for the lock", || !rig.database.sql(waiting).is_empty());
        rig.fired(kind, lock);
        eventually(SOON, "two seconds pass", || started.elapsed() > Duration::from_secs(2));
        let _ = person.run("COMMIT").unwrap();
        rig.recovered(kind, Instant::now());
    }

    /// The next commits that write fail with this error, whoever sends them.
    fn raise(rig: &mut Rig<'_>, kind: &'static str, code: &str) {
        let database = rig.database;
        let raised = || database.sql_value("SELECT last_value FROM raised").parse::<u64>().unwrap();
        let until = raised() + RAISED;
        database.sql(&format!("DELETE FROM armed; INSERT INTO armed VALUES ('{code}', {until})"));
        eventually(SOON, "the errors were raised", || raised() > until);
        rig.fired(kind, &format!("{RAISED} times"));
        database.sql("DELETE FROM armed");
        rig.recovered(kind, Instant::now());
    }

    /// A person who locks cases against their order, edit by edit: sometimes PostgreSQL has to end one of the two.
    fn cross_locks(rig: &mut Rig<'_>) {
        let mut person = rig.database.session();
        for _ in 0..20 {
            let [high, low] = [10 + rig.dice.below(10), rig.dice.below(10)];
            let _ = person.run("BEGIN").unwrap();
            for number in [high, low] {
                // Ended in a deadlock: the person's transaction is gone, the rows are free.
                let lock = format!("SELECT 1 FROM cases WHERE case_id = 'case/{number:02}' FOR UPDATE");
                if person.run(&lock).is_err() {
                    break;
                }
            }
            let _ = person.run("ROLLBACK").unwrap();
        }
        rig.fired("cross-locks", "20 pairs");
        rig.recovered("cross-locks", Instant::now());
    }
}
