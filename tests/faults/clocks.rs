//! Clocks that jump: the time of day of one process goes hours ahead and hours back while it works.
//!
//! `libfaketime` stands between the process and the system's clock. Only the time of day jumps: the monotonic clock, by which
//! deadlines are kept, can't on a real machine either.

use std::path::PathBuf;

/// Debian's library for programs with threads.
fn faketime_library() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").unwrap().flatten();
    let mut candidates = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    candidates.find(|path| path.is_file()).expect("the tests need libfaketime: apt-get install libfaketime")
}

mod heavy {
    use std::time::Instant;

    use super::faketime_library;
    use crate::rig::{Rig, RigOptions, SOON};
    use crate::size;
    use crate::support::database::TestDatabase;
    use crate::support::wait::eventually;

    #[test]
    fn the_clock_of_one_process_jumps_by_hours() {
        let database = TestDatabase::postgres();
        let folder = tempfile::tempdir().unwrap();
        let clock = folder.path().join("clock");
        let set = |offset: &str| {
            // In one step: a half-written offset would be another time.
            let next = folder.path().join("next");
            std::fs::write(&next, offset).unwrap();
            std::fs::rename(&next, &clock).unwrap();
        };
        set("+0");
        let library = faketime_library();
        let mut options = RigOptions::new("clocks", 2);
        let on_first = |number, options: crate::support::server::ServerOptions| {
            if number > 0 {
                return options;
            }
            options
                .environment("LD_PRELOAD", &library)
                .environment("FAKETIME_TIMESTAMP_FILE", &clock)
                .environment("FAKETIME_NO_CACHE", "1")
                .environment("FAKETIME_DONT_FAKE_MONOTONIC", "1")
                .environment("DONT_FAKE_MONOTONIC", "1")
        };
        options.options = &on_first;
        let mut rig = Rig::start(&database, options);
        let jumps = [
            ("clock-ahead", "+7h", "recorded_at > now() + interval '6 hours'"),
            ("clock-right-again", "+0", "abs(extract(epoch FROM recorded_at - now())) < 60"),
            ("clock-back", "-7h", "recorded_at < now() - interval '6 hours'"),
            ("clock-far-ahead", "+400d", "recorded_at > now() + interval '399 days'"),
        ];
        let rounds = size::rounds(1);
        for _ in 0..rounds {
            for (kind, offset, shows) in jumps {
                rig.load(150);
                let seen = || {
                    let count = database.sql_value(&format!("SELECT count(*) FROM operations WHERE {shows}"));
                    count.parse::<u64>().unwrap()
                };
                let before = seen();
                set(offset);
                eventually(SOON, "operations are recorded at the new time", || seen() > before + 10);
                rig.fired(kind, offset);
                rig.recovered(kind, Instant::now());
            }
        }
        rig.finish(size::commands(2_500), &jumps.map(|(kind, ..)| (kind, rounds)));
    }
}
