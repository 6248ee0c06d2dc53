//! A PostgreSQL that crashes and comes back: a backend killed, the postmaster killed, immediate and orderly stops.

mod heavy {
    use std::time::Instant;

    use crate::rig::{Rig, RigOptions, SOON};
    use crate::size;
    use crate::support::database::TestDatabase;
    use crate::support::postgres::PrivateServer;
    use crate::support::wait::{eventually, eventually_some};

    const WRITERS: &str = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
                           AND application_name LIKE 'casework-writer-%'";

    #[test]
    fn postgresql_crashes_and_comes_back() {
        let postgres = PrivateServer::start();
        let database = TestDatabase::Postgres(postgres.database());
        let mut rig = Rig::start(&database, RigOptions::new("database-crashes", 2));
        let rounds = size::rounds(1);
        for round in 0..rounds {
            rig.load(150);
            kill_backend(&mut rig, &postgres);

            rig.load(150);
            let pid = postgres.postmaster_pid();
            postgres.kill_postmaster_9();
            rig.fired("kill-postmaster", &format!("pid {pid}"));
            come_back(&mut rig, &postgres, "kill-postmaster");

            rig.load(150);
            postgres.stop_immediate();
            rig.fired("stop-postgresql-immediately", "");
            come_back(&mut rig, &postgres, "stop-postgresql-immediately");

            rig.load(150);
            postgres.stop_fast();
            rig.fired("restart-postgresql", "");
            come_back(&mut rig, &postgres, "restart-postgresql");

            rig.load(150);
            terminate_all(&mut rig, round);
        }
        rig.finish(
            size::commands(4_000),
            &[
                ("kill-backend", rounds),
                ("kill-postmaster", rounds),
                ("stop-postgresql-immediately", rounds),
                ("restart-postgresql", rounds),
                ("terminate-backends", rounds),
            ],
        );
    }

    /// PostgreSQL answers a killed backend by ending all of them and recovering.
    fn kill_backend(rig: &mut Rig<'_>, postgres: &PrivateServer) {
        let recoveries = || postgres.log().matches("all server processes terminated; reinitializing").count();
        let before = recoveries();
        let writers = rig.database.sql(WRITERS);
        let pid: u32 = writers[rig.dice.below(writers.len())][0].parse().unwrap();
        postgres.kill_backend_9(pid);
        eventually(SOON, "PostgreSQL notices", || recoveries() > before);
        rig.fired("kill-backend", &format!("pid {pid}"));
        eventually(SOON, "PostgreSQL recovers", || rig.database.try_sql("SELECT 1").is_ok());
        rig.recovered("kill-backend", Instant::now());
    }

    fn come_back(rig: &mut Rig<'_>, postgres: &PrivateServer, kind: &'static str) {
        assert!(rig.database.try_sql("SELECT 1").is_err(), "PostgreSQL is away");
        let told = rig.answers("unavailable");
        eventually(SOON, "clients are told that the database is away", || rig.answers("unavailable") > told);
        postgres.start_again();
        rig.recovered(kind, Instant::now());
    }

    /// An administrator ends every session of every process, again and again for a moment.
    fn terminate_all(rig: &mut Rig<'_>, round: u64) {
        let ended = eventually_some(SOON, "ten sessions are ended", {
            let mut ended = 0;
            let database = rig.database;
            move || {
                ended += database.sql(&format!("SELECT pg_terminate_backend(pid) FROM ({WRITERS}) AS writers")).len();
                (ended >= 10).then_some(ended)
            }
        });
        rig.fired("terminate-backends", &format!("round {round}, {ended} sessions"));
        rig.recovered("terminate-backends", Instant::now());
    }
}
