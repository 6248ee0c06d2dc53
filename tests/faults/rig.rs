//! One scenario: server processes on a database, a load, faults beside it, and the judgement at the end.
//!
//! [`Rig::start`] starts everything, the scenario lets faults happen (and reports each with [`Rig::fired`] once something shows
//! that it did), [`Rig::recovered`] measures, [`Rig::finish`] settles what is open and has the database judged. A rig that is
//! dropped before its end stops its processes and judges nothing: that is a failed test.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::recorder::Recorder;
use crate::size;
use crate::support::cli::casework;
use crate::support::database::TestDatabase;
use crate::support::scene::{Dice, Sender, SentCommand, make_ready};
use crate::support::server::{ServerOptions, ServerProcess};
use crate::support::tcp_proxy::TcpProxy;
use crate::support::wait::eventually;
use crate::totals::{RECOVERED_WITHIN, Totals, Usage};
use crate::traffic::{Attempt, Traffic};

/// Bound on everything that a busy machine may take its time for.
pub const SOON: Duration = Duration::from_secs(60);
/// A server that did its work holds at most so many descriptors more than at its start (connections to the database).
const DESCRIPTORS_MORE_MAX: usize = 12;

/// A server process and what stands between it and its database.
pub struct Node {
    pub server: ServerProcess,
    pub proxy: Option<TcpProxy>,
    at_start: Usage,
}

/// What a scenario starts with.
pub struct RigOptions<'a> {
    pub name: &'static str,
    pub nodes: usize,
    /// Each process reaches PostgreSQL through a proxy of its own.
    pub proxied: bool,
    /// How long a client waits for an answer.
    pub patience: Duration,
    /// Further options of a process, by its number.
    pub options: &'a dyn Fn(usize, ServerOptions) -> ServerOptions,
    /// Where clients send to, given the URLs of the processes.
    pub doors: &'a dyn Fn(Vec<String>) -> Vec<String>,
}

impl RigOptions<'_> {
    /// So many processes, without a proxy before the database; clients choose among them at random.
    pub fn new(name: &'static str, nodes: usize) -> Self {
        Self {
            name,
            nodes,
            proxied: false,
            patience: Duration::from_secs(4),
            options: &|_, options| options,
            doors: &|urls| urls,
        }
    }

    /// The same with a proxy before the database of each process.
    pub fn proxied(mut self) -> Self {
        self.proxied = true;
        self
    }
}

/// A scenario that runs.
pub struct Rig<'a> {
    pub nodes: Vec<Node>,
    pub database: &'a TestDatabase,
    pub dice: Dice,
    traffic: Arc<Traffic>,
    runtime: Runtime,
    clients: Vec<JoinHandle<()>>,
    totals: Totals,
    when_quiet: Option<Box<dyn FnOnce() + 'a>>,
    name: &'static str,
    started: Instant,
}

impl<'a> Rig<'a> {
    /// Makes the database ready, starts the processes, opens the cases and starts the load.
    pub fn start(database: &'a TestDatabase, options: RigOptions<'_>) -> Self {
        let mut dice = Dice::seeded();
        let token = make_ready(database);
        let nodes: Vec<_> = (0..options.nodes).map(|number| start_node(database, &options, number)).collect();
        let urls = (options.doors)(nodes.iter().map(|node| node.server.url().to_owned()).collect());
        // The server answers 202 before the client's patience ends, so that both kinds of "unclear" happen.
        let doors = urls.iter().map(|url| Sender::new(url, &token).waiting(options.patience.as_secs() as u32 / 2));
        let traffic = Arc::new(Traffic::new(doors.collect(), Recorder::create(options.name), options.patience));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(traffic.prepare(&mut dice));
        let clients = (0..size::clients())
            .map(|number| runtime.spawn(Arc::clone(&traffic).run_client(number, dice.fork())))
            .collect();
        let totals = Totals::default();
        let (name, started) = (options.name, Instant::now());
        Self { nodes, database, dice, traffic, runtime, clients, totals, when_quiet: None, name, started }
    }

    /// Waits until the load has settled so many more commands.
    #[track_caller]
    pub fn load(&self, commands: u64) {
        let settled = || self.traffic.counts.settled.load(Relaxed);
        let until = settled() + commands;
        eventually(SOON, "the load goes on", || {
            assert!(!self.clients.iter().any(JoinHandle::is_finished), "a client has ended before the load is over");
            settled() >= until
        });
    }

    /// A fault happened: the caller has seen it.
    pub fn fired(&mut self, kind: &'static str, detail: &str) {
        self.traffic.note_fault(kind, detail);
        self.totals.fired(kind);
    }

    /// The proxy between a process and its database.
    pub fn proxy(&self, node: usize) -> &TcpProxy {
        self.nodes[node].proxy.as_ref().expect("the rig was started with proxies")
    }

    /// How many answers of this kind (a problem's code, `applied`, ...) there were.
    pub fn answers(&self, what: &str) -> u64 {
        self.traffic.count_of(what)
    }

