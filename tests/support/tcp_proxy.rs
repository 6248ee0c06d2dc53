//! A proxy on loopback that does to a PostgreSQL connection what a network can: hold back, cut, let pass late.
//!
//! Without orders it passes everything. [`TcpProxy::hold`] stops a direction from this moment. A [`Hold`] waits for
//! one message ("the next Sync of the statement that inserts operations") and stops its connection
//! there, while all others go on. Held bytes are kept, in order, until they are released or cut. Once a hold has
//! taken a connection, the end of its client does not reach the server: a late message arrives as if its
//! sender were still there, which is the case to fear. Dropping the proxy closes all its connections.

use std::collections::HashMap;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::postgres_messages::FrontendMessage;
use super::tcp_proxy_engine::{Connection, HoldState, Shared, Stop};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to PostgreSQL: statements.
    ToServer = 0,
    /// From PostgreSQL to the client: answers.
    ToClient = 1,
}

/// What has gone through so far.
#[derive(Debug, Clone, Default)]
pub struct Counts {
    /// Connections taken since the start.
    pub connections: usize,
    /// Connections that are open.
    pub connections_open: usize,
    /// Bytes received, by direction (`Direction as usize`), held ones included.
    pub bytes: [usize; 2],
    /// Messages from clients by type byte, held ones included.
    pub frontend_messages: HashMap<u8, usize>,
}

/// What PostgreSQL answered from the message on that a [`Hold`] waited for.
#[derive(Debug, Clone, Default)]
pub struct ServerAnswer {
    /// Tags of statements that ended well (`INSERT 0 1`).
    pub command_tags: Vec<String>,
    /// SQLSTATEs of errors.
    pub error_codes: Vec<String>,
    /// Times that the server said it is ready for the next statement: the exchange is over, the commit made.
    pub ready: usize,
}

/// The proxy. All methods take effect before they return.
pub struct TcpProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl TcpProxy {
    /// Starts a proxy in front of `upstream`.
    ///
    /// # Panics
    /// When loopback has no free port.
    #[must_use]
    pub fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let shared = Arc::new(Shared::new(upstream));
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || accepting.accept_all(&listener));
        Self { address, shared }
    }

    /// Starts a proxy in front of the server of a `postgres://` URL; gives it with the URL through it.
    ///
    /// # Panics
    /// When the URL names no numeric address and port.
    #[must_use]
    #[track_caller]
    pub fn before(url: &str) -> (Self, String) {
        let (scheme, rest) = url.split_once("://").expect("a URL has a scheme");
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, address) = authority.rsplit_once('@').unwrap_or(("postgres", authority));
        let proxy = Self::start(address.parse().expect("a test server has a numeric address"));
        let url = format!("{scheme}://{user}@{}/{path}", proxy.address);
        (proxy, url)
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on keeps what goes this way, on all connections, new ones too.
    pub fn hold(&self, direction: Direction) {
        self.shared.change(|state| state.held[direction as usize] = true);
    }

    /// Lets what was kept go on, and what follows.
    pub fn release(&self, direction: Direction) {
        self.shared.change(|state| state.held[direction as usize] = false);
    }

    /// Closes all connections both ways; what was kept is lost. New connections are taken.
    pub fn cut(&self) {
        self.shared.change(|state| {
            for connection in state.connections.values_mut() {
                connection.close();
            }
        });
    }

    /// From now on closes new connections at once (`true`), or takes them again.
    pub fn refuse_connections(&self, refuse: bool) {
        self.shared.change(|state| state.refuse = refuse);
    }

    /// What has gone through so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let state = self.shared.lock();
        let open = state.connections.values().filter(|connection| !connection.closed);
        Counts { connections_open: open.count(), ..state.counts.clone() }
    }

    /// Holds the next message of a client that `matches`, and all behind it on its connection.
    #[must_use]
    pub fn hold_next(&self, matches: impl Fn(&FrontendMessage) -> bool + Send + 'static) -> Hold {
        self.arm(matches, Stop::Message)
    }

    /// Lets the next message of a client that `matches` pass, and holds all that is answered.
    #[must_use]
    pub fn hold_answer_to_next(&self, matches: impl Fn(&FrontendMessage) -> bool + Send + 'static) -> Hold {
        self.arm(matches, Stop::Answer(None))
    }

    /// Lets the next message of a client that `matches` pass, and its answer up to, not with, the first message of
    /// type `kind` (`b'Z'`: rows pass, the end of the exchange does not).
    #[must_use]
    pub fn hold_answer_from(&self, kind: u8, matches: impl Fn(&FrontendMessage) -> bool + Send + 'static) -> Hold {
        self.arm(matches, Stop::Answer(Some(kind)))
    }

    fn arm(&self, matches: impl Fn(&FrontendMessage) -> bool + Send + 'static, stop: Stop) -> Hold {
        let index = self.shared.change(|state| {
            state.holds.push(HoldState::new(Box::new(matches), stop));
            state.holds.len() - 1
        });
        Hold { shared: Arc::clone(&self.shared), index }
    }
}

