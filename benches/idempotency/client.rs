//! The client of all contenders: a fixed number of keep-alive connections, each of which asks, waits for its answer, and asks
//! again.
//!
//! Owns the requests, which are the same bytes for everybody but for the session that a server gave, and are made before
//! anything is measured. Each connection is a caller of its own with some keys of its own. An answer that is not what it
//! should be ends the run.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Connections at a time.
pub const CONNECTIONS: usize = 32;
/// Keys of each connection; they are asked for in turn.
const KEYS: usize = 32;
/// About 200 bytes, as a payment has.
pub const BODY: &str = r#"{"amount": {"value": "125.50", "currency": "EUR"}, "debtor": "NL00BANK0123456789", "creditor": "NL00BANK9876543210", "reference": "case 62, fee for a permit", "execute_on": "2026-12-01"}"#;

/// What came of a run.
pub struct Asked {
    /// Of every answer, shortest first.
    pub latencies: Vec<Duration>,
    /// From the first request to the last answer.
    pub time: Duration,
}

/// The client of one server, with its requests.
pub struct Client {
    address: SocketAddr,
    requests: Vec<Vec<Vec<u8>>>,
    runtime: tokio::runtime::Runtime,
}

/// A connection with its buffer.
struct Connection {
    socket: TcpStream,
    received: Vec<u8>,
}

/// What of an answer is looked at.
struct Answer {
    status: u16,
    is_replay: bool,
    cookie: Option<String>,
}

impl Client {
    /// Gets a session for each connection, and sends each request once, so that all later ones are repeats.
    pub fn prepare(url: &str) -> Self {
        let address = url.strip_prefix("http://").unwrap().parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let requests = runtime.block_on(async {
            let mut connection = Connection::open(address).await;
            let mut requests = Vec::new();
            for _ in 0..CONNECTIONS {
                let session = b"POST /session HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n";
                let cookie = connection.ask(session).await.cookie.expect("a session");
                let of_connection: Vec<_> = (0..KEYS).map(|_| request(&cookie)).collect();
                for request in &of_connection {
                    assert_eq!(connection.ask(request).await.status, 201);
                }
                requests.push(of_connection);
            }
            requests
        });
        Self { address, requests, runtime }
    }

    /// Asks for so long on all connections.
    pub fn ask_for(&self, time: Duration, expects_replay: bool) -> Asked {
        self.runtime.block_on(async {
            let mut connections = Vec::new();
            for _ in &self.requests {
                connections.push(Connection::open(self.address).await);
            }
            let started = Instant::now();
            let asking = self.requests.iter().zip(connections).map(|(requests, mut connection)| async move {
                let mut latencies = Vec::new();
                for request in requests.iter().cycle() {
                    let asked = Instant::now();
                    let answer = connection.ask(request).await;
                    assert_eq!((answer.status, answer.is_replay), (201, expects_replay));
                    latencies.push(asked.elapsed());
                    if started.elapsed() >= time {
                        break;
                    }
                }
                latencies
            });
            let mut latencies = futures_util::future::join_all(asking).await.concat();
            let time = started.elapsed();
            latencies.sort_unstable();
            Asked { latencies, time }
        })
    }
}

/// The bytes of a request under a new key.
fn request(cookie: &str) -> Vec<u8> {
    let key = uuid::Uuid::new_v4();
    let length = BODY.len();
    format!(
        "POST /payments HTTP/1.1\r\nhost: 127.0.0.1\r\ncookie: {cookie}\r\nidempotency-key: {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{BODY}"
    )
    .into_bytes()
}

impl Connection {
    async fn open(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).await.unwrap();
        socket.set_nodelay(true).unwrap();
        Self { socket, received: Vec::with_capacity(8 << 10) }
    }

    async fn ask(&mut self, request: &[u8]) -> Answer {
        self.socket.write_all(request).await.unwrap();
        self.received.clear();
        loop {
            assert_ne!(self.socket.read_buf(&mut self.received).await.unwrap(), 0, "the server closed the connection");
            if let Some(answer) = read_answer(&self.received) {
                return answer;
            }
        }
    }
}

/// An answer that has come whole.
fn read_answer(received: &[u8]) -> Option<Answer> {
    let mut fields = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(head_bytes) = head.parse(received).unwrap() else { return None };
    let mut answer = Answer { status: head.code.unwrap(), is_replay: false, cookie: None };
    let mut body_bytes = 0;
    for field in head.headers.iter() {
        let text = || std::str::from_utf8(field.value).unwrap();
        if field.name.eq_ignore_ascii_case("content-length") {
            body_bytes = text().parse().unwrap();
        } else if ["idempotent-replay", "idempotency-replayed"].iter().any(|name| field.name.eq_ignore_ascii_case(name))
        {
            answer.is_replay = field.value == b"true";
        } else if field.name.eq_ignore_ascii_case("set-cookie") {
            answer.cookie = text().split(';').next().map(str::to_owned);
        }
    }
    (received.len() == head_bytes + body_bytes).then_some(answer)
}
