//! Clients that hang up: after each byte of a request, and after the last one without reading the reply.
//!
//! Then the request comes again, whole and under the same id: it has one outcome, and it is a replay only where the first
//! one had arrived whole.

mod heavy {
    use std::sync::Arc;
    use std::time::Instant;

    use crate::rig::{Rig, RigOptions};
    use crate::size;
    use crate::support::database::TestDatabase;
    use crate::support::scene::SentCommand;
    use crate::traffic::CASES;

    #[test]
    fn clients_of_postgresql_hang_up_after_every_byte() {
        hang_up(&TestDatabase::postgres(), "disconnects", 2);
    }

    #[test]
    fn clients_of_sqlite_hang_up_after_every_byte() {
        hang_up(&TestDatabase::sqlite(), "disconnects-sqlite", 1);
    }

    fn hang_up(database: &TestDatabase, name: &'static str, nodes: usize) {
        let mut rig = Rig::start(database, RigOptions::new(name, nodes));
        let pids: Vec<_> = rig.nodes.iter().map(|node| node.server.pid()).collect();
        let rounds = size::rounds(1);
        let (mut hung_up, mut had_arrived) = (0, 0);
        for _ in 0..rounds {
            let mut sent = Vec::new();
            for bytes in 1.. {
                let case_id = format!("case/{:02}", bytes % CASES);
                let note = SentCommand::note(&case_id, "Sent by a client that hangs up.");
                let address = rig.nodes[bytes % nodes].server.address();
                let is_whole = rig.traffic().cut_short(address, &note, bytes);
                sent.push((note, is_whole));
                if is_whole {
                    break;
                }
            }
            // A few more whole requests whose reply nobody reads.
            for number in 0..20 {
                let note = SentCommand::note(&format!("case/{number:02}"), "The reply is not read.");
                let is_whole = rig.traffic().cut_short(rig.nodes[number % nodes].server.address(), &note, usize::MAX);
                sent.push((note, is_whole));
            }
            hung_up += sent.len();
            rig.fired("hang-up-at-every-byte", &format!("{} times", sent.len()));
            let repeats: Vec<_> = sent
                .into_iter()
                .map(|(note, is_whole)| {
                    let (traffic, mut dice) = (Arc::clone(rig.traffic()), rig.dice.fork());
                    rig.spawn(async move {
                        let answer = traffic.settle("comes back", &note, &mut dice).await;
                        assert_eq!(answer.status, 200, "{}", answer.text());
                        let is_replay = answer.is_replay();
                        assert!(is_whole || !is_replay, "half a request was taken for a whole one: {note:?}");
                        usize::from(is_replay)
                    })
                })
                .collect();
            for repeat in repeats {
                had_arrived += rig.wait(repeat).unwrap();
            }
            rig.recovered("hang-up-at-every-byte", Instant::now());
        }
        for (node, pid) in rig.nodes.iter_mut().zip(pids) {
            assert!(node.server.is_running() && node.server.pid() == pid, "it is the process that it was");
        }
        assert!(had_arrived > 0, "a whole request is carried out whether its client waits or not");
        rig.fact(format!("{hung_up} requests given up, {had_arrived} of them had arrived whole and been applied"));
        rig.finish(size::commands(2_000), &[("hang-up-at-every-byte", rounds)]);
    }
}
