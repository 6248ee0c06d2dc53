//! Two processes behind nginx, which sends each case to one of them (`deploy/nginx.conf`, with only its ports replaced).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::postgres_server::free_port;
use crate::support::process::{crate_root, find_on_path, send_signal};
use crate::support::wait::eventually;

/// An nginx of the test's own.
struct Nginx {
    child: Child,
    folder: tempfile::TempDir,
    url: String,
}

impl Nginx {
    /// Starts nginx in front of the processes at these URLs.
    fn start(urls: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut text = std::fs::read_to_string(crate_root().join("deploy/nginx.conf")).unwrap();
        for (name, address) in [
            ("127.0.0.1:8080", format!("127.0.0.1:{port}")),
            ("127.0.0.1:8081", urls[0].replace("http://", "")),
            ("127.0.0.1:8082", urls[1].replace("http://", "")),
        ] {
            assert_eq!(text.matches(name).count(), 1, "{name} stands once in the configuration");
            text = text.replace(name, &address);
        }
        std::fs::write(folder.path().join("nginx.conf"), text).unwrap();
        // Debian puts it where only root's PATH leads.
        let child = Command::new(find_on_path("nginx").unwrap_or_else(|| "/usr/sbin/nginx".into()))
            .arg("-p")
            .arg(folder.path())
            .args(["-c", "nginx.conf", "-g", "daemon off;"])
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.path().join("errors")).unwrap())
            .spawn()
            .expect("the tests need nginx: apt-get install nginx-light");
        let nginx = Self { child, folder, url: format!("http://127.0.0.1:{port}") };
        eventually(Duration::from_secs(20), "nginx listens", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        nginx
    }

    /// For each path of a case, the processes that had its requests, as nginx logged them from the byte `from` on; and how long
    /// the log is.
    fn processes_by_case(&self, from: usize) -> (BTreeMap<String, BTreeSet<String>>, usize) {
        let log = std::fs::read_to_string(self.folder.path().join("casework-access.log")).unwrap();
        let mut cases: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for line in log[from..].lines() {
            let fields: Vec<_> = line.split(' ').collect();
            if let [_, uri, _, upstream, ..] = fields[..]
                && let Some(case_id) = uri.strip_prefix("/v1/cases/").and_then(|rest| rest.split('/').next())
            {
                cases.entry(case_id.to_owned()).or_default().insert(upstream.to_owned());
            }
        }
        (cases, log.len())
    }

    fn errors(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("errors")).unwrap()
    }

    fn access_log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("casework-access.log")).unwrap()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // The master ends its workers.
        send_signal("TERM", self.child.id());
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("nginx in {}:\n{}", Path::new(self.folder.path()).display(), self.errors());
        }
    }
}

mod heavy {
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::time::Instant;

    use super::Nginx;
    use crate::rig::{Rig, RigOptions, SOON};
    use crate::size;
    use crate::support::database::TestDatabase;
    use crate::support::wait::eventually;

    #[test]
    fn nginx_sends_each_case_to_one_process_and_to_the_other_when_that_dies() {
        let database = TestDatabase::postgres();
        let started = RefCell::new(None);
        let mut options = RigOptions::new("routing-nginx", 2);
        let doors = |urls: Vec<String>| {
            let nginx = Nginx::start(&urls);
            let url = nginx.url.clone();
            started.replace(Some(nginx));
            vec![url]
        };
        options.doors = &doors;
        let mut rig = Rig::start(&database, options);
        let nginx = started.take().unwrap();
        rig.load(300);
        let (homes, mut from) = nginx.processes_by_case(0);
        assert!(homes.values().all(|processes| processes.len() == 1), "each case has one process: {homes:?}");
        let used: BTreeSet<_> = homes.values().flatten().collect();
        assert_eq!(used.len(), 2, "both processes have cases");
        rig.fact(format!("{} cases, each at one process, before anything happened", homes.len()));

        let rounds = size::rounds(1);
        for round in 0..rounds {
            let node = (round % 2) as usize;
            rig.load(150);
            rig.kill_9(node);
            let away = rig.nodes[node].server.address().to_string();
            rig.recovered("takeover-from-killed", Instant::now());
            let (cases, end) = nginx.processes_by_case(from);
            from = end;
            let moved = cases.iter().filter(|(case_id, processes)| {
                homes[*case_id].contains(&away) && processes.iter().any(|process| !process.contains(&away))
            });
            assert!(moved.count() > 0, "cases of {away} went to the other process: {cases:?}");
            rig.start_again(node);
            rig.recovered("kill-process", Instant::now());
            eventually(SOON, "nginx gives it its cases back", || {
                let (cases, _) = nginx.processes_by_case(from);
                cases.values().flatten().any(|process| *process == away)
            });
        }
        let lost = nginx.access_log().lines().filter(|line| line.contains(" 502 ")).count();
        rig.fact(format!("502 of nginx: {lost}"));
        // It would keep connections to the processes for a minute.
        rig.when_quiet(|| drop(nginx));
        rig.finish(size::commands(2_500), &[("kill-process", rounds)]);
    }
}
