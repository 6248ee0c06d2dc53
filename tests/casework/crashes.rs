//! Crashes in the middle of a storm: of the server, of a PostgreSQL backend, of PostgreSQL. The client sends again what was
//! not answered, and the end is the one of a run in which nothing happened.
//!
//! A few crashes and the first part of the storm by default, twenty and all of it in the long run.

use crate::support::long_tests_wanted;

/// How often the server is killed.
fn rounds() -> usize {
    if long_tests_wanted() { 20 } else { 5 }
}

/// How many lines of the storm are sent.
fn lines_max() -> usize {
    if long_tests_wanted() { usize::MAX } else { 4_000 }
}

mod heavy {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;
    use std::time::Duration;

    use super::{lines_max, rounds};
    use crate::case_62::{Books, Desk, SOON, books, check_books};
    use crate::storm::{Final, Progress, Storm, check_acknowledged, check_same};
    use crate::support::database::{TestDatabase, block_on};
    use crate::support::postgres::PrivateServer;
    use crate::support::wait::eventually;

    /// Bound on a part of a storm, on a machine that is busy with other tests.
    const PART: Duration = Duration::from_secs(180);

    /// The storm without any trouble, on a database of its own.
    async fn calm_run(storm: &Storm, database: &TestDatabase) -> (Books, Vec<Final>) {
        let desk = Desk::open_with(database, |options| storm.options(options));
        let finals = storm.drive(&desk.client, &desk.tokens.proxy, &Progress::default()).await;
        storm.check_expected(&finals);
        (books(database), finals)
    }

    /// The end of a run with trouble is the end of the calm one, and every acknowledged outcome is there.
    fn check_end(storm: &Storm, database: &TestDatabase, finals: &[Final], calm: (Books, Vec<Final>)) {
        let end = books(database);
        storm.check_expected(finals);
        check_acknowledged(finals, &end);
        check_same(finals, &calm.1);
        let (end, calm) = (end.without_times(), calm.0.without_times());
        assert_eq!(end.cases, calm.cases);
        assert_eq!(end.assignments, calm.assignments);
        let mut pairs = end.operations.iter().zip(&calm.operations);
        assert_eq!(pairs.find(|(one, other)| one != other), None, "an operation differs from the calm run's");
        assert_eq!(end.operations.len(), calm.operations.len());
        assert_eq!(end.outbox, calm.outbox);
        check_books(database);
    }

    /// The storm in a task of its own, so that the test may block.
    fn start(storm: &Arc<Storm>, desk: &Desk, progress: &Arc<Progress>) -> tokio::task::JoinHandle<Vec<Final>> {
        let (storm, progress) = (Arc::clone(storm), Arc::clone(progress));
        let (client, token) = (desk.client.clone(), desk.tokens.proxy.clone());
        tokio::spawn(async move { storm.drive(&client, &token, &progress).await })
    }

    fn wait_answered(progress: &Progress, answered: usize) {
        eventually(PART, "a part of the storm is answered", || progress.answered.load(Relaxed) >= answered);
    }

    on_both_databases! {
        /// `kill -9` of the server while 64 commands are on their way, a restart, and so on.
        async fn kill_9_of_the_server_in_a_storm_changes_nothing(database: &TestDatabase) {
            let storm = Arc::new(Storm::load(lines_max()));
            let other = if database.is_postgres() { TestDatabase::postgres() } else { TestDatabase::sqlite() };
            let calm = calm_run(&storm, &other).await;

            let mut desk = Desk::open_with(database, |options| storm.options(options));
            let progress = Arc::new(Progress::default());
            let driving = start(&storm, &desk, &progress);
            for round in 1..=rounds() {
                wait_answered(&progress, storm.len() * round / (rounds() + 1));
                let lost = progress.lost.load(Relaxed);
                desk.server.kill_9();
                eventually(SOON, "a client notices", || progress.lost.load(Relaxed) > lost);
                assert!(!driving.is_finished(), "the storm is not over");
                desk.server.start_again();
            }
            let finals = driving.await.unwrap();
            eprintln!("{} requests had no answer over {} kills", progress.lost.load(Relaxed), rounds());
            check_end(&storm, database, &finals, calm);
        }
    }

    /// `kill -9` of a committing backend (PostgreSQL then cuts all sessions and recovers), then an immediate stop and a
    /// start. The server lives through both, says 503 with `reuse_key` meanwhile, and needs no restart.
    #[test]
    fn crashes_of_postgresql_under_load_lose_nothing_and_need_no_restart() {
        let postgres = PrivateServer::start();
        let database = TestDatabase::Postgres(postgres.database());
        let other = TestDatabase::Postgres(postgres.database());
        block_on(async {
            let storm = Arc::new(Storm::load(lines_max()));
            let calm = calm_run(&storm, &other).await;

            let mut desk = Desk::open_with(&database, |options| storm.options(options));
            let pid = desk.server.pid();
            let progress = Arc::new(Progress::default());
            let unavailable = || progress.unavailable.load(Relaxed);
            let driving = start(&storm, &desk, &progress);

            wait_answered(&progress, storm.len() / 4);
            let writers = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
                           AND application_name LIKE 'casework-writer-%' ORDER BY backend_start";
            postgres.kill_backend_9(database.sql(writers)[0][0].parse().unwrap());
            eventually(SOON, "PostgreSQL recovers by itself", || database.try_sql("SELECT 1").is_ok());

            wait_answered(&progress, storm.len() / 2);
            let before = unavailable();
            postgres.stop_immediate();
            eventually(SOON, "clients are told 503, reuse the id", || unavailable() > before);
            eventually(SOON, "readiness says so", || desk.server.readiness() == Some(503));
            assert!(!driving.is_finished(), "the storm is not over");
            postgres.start_again();

            let finals = driving.await.unwrap();
            eprintln!("503 of one backend's end: {before}, in all: {}", unavailable());
            assert_eq!(progress.lost.load(Relaxed), 0, "the server answered every request");
            assert!(desk.server.is_running() && desk.server.pid() == pid, "it is the process that it was");
            desk.server.wait_ready(SOON);
            check_end(&storm, &database, &finals, calm);
        });
    }
}
