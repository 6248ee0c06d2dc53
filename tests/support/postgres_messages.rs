//! Cuts the bytes of a PostgreSQL connection into messages: enough to say where a proxy should hold.
//!
//! Knows the frame (type byte, length), the untyped messages at the start, and which SQL a message belongs to.
//! It changes nothing and refuses nothing: bytes that it can't cut (an encrypted connection) pass as they come.

use std::collections::HashMap;
use std::sync::Arc;

/// One message from the client, as it travels.
#[derive(Debug, Clone)]
pub struct FrontendMessage {
    /// Type byte (`b'P'` Parse, `b'B'` Bind, `b'E'` Execute, `b'S'` Sync, `b'Q'` Query); 0 before there are any.
    pub kind: u8,
    /// Of Parse and Query their own text; of the others the text of the statement bound last.
    pub sql: Option<Arc<str>>,
    /// The parameters of the statement bound last: the whole Bind message, for who looks for a value in it.
    pub parameters: Arc<[u8]>,
    /// The whole message.
    pub bytes: Vec<u8>,
}

impl FrontendMessage {
    /// Whether it is of this type and its SQL contains `fragment`.
    #[must_use]
    pub fn is(&self, kind: u8, fragment: &str) -> bool {
        self.kind == kind && self.sql.as_ref().is_some_and(|sql| sql.contains(fragment))
    }
}

/// One message from the server, as it travels.
#[derive(Debug, Clone)]
pub struct BackendMessage {
    /// Type byte (`b'D'` DataRow, `b'C'` CommandComplete, `b'E'` ErrorResponse, `b'Z'` ReadyForQuery).
    pub kind: u8,
    /// The tag of a CommandComplete (`UPDATE 1`), the SQLSTATE of an ErrorResponse.
    pub word: Option<String>,
    /// The whole message.
    pub bytes: Vec<u8>,
}

/// The two directions of one connection; the start of one decides how the other is read.
#[derive(Debug, Default)]
pub struct Framer {
    frontend: Vec<u8>,
    backend: Vec<u8>,
    started: bool,
    opaque: bool,
    /// Answers of one byte that the server owes (to a request for encryption).
    single_bytes_owed: usize,
    statements: HashMap<Vec<u8>, Arc<str>>,
    bound: Option<Arc<str>>,
    parameters: Arc<[u8]>,
}

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;

impl Framer {
    /// Takes bytes from the client; gives the messages that are whole by now.
    pub fn messages_from_client(&mut self, bytes: &[u8]) -> Vec<FrontendMessage> {
        self.frontend.extend_from_slice(bytes);
        let mut messages = Vec::new();
        while let Some(bytes) = self.next_client_message() {
            let kind = if self.started && !self.opaque { bytes[0] } else { 0 };
            let sql = if kind == 0 {
                self.note_start(&bytes);
                None
            } else {
                self.sql_of(kind, &bytes[5..])
            };
            if kind == b'B' {
                self.parameters = bytes.as_slice().into();
            }
            messages.push(FrontendMessage { kind, sql, parameters: Arc::clone(&self.parameters), bytes });
        }
        messages
    }

    /// Takes bytes from the server; gives the messages that are whole by now.
    pub fn messages_from_server(&mut self, bytes: &[u8]) -> Vec<BackendMessage> {
        self.backend.extend_from_slice(bytes);
        let mut messages = Vec::new();
        loop {
            let (kind, bytes) = if self.opaque {
                (0, take_all(&mut self.backend))
            } else if self.single_bytes_owed > 0 && !self.backend.is_empty() {
                self.single_bytes_owed -= 1;
                self.opaque = self.backend[0] != b'N';
                (0, Some(self.backend.drain(..1).collect()))
            } else {
                let bytes = take_framed(&mut self.backend, 1);
                (bytes.as_ref().map_or(0, |bytes| bytes[0]), bytes)
            };
            let Some(bytes) = bytes else { return messages };
            let word = match kind {
                b'C' => Some(text_to_nul(&bytes[5..])),
                b'E' => error_code(&bytes[5..]),
                _ => None,
            };
            messages.push(BackendMessage { kind, word, bytes });
        }
    }

    fn next_client_message(&mut self) -> Option<Vec<u8>> {
        if self.opaque {
            take_all(&mut self.frontend)
        } else {
            take_framed(&mut self.frontend, usize::from(self.started))
        }
    }

    /// Reads an untyped message: a request for encryption, or the start of the session itself.
    fn note_start(&mut self, bytes: &[u8]) {
        if self.opaque {
            return;
        }
        match bytes.get(4..8).map(number) {
            Some(SSL_REQUEST | GSS_REQUEST) => self.single_bytes_owed += 1,
            _ => self.started = true,
        }
    }

    fn sql_of(&mut self, kind: u8, body: &[u8]) -> Option<Arc<str>> {
        let mut parts = body.split(|byte| *byte == 0);
        match kind {
            b'Q' => Some(text_to_nul(body).into()),
            b'P' => {
                let name = parts.next()?.to_vec();
                let sql: Arc<str> = String::from_utf8_lossy(parts.next()?).into();
                self.statements.insert(name, Arc::clone(&sql));
                Some(sql)
            }
            b'B' => {
                let name = parts.nth(1)?;
                self.bound = self.statements.get(name).cloned();
                self.bound.clone()
            }
            _ => self.bound.clone(),
        }
    }
}

fn take_all(buffer: &mut Vec<u8>) -> Option<Vec<u8>> {
    (!buffer.is_empty()).then(|| std::mem::take(buffer))
}

/// Takes one message of `type_bytes` bytes and a length that counts itself.
fn take_framed(buffer: &mut Vec<u8>, type_bytes: usize) -> Option<Vec<u8>> {
    let length = number(buffer.get(type_bytes..type_bytes + 4)?) as usize;
    let end = type_bytes + length.max(4);
    (buffer.len() >= end).then(|| buffer.drain(..end).collect())
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn text_to_nul(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// The field `C` of an ErrorResponse.
fn error_code(body: &[u8]) -> Option<String> {
    body.split(|byte| *byte == 0)
        .find_map(|field| field.strip_prefix(b"C"))
        .map(|code| String::from_utf8_lossy(code).into_owned())
}
