//! Server processes that die, stop in order, or stand still while another process takes over their cases.

mod heavy {
    use std::time::{Duration, Instant};

    use crate::rig::{Rig, RigOptions, SOON, on_node};
    use crate::size;
    use crate::support::database::TestDatabase;
    use crate::support::long_tests_wanted;
    use crate::support::wait::eventually;

    /// Three processes on PostgreSQL: one after the other is killed, ended in order, or stopped and continued.
    #[test]
    fn processes_die_and_stand_still_and_others_take_over() {
        let database = TestDatabase::postgres();
        let mut rig = Rig::start(&database, RigOptions::new("processes", 3));
        let rounds = size::rounds(2);
        for round in 0..rounds {
            let node = rig.dice.below(3);
            let others: Vec<_> = (0..3).filter(|other| *other != node).collect();
            rig.load(150);
            rig.kill_9(node);
            rig.recovered_through("takeover-from-killed", Instant::now(), &others);
            rig.start_again(node);
            rig.recovered("kill-process", Instant::now());

            let node = (node + 1) % 3;
            rig.load(150);
            rig.nodes[node].server.sigterm();
            assert_eq!(rig.nodes[node].server.wait(SOON).code(), Some(0), "it ends in order");
            rig.fired("end-process", &on_node(node));
            rig.start_again(node);
            rig.recovered("end-process", Instant::now());

            if round % 3 == 0 {
                stand_still(&mut rig, (node + 1) % 3);
            }
        }
        rig.finish(
            size::commands(4_000),
            &[("kill-process", rounds), ("end-process", rounds), ("stop-process", rounds.div_ceil(3))],
        );
    }

    /// SIGSTOP in the middle of whatever it does; the others take all cases over, then it goes on with what it remembers.
    fn stand_still(rig: &mut Rig<'_>, node: usize) {
        let length = Duration::from_secs(if long_tests_wanted() { 10 } else { 6 });
        let others: Vec<_> = (0..3).filter(|other| *other != node).collect();
        rig.load(150);
        let server = &rig.nodes[node].server;
        server.signal("STOP");
        let started = Instant::now();
        let stat = format!("/proc/{}/stat", server.pid());
        eventually(SOON, "it stands still", || {
            let stat = std::fs::read_to_string(&stat).unwrap();
            // The state stands behind the name, which may hold anything.
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        });
        rig.fired("stop-process", &on_node(node));
        rig.recovered_through("takeover-from-stopped", started, &others);
        while started.elapsed() < length {
            rig.load(10);
        }
        rig.nodes[node].server.signal("CONT");
        rig.recovered("stop-process", Instant::now());
    }

    /// One process on SQLite: killed and ended, over and over.
    #[test]
    fn the_process_on_sqlite_dies_and_comes_back() {
        let database = TestDatabase::sqlite();
        let mut rig = Rig::start(&database, RigOptions::new("processes-sqlite", 1));
        let rounds = size::rounds(3);
        for _ in 0..rounds {
            rig.load(200);
            rig.kill_9(0);
            rig.start_again(0);
            rig.recovered("kill-process", Instant::now());
            rig.load(200);
            rig.nodes[0].server.sigterm();
            assert_eq!(rig.nodes[0].server.wait(SOON).code(), Some(0), "it ends in order");
            rig.fired("end-process", &on_node(0));
            rig.start_again(0);
            rig.recovered("end-process", Instant::now());
        }
        rig.finish(size::commands(4_000), &[("kill-process", rounds), ("end-process", rounds)]);
    }
}
