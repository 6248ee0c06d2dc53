//! The inside of the proxy: who is connected, what waits to be written, and the threads that move it.
//!
//! Four threads a connection: each direction has a reader, which cuts messages and puts them in a queue without
//! bound, and a writer, which takes them out unless they are held. So a held direction still reads, and what a
//! client sent before it was cut is not lost with its socket. One lock guards everything; the traffic is a
//! test's.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use super::postgres_messages::{BackendMessage, Framer, FrontendMessage};
use super::tcp_proxy::Direction::{self, ToClient, ToServer};
use super::tcp_proxy::{Counts, ServerAnswer};

/// Decides whether a message is the one to hold.
pub(super) type Matcher = Box<dyn Fn(&FrontendMessage) -> bool + Send>;

/// Where a hold stops.
#[derive(Debug, Clone, Copy)]
pub(super) enum Stop {
    Message,
    /// At the first message of the answer, or at the first of this type.
    Answer(Option<u8>),
}

pub(super) struct HoldState {
    pub(super) matches: Matcher,
    pub(super) stop: Stop,
    /// The connection whose message matched.
    pub(super) connection: Option<usize>,
    pub(super) placed: bool,
    pub(super) released: bool,
    pub(super) answer: ServerAnswer,
}

/// What waits to be written.
pub(super) enum Item {
    Bytes(Vec<u8>),
    /// Nothing behind it is written before this hold is released.
    Barrier(usize),
    End,
}

pub(super) struct Connection {
    pub(super) client: TcpStream,
    pub(super) server: TcpStream,
    pub(super) framer: Framer,
    pub(super) queues: [VecDeque<Item>; 2],
    /// The hold that stops the answer, from when its message matched until the barrier stands.
    pub(super) answer_hold: Option<usize>,
    pub(super) ever_held: bool,
    pub(super) closed: bool,
    pub(super) writers_left: u8,
}

impl Connection {
    pub(super) fn close(&mut self) {
        self.closed = true;
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) held: [bool; 2],
    pub(super) refuse: bool,
    pub(super) stopped: bool,
    pub(super) counts: Counts,
    pub(super) connections: HashMap<usize, Connection>,
    pub(super) holds: Vec<HoldState>,
}

/// The state, its lock, and the threads' way to it.
pub(super) struct Shared {
    upstream: SocketAddr,
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub(super) fn new(upstream: SocketAddr) -> Self {
        Self { upstream, state: Mutex::default(), changed: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }

    /// Changes the state and wakes every thread that waits for a change.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    pub(super) fn wait_at_most<'a>(&self, state: MutexGuard<'a, State>, limit: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.expect("no holder of the lock panics").0
    }

    /// Takes connections until the proxy is dropped.
    pub(super) fn accept_all(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming().flatten() {
            let (stopped, refuse) = {
                let state = self.lock();
                (state.stopped, state.refuse)
            };
            if stopped {
                return;
            }
            // No server behind the proxy: the client sees its connection closed, as without a proxy.
            if refuse {
                continue;
            }
            if let Ok(server) = TcpStream::connect(self.upstream) {
                self.connect(client, server);
            }
        }
    }

    fn connect(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        const CLONED: &str = "a socket can be cloned";
        for stream in [&client, &server] {
            stream.set_nodelay(true).expect("a socket has the option");
        }
        let ends = [
            (ToServer, client.try_clone().expect(CLONED), server.try_clone().expect(CLONED)),
            (ToClient, server.try_clone().expect(CLONED), client.try_clone().expect(CLONED)),
        ];
        let number = self.change(|state| {
            let number = state.counts.connections;
            state.counts.connections += 1;
            let mut connection = Connection::new(client, server);
            // The proxy may have been dropped since this connection came.
            if state.stopped {
                connection.close();
            }
            state.connections.insert(number, connection);
            number
        });
        for (direction, source, sink) in ends {
            let shared = Arc::clone(self);
            std::thread::spawn(move || shared.read_all(number, direction, source));
            let shared = Arc::clone(self);
            std::thread::spawn(move || shared.write_all(number, direction, sink));
        }
    }

    fn read_all(&self, number: usize, direction: Direction, mut source: TcpStream) {
        let mut bytes = vec![0; 64 * 1024];
        loop {
            let length = source.read(&mut bytes).unwrap_or(0);
            self.change(|state| match direction {
                _ if length == 0 => state.end(number, direction),
                ToServer => state.take_from_client(number, &bytes[..length]),
                ToClient => state.take_from_server(number, &bytes[..length]),
            });
            if length == 0 {
                return;
            }
        }
    }

