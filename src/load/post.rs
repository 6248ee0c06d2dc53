//! One connection that sends one POST after another.
//!
//! Owns its connection and opens a new one when it is lost. A command without an answer is counted and not repeated: a load
//! measures, it does not settle. HTTP is written as bytes and read by the parser alone: client and server share the machine,
//! and a client that costs as much as the server would measure itself.

use std::io::Write as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Shared;
use super::mix::Planned;
use super::server::LoadServer;
use super::tally::LoadAnswer;

/// How long an answer may take: well above a command's own deadline.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The pause after a connection was lost or refused.
pub(super) const RECONNECT_PAUSE: Duration = Duration::from_millis(100);
/// What is read at once at least: an answer to a command with its head fits.
const READ_BYTES: usize = 4 << 10;
/// The most header fields of an answer.
const HEADERS_MAX: usize = 64;

/// Sends until the run is over.
pub(super) async fn run(shared: Rc<Shared>, server: LoadServer) {
    let mut connection: Option<PostConnection> = None;
    while let Some(due) = shared.timetable.next(Instant::now()) {
        shared.pacer.until(due).await;
        let planned = shared.generator.next();
        let exchanged =
            tokio::time::timeout(ANSWER_TIMEOUT, exchange(&shared, &server, &mut connection, &planned)).await;
        match exchanged.unwrap_or_else(|_| Err(format!("no answer within {ANSWER_TIMEOUT:?}"))) {
            Ok(answer) => shared.answered(&planned, due, &answer),
            Err(why) => {
                connection = None;
                shared.unanswered(1, &why);
                tokio::time::sleep(RECONNECT_PAUSE).await;
            }
        }
    }
}

async fn exchange(
    shared: &Shared,
    server: &LoadServer,
    connection: &mut Option<PostConnection>,
    planned: &Planned,
) -> Result<LoadAnswer, String> {
    let connection = match connection {
        Some(connection) => connection,
        None => connection.insert(PostConnection::new(server.connect_socket().await?)),
    };
    connection.write(server, shared, planned);
    connection.socket.write_all(&connection.request).await.map_err(|error| lost(&error.to_string()))?;
    loop {
        match read_answer(&mut connection.received)? {
            Some(answer) => return Ok(answer),
            None => {
                connection.received.reserve(READ_BYTES);
                let read = connection.socket.read_buf(&mut connection.received).await;
                if read.map_err(|error| lost(&error.to_string()))? == 0 {
                    return Err(lost("the server closed it"));
                }
            }
        }
    }
}

fn lost(why: &str) -> String {
    format!("the connection was lost: {why}")
}

/// A connection with its buffers.
struct PostConnection {
    socket: TcpStream,
    request: Vec<u8>,
    received: BytesMut,
}

impl PostConnection {
    fn new(socket: TcpStream) -> Self {
        Self { socket, request: Vec::new(), received: BytesMut::with_capacity(READ_BYTES) }
    }

    /// Writes the request of a command.
    fn write(&mut self, server: &LoadServer, shared: &Shared, planned: &Planned) {
        let (case_id, body) = (shared.generator.case_id(planned.case), planned.body());
        self.request.clear();
        server.write_post(&mut self.request, format_args!("/v1/cases/{case_id}/{}", planned.command));
        write!(
            self.request,
            "content-type: application/json\r\nidempotency-key: {}\r\ncontent-length: {}\r\n\r\n{body}",
            planned.operation_id,
            body.len()
        )
        .expect("a Vec takes what is written");
    }
}

/// Takes a whole answer off what was received; `None`: more is to come. The error is a sentence.
fn read_answer(received: &mut BytesMut) -> Result<Option<LoadAnswer>, String> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let parsed = head.parse(received).map_err(|error| format!("the answer is no HTTP: {error}"))?;
    let httparse::Status::Complete(head_bytes) = parsed else { return Ok(None) };
    let status = head.code.expect("a complete head has a status");
    let (mut body_bytes, mut replayed) = (None, false);
    for field in head.headers.iter() {
        if field.name.eq_ignore_ascii_case("content-length") {
            body_bytes = std::str::from_utf8(field.value).ok().and_then(|text| text.parse::<usize>().ok());
        } else if field.name.eq_ignore_ascii_case("idempotent-replay") {
            replayed = field.value == b"true";
        }
    }
    let body_bytes = body_bytes.ok_or("the answer has no Content-Length: load the server itself, without a proxy")?;
    if received.len() < head_bytes + body_bytes {
        return Ok(None);
    }
    received.advance(head_bytes);
    // A copy of its own: outcomes are kept for repeats, and must not keep a whole buffer each.
    let body = Bytes::copy_from_slice(&received[..body_bytes]);
    received.advance(body_bytes);
    Ok(Some(LoadAnswer::from_http(status, replayed, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_whole_whatever_the_network_makes_of_it() {
        let wire = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nidempotent-replay: true\r\n\r\n{}HTTP/1.1 503 S\r\n";
        let whole = wire.len() - "HTTP/1.1 503 S\r\n".len();
        for cut in 0..whole {
            assert_eq!(read_answer(&mut BytesMut::from(&wire[..cut])), Ok(None), "{cut} bytes");
        }
        let mut received = BytesMut::from(&wire[..]);
        let body = Bytes::from_static(b"{}");
        assert_eq!(read_answer(&mut received), Ok(Some(LoadAnswer::Outcome { body, is_repeat: true })));
        assert_eq!(&received[..], b"HTTP/1.1 503 S\r\n", "the next one stays");
    }

    #[test]
    fn what_cannot_be_read_is_told_in_words() {
        let read = |wire: &str| read_answer(&mut BytesMut::from(wire.as_bytes())).expect_err("no answer");
        assert!(read("SSH-2.0-x\r\n").starts_with("the answer is no HTTP"));
        assert!(read("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").contains("without a proxy"));
    }
}