impl Drop for TcpProxy {
    fn drop(&mut self) {
        self.shared.change(|state| state.stopped = true);
        self.cut();
        // Wakes the thread that waits for connections; it sees `stopped`.
        let _ = TcpStream::connect(self.address);
    }
}

/// A stop at one message of one connection. It stays as it is when the handle is dropped.
pub struct Hold {
    shared: Arc<Shared>,
    index: usize,
}

impl Hold {
    /// Waits until the message came and is held.
    ///
    /// # Panics
    /// When it has not come within `deadline`.
    #[track_caller]
    pub fn wait_held(&self, deadline: Duration) {
        self.wait_for(deadline, "the message to hold comes", |hold| hold.placed);
    }

    /// Whether the message came and is held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.shared.lock().holds[self.index].placed
    }

    /// The port from which the proxy is connected to PostgreSQL for this connection: `client_port` in `pg_stat_activity`.
    ///
    /// # Panics
    /// When nothing is held yet, or the connection has ended.
    #[must_use]
    #[track_caller]
    pub fn port_at_server(&self) -> u16 {
        let state = self.shared.lock();
        let number = state.holds[self.index].connection.expect("the message to hold came: wait_held says so");
        let address = state.connections[&number].server.local_addr();
        address.expect("an open socket has an address").port()
    }

    /// Closes the client's side: it sees a lost connection. The server's side stays open.
    ///
    /// # Panics
    /// When nothing is held yet.
    #[track_caller]
    pub fn cut_client(&self) {
        self.on_connection(|connection| {
            let _ = connection.client.shutdown(Shutdown::Both);
        });
    }

    /// Closes both sides; what was held is lost.
    ///
    /// # Panics
    /// When nothing is held yet.
    #[track_caller]
    pub fn cut(&self) {
        self.on_connection(Connection::close);
    }

    /// Lets what was held go on, and what follows. Before the message came: it will not be held.
    pub fn release(&self) {
        self.shared.change(|state| state.holds[self.index].released = true);
    }

    /// Waits until PostgreSQL has ended the exchange, whether the client hears it or not.
    ///
    /// # Panics
    /// When it has not within `deadline`.
    #[track_caller]
    pub fn wait_answered(&self, deadline: Duration) -> ServerAnswer {
        self.wait_for(deadline, "PostgreSQL ends the exchange", |hold| hold.answer.ready > 0);
        self.answer()
    }

    /// What PostgreSQL answered so far.
    #[must_use]
    pub fn answer(&self) -> ServerAnswer {
        self.shared.lock().holds[self.index].answer.clone()
    }

    #[track_caller]
    fn wait_for(&self, deadline: Duration, what: &str, holds: impl Fn(&HoldState) -> bool) {
        let until = Instant::now() + deadline;
        let mut state = self.shared.lock();
        while !holds(&state.holds[self.index]) {
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited {deadline:?} in vain until {what}");
            state = self.shared.wait_at_most(state, left);
        }
    }

    #[track_caller]
    fn on_connection(&self, act: impl FnOnce(&mut Connection)) {
        self.shared.change(|state| {
            let number = state.holds[self.index].connection;
            let number = number.expect("the message to hold came: wait_held says so");
            // A connection that ended by itself needs nothing.
            if let Some(connection) = state.connections.get_mut(&number) {
                act(connection);
            }
        });
    }
}