    fn write_all(&self, number: usize, direction: Direction, mut sink: TcpStream) {
        while let Some(bytes) = self.next_to_write(number, direction) {
            // A receiver that is gone loses its bytes; the rest is still taken, so that the sender never waits.
            let _ = sink.write_all(&bytes);
        }
        let _ = sink.shutdown(Shutdown::Write);
        self.change(|state| state.finish(number));
    }

    /// Waits for bytes that may be written; `None` at the end of this direction.
    fn next_to_write(&self, number: usize, direction: Direction) -> Option<Vec<u8>> {
        let mut state = self.lock();
        loop {
            match state.pop(number, direction) {
                Popped::Bytes(bytes) => return Some(bytes),
                Popped::End => return None,
                Popped::Wait => {
                    state = self.changed.wait(state).expect("no holder of the lock panics");
                }
            }
        }
    }
}

enum Popped {
    Bytes(Vec<u8>),
    End,
    Wait,
}

impl HoldState {
    pub(super) fn new(matches: Matcher, stop: Stop) -> Self {
        Self { matches, stop, connection: None, placed: false, released: false, answer: ServerAnswer::default() }
    }
}

impl Connection {
    fn new(client: TcpStream, server: TcpStream) -> Self {
        Self {
            client,
            server,
            framer: Framer::default(),
            queues: [VecDeque::new(), VecDeque::new()],
            answer_hold: None,
            ever_held: false,
            closed: false,
            writers_left: 2,
        }
    }
}

impl State {
    fn take_from_client(&mut self, number: usize, bytes: &[u8]) {
        self.counts.bytes[ToServer as usize] += bytes.len();
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        for message in connection.framer.messages_from_client(bytes) {
            *self.counts.frontend_messages.entry(message.kind).or_default() += 1;
            for (index, hold) in self.holds.iter_mut().enumerate() {
                let waits = hold.connection.is_none() && !hold.released;
                if !waits || !(hold.matches)(&message) {
                    continue;
                }
                hold.connection = Some(number);
                connection.ever_held = true;
                match hold.stop {
                    Stop::Message => {
                        hold.placed = true;
                        connection.queues[ToServer as usize].push_back(Item::Barrier(index));
                    }
                    Stop::Answer(_) => connection.answer_hold = Some(index),
                }
            }
            connection.queues[ToServer as usize].push_back(Item::Bytes(message.bytes));
        }
    }

    fn take_from_server(&mut self, number: usize, bytes: &[u8]) {
        self.counts.bytes[ToClient as usize] += bytes.len();
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        for message in connection.framer.messages_from_server(bytes) {
            for hold in &mut self.holds {
                if hold.connection == Some(number) {
                    hold.answer.note(&message);
                }
            }
            if let Some(index) = connection.answer_hold {
                let hold = &mut self.holds[index];
                if matches!(hold.stop, Stop::Answer(kind) if kind.is_none_or(|kind| kind == message.kind)) {
                    hold.placed = true;
                    connection.answer_hold = None;
                    connection.queues[ToClient as usize].push_back(Item::Barrier(index));
                }
            }
            connection.queues[ToClient as usize].push_back(Item::Bytes(message.bytes));
        }
    }

    /// One side sends nothing more.
    fn end(&mut self, number: usize, direction: Direction) {
        if let Some(connection) = self.connections.get_mut(&number) {
            // The end of a held client is kept from the server (see the head of `tcp_proxy`).
            if direction == ToServer && connection.ever_held && !connection.closed {
                return;
            }
            connection.queues[direction as usize].push_back(Item::End);
        }
    }

    fn pop(&mut self, number: usize, direction: Direction) -> Popped {
        let Some(connection) = self.connections.get_mut(&number) else {
            return Popped::End;
        };
        if connection.closed {
            return Popped::End;
        }
        if self.held[direction as usize] {
            return Popped::Wait;
        }
        let queue = &mut connection.queues[direction as usize];
        while let Some(item) = queue.pop_front() {
            match item {
                Item::Bytes(bytes) => return Popped::Bytes(bytes),
                Item::End => return Popped::End,
                Item::Barrier(index) if self.holds[index].released => {}
                Item::Barrier(index) => {
                    queue.push_front(Item::Barrier(index));
                    return Popped::Wait;
                }
            }
        }
        Popped::Wait
    }

    /// A writer is done; with the second one the connection is forgotten, and its sockets close.
    fn finish(&mut self, number: usize) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.writers_left -= 1;
            if connection.writers_left == 0 {
                self.connections.remove(&number);
            }
        }
    }
}

impl ServerAnswer {
    fn note(&mut self, message: &BackendMessage) {
        match (message.kind, &message.word) {
            (b'C', Some(tag)) => self.command_tags.push(tag.clone()),
            (b'E', Some(code)) => self.error_codes.push(code.clone()),
            (b'Z', _) => self.ready += 1,
            _ => {}
        }
    }
}