    /// The load, for a scenario whose clients do more than its own.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.traffic
    }

    /// Waits for tasks of the load's runtime.
    pub fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// Runs a task beside the load.
    pub fn spawn<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Does this once no client sends any more, and before descriptors are counted.
    pub fn when_quiet(&mut self, work: impl FnOnce() + 'a) {
        self.when_quiet = Some(Box::new(work));
    }

    /// One more line for the table at the end.
    pub fn fact(&mut self, line: String) {
        self.totals.fact(line);
    }

    /// Sends a note to every case through every door until each has one; that must be soon after the fault's end.
    #[track_caller]
    pub fn recovered(&mut self, kind: &'static str, end: Instant) {
        let doors: Vec<_> = (0..self.traffic.door_count()).collect();
        self.recovered_through(kind, end, &doors);
    }

    /// The same through these doors only: what another process takes over while one is away.
    #[track_caller]
    pub fn recovered_through(&mut self, kind: &'static str, end: Instant, doors: &[usize]) {
        let mut probes = Vec::new();
        for door in doors.iter().copied() {
            for case_id in self.traffic.open_cases() {
                let (traffic, note) = (Arc::clone(&self.traffic), SentCommand::note(case_id, "goes on"));
                probes.push(self.runtime.spawn(async move { succeeded(&traffic, door, &note, end).await }));
            }
        }
        let mut slowest = Duration::ZERO;
        for probe in probes {
            slowest = slowest.max(self.runtime.block_on(probe).unwrap());
        }
        self.totals.recovered(kind, slowest);
    }

    /// `kill -9` of a process; returns when it is gone.
    pub fn kill_9(&mut self, node: usize) {
        let pid = self.nodes[node].server.pid();
        self.nodes[node].server.kill_9();
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "process {pid} is gone");
        self.fired("kill-process", &format!("process {node}, pid {pid}"));
    }

    /// Starts a process again after its end, at the same address.
    pub fn start_again(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        node.server.start_again();
        // Clients are back at once: descriptors are held against those of the first start, when there were none.
        node.at_start.rss_kib = Usage::of(&node.server).unwrap().rss_kib;
    }

    /// Ends the load once it is long enough, settles what is open, has the database judged, and prints the table.
    ///
    /// # Panics
    /// When an invariant is broken, when the history and the database differ, or when too little happened.
    #[track_caller]
    pub fn finish(mut self, commands_min: u64, faults_min: &[(&str, u64)]) {
        while self.traffic.counts.commands.load(Relaxed) < commands_min {
            self.load(1);
        }
        self.traffic.end();
        for client in self.clients.drain(..) {
            self.runtime.block_on(client).unwrap();
        }
        self.runtime.block_on(self.traffic.settle_the_rest(&mut self.dice));
        // What the clients held is closed before descriptors are counted.
        let traffic = Arc::into_inner(self.traffic).expect("every client has ended");
        let (counted, recorder) = traffic.close();
        let history = recorder.finish();
        eprintln!("the history of {} is in {}", self.name, history.path.display());
        if let Some(work) = self.when_quiet.take() {
            work();
        }
        judge(self.database, &history.path, &self.totals);
        let usage: Vec<_> = self.nodes.iter().map(|node| [node.at_start, settled_usage(node)]).collect();
        let took = self.started.elapsed();
        let table = self.totals.table(self.name, &counted, history.attempts, took, &usage);
        eprintln!("{table}");
        std::fs::write(history.path.with_file_name(format!("{}.totals.txt", self.name)), table).unwrap();
        self.totals.check_floors(&counted.counts, commands_min, faults_min);
        history.remove();
    }
}

/// Two judges that share nothing with the load.
#[track_caller]
fn judge(database: &TestDatabase, history: &Path, totals: &Totals) {
    let _ = casework(["verify", "--database", database.url()]).expect_success();
    let mut arguments: Vec<OsString> = ["check", "--database", database.url()].map(OsString::from).into();
    arguments.push(history.into());
    for (kind, count) in totals.kinds() {
        arguments.push(format!("--require={kind}={count}").into());
    }
    let checked = casework(arguments).expect_success();
    eprintln!("{}", checked.stdout.trim_end());
}

/// Memory and descriptors of a process once its clients are gone.
#[track_caller]
fn settled_usage(node: &Node) -> Usage {
    let now = || Usage::of(&node.server).expect("every process runs at the end");
    eventually(SOON, "descriptors are given back", || {
        now().descriptors <= node.at_start.descriptors + DESCRIPTORS_MORE_MAX
    });
    now()
}

/// Sends a command through one door until it is applied; returns how long after the fault's end that was.
async fn succeeded(traffic: &Traffic, door: usize, command: &SentCommand, end: Instant) -> Duration {
    loop {
        if let Attempt::Settled(answer) = traffic.attempt("probe", door, command).await {
            assert_eq!(answer.status, 200, "a note is always legal: {}", answer.text());
            return end.elapsed();
        }
        assert!(
            end.elapsed() < RECOVERED_WITHIN,
            "not settled {RECOVERED_WITHIN:?} after the fault's end: {command:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn start_node(database: &TestDatabase, options: &RigOptions<'_>, number: usize) -> Node {
    let (proxy, url) = if options.proxied {
        let (proxy, url) = TcpProxy::before(database.url());
        (Some(proxy), url)
    } else {
        (None, database.url().to_owned())
    };
    let server = (options.options)(number, ServerOptions::new(&url)).start();
    let at_start = Usage::of(&server).expect("it runs");
    Node { server, proxy, at_start }
}

/// The detail of a fault: which process.
pub fn on_node(node: usize) -> String {
    json!({ "process": node }).to_string()
}
