//! Disks that fill up and disks that fail, under PostgreSQL and under SQLite.
//!
//! A full disk is a small one filled to its last byte; a failing one is `strace`, which makes system calls fail.

mod heavy {
    use std::path::Path;
    use std::time::Instant;

    use crate::rig::{Rig, RigOptions, SOON};
    use crate::size;
    use crate::support::database::TestDatabase;
    use crate::support::postgres::{PostgresDatabase, PrivateServer};
    use crate::support::small_disk::SmallDisk;
    use crate::support::strace::Strace;
    use crate::support::wait::eventually;

    /// The tables' disk is full, again and again: no statement that needs room succeeds, and nothing else breaks.
    #[test]
    fn the_disk_of_postgresql_fills_up() {
        let Some(disk) = SmallDisk::mount(48) else { return };
        let postgres = PrivateServer::start();
        let folder = disk.folder().join("tables");
        std::fs::create_dir(&folder).unwrap();
        postgres.take_over(&folder);
        postgres.sql(&format!("CREATE TABLESPACE small LOCATION '{}'", folder.display()));
        let database = PostgresDatabase::create_with(&postgres.url(), "TABLESPACE small");
        let database = TestDatabase::Postgres(database);
        let mut rig = Rig::start(&database, RigOptions::new("full-disk", 2));
        let rounds = size::rounds(1);
        for _ in 0..rounds {
            rig.load(150);
            let refusals = || postgres.log().matches("No space left on device").count();
            let before = refusals();
            let filled = disk.fill();
            eventually(SOON, "PostgreSQL finds no room", || refusals() > before + 5);
            rig.fired("full-disk", &format!("{filled} bytes"));
            disk.free();
            rig.recovered("full-disk", Instant::now());
        }
        rig.finish(size::commands(2_500), &[("full-disk", rounds)]);
    }

    /// The disk of PostgreSQL's log is full: it panics, can't recover, and comes back once there is room.
    #[test]
    fn the_disk_of_the_write_ahead_log_fills_up() {
        let Some(disk) = SmallDisk::mount(96) else { return };
        let postgres = PrivateServer::start();
        postgres.move_log_to(&disk.folder().join("log"));
        let database = TestDatabase::Postgres(postgres.database());
        let mut rig = Rig::start(&database, RigOptions::new("full-log-disk", 2));
        rig.load(150);
        let filled = disk.fill();
        // Forces the next file of the log, for which there is no room.
        eventually(SOON, "PostgreSQL panics", || {
            let _ = database.try_sql("SELECT pg_switch_wal()");
            postgres.log().contains("PANIC")
        });
        rig.fired("full-log-disk", &format!("{filled} bytes"));
        disk.free();
        // It may have given up for good, or be trying again.
        postgres.stop_if_running();
        postgres.start_again();
        rig.recovered("full-log-disk", Instant::now());
        rig.finish(size::commands(2_500), &[("full-log-disk", 1)]);
    }

    #[test]
    fn the_disk_of_sqlite_fills_up() {
        // It fills when it is made to, not by the commands of a long run: they take about a kilobyte each.
        let commands = size::commands(2_500);
        let Some(disk) = SmallDisk::mount(48 + commands / 400) else { return };
        let database = TestDatabase::sqlite_in(disk.folder());
        let mut rig = Rig::start(&database, RigOptions::new("full-disk-sqlite", 1));
        let rounds = size::rounds(1);
        for _ in 0..rounds {
            rig.load(150);
            let told = rig.answers("unavailable");
            let filled = disk.fill();
            eventually(SOON, "clients are told", || rig.answers("unavailable") > told + 20);
            assert!(rig.nodes[0].server.log().contains("disk is full"), "the log says why");
            rig.fired("full-disk", &format!("{filled} bytes"));
            disk.free();
            rig.recovered("full-disk", Instant::now());
        }
        rig.finish(commands, &[("full-disk", rounds)]);
    }

    /// Calls that write and calls that force the disk fail now and then, in the middle of whatever SQLite does.
    #[test]
    fn the_disk_of_sqlite_fails() {
        let database = TestDatabase::sqlite();
        let mut rig = Rig::start(&database, RigOptions::new("failing-disk-sqlite", 1));
        let faults = [
            ("disk-error-at-sync", "inject=fsync,fdatasync:error=EIO:when=3+7"),
            ("disk-error-at-write", "inject=pwrite64:error=EIO:when=20+40"),
            ("no-room-at-write", "inject=pwrite64:error=ENOSPC:when=20+40"),
        ];
        let rounds = size::rounds(1);
        for _ in 0..rounds {
            for (kind, injection) in faults {
                rig.load(100);
                let strace = Strace::attach(rig.nodes[0].server.pid(), &["-e", injection]);
                eventually(SOON, "ten calls have failed", || strace.injected() >= 10);
                let trace = strace.detach();
                assert!(trace.contains("casework.db") || trace.contains("INJECTED"), "{trace}");
                rig.fired(kind, &format!("{} calls", trace.matches("INJECTED").count()));
                rig.recovered(kind, Instant::now());
            }
        }
        assert!(Path::new(&format!("/proc/{}", rig.nodes[0].server.pid())).exists(), "it is still the first process");
        rig.finish(size::commands(2_500), &faults.map(|(kind, _)| (kind, rounds)));
    }
}
