//! The network between a process and its database: a black hole, a cut of all connections, nobody to connect to.

mod heavy {
    use std::time::{Duration, Instant};

    use crate::rig::{Rig, RigOptions, SOON, on_node};
    use crate::size;
    use crate::support::database::TestDatabase;
    use crate::support::long_tests_wanted;
    use crate::support::tcp_proxy::Direction::{ToClient, ToServer};
    use crate::support::wait::eventually;

    #[test]
    fn the_database_goes_dark_and_out_of_reach() {
        let database = TestDatabase::postgres();
        let mut rig = Rig::start(&database, RigOptions::new("network", 2).proxied());
        let rounds = size::rounds(1);
        for _ in 0..rounds {
            let node = rig.dice.below(2);
            rig.load(150);
            // What was swallowed arrives late, or never.
            for (kind, is_lost) in [("black-hole-then-late", false), ("black-hole-then-lost", true)] {
                go_dark(&rig, node);
                rig.fired(kind, &on_node(node));
                if is_lost {
                    rig.proxy(node).cut();
                }
                for direction in [ToServer, ToClient] {
                    rig.proxy(node).release(direction);
                }
                rig.recovered(kind, Instant::now());
                rig.load(150);
            }

            let before = rig.proxy(node).counts();
            assert!(before.connections_open > 0);
            rig.proxy(node).cut();
            rig.fired("cut-all-connections", &on_node(node));
            rig.recovered("cut-all-connections", Instant::now());
            assert!(rig.proxy(node).counts().connections > before.connections, "it connects anew");

            rig.load(150);
            let told = rig.answers("unavailable");
            rig.proxy(node).refuse_connections(true);
            rig.proxy(node).cut();
            eventually(SOON, "clients are told", || rig.answers("unavailable") > told + 20);
            rig.fired("refuse-connections", &on_node(node));
            rig.proxy(node).refuse_connections(false);
            rig.recovered("refuse-connections", Instant::now());
        }
        rig.finish(
            size::commands(3_000),
            &[
                ("black-hole-then-late", rounds),
                ("black-hole-then-lost", rounds),
                ("cut-all-connections", rounds),
                ("refuse-connections", rounds),
            ],
        );
    }

    /// For some seconds no byte goes either way, while both sides send.
    fn go_dark(rig: &Rig<'_>, node: usize) {
        let length = Duration::from_secs(if long_tests_wanted() { 10 } else { 3 });
        let proxy = rig.proxy(node);
        proxy.hold(ToServer);
        proxy.hold(ToClient);
        let (started, before) = (Instant::now(), proxy.counts());
        eventually(SOON, "the process sends into the dark", || {
            proxy.counts().bytes[ToServer as usize] > before.bytes[ToServer as usize]
        });
        while started.elapsed() < length {
            // The other process goes on.
            rig.load(5);
        }
    }
}
