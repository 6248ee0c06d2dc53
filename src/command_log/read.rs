//! Reading a command log, line by line.
//!
//! Owns the counting of lines (from 1, empty ones counted and skipped), the bound on a line and the unpacking of gzip,
//! which is recognised by its first two bytes, so that pipes may be packed too. Never keeps more than one line, however
//! long the input makes it. Fails with [`io::Error`] for the input and with [`LineError`] for a line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;

use super::line::{LineError, LineRules, LogLine, RECORDED_LINE_BYTES_MAX, parse_line};
use crate::domain::ActorId;

/// The first two bytes of gzip (RFC 1952, section 2.3.1).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Bytes that are read at once.
const BUFFER_BYTES: usize = 64 * 1024;

/// A text input that may be packed: a file, standard input, or bytes in memory.
pub struct LogInput {
    text: Box<dyn BufRead + Send>,
    position: Arc<AtomicU64>,
    bytes: Option<u64>,
}

impl LogInput {
    /// Opens a file, or standard input for `-`.
    ///
    /// # Errors
    /// [`io::Error`] when it can't be opened or its first bytes can't be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Self::from_reader(io::stdin(), None);
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        // A pipe (`/dev/fd/63`) has a length of 0 that says nothing.
        let bytes = metadata.is_file().then_some(metadata.len());
        Self::from_reader(file, bytes)
    }

    /// Reads from memory.
    pub fn from_bytes(bytes: impl AsRef<[u8]> + Send + 'static) -> Self {
        let length = bytes.as_ref().len() as u64;
        Self::from_reader(Cursor::new(bytes), Some(length)).expect("memory can be read")
    }

    fn from_reader(input: impl Read + Send + 'static, bytes: Option<u64>) -> io::Result<Self> {
        let position = Arc::new(AtomicU64::new(0));
        let mut input = Counting { input, position: position.clone() };
        let mut magic = Vec::with_capacity(GZIP_MAGIC.len());
        input.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut magic)?;
        let is_packed = magic == GZIP_MAGIC;
        let input = BufReader::with_capacity(BUFFER_BYTES, Cursor::new(magic).chain(input));
        let text: Box<dyn BufRead + Send> = if is_packed {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(input)))
        } else {
            Box::new(input)
        };
        Ok(Self { text, position, bytes })
    }

    /// How far the input was read, in bytes as it is stored (packed).
    pub fn position(&self) -> Arc<AtomicU64> {
        self.position.clone()
    }

    /// How long the input is, where that is known.
    pub fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// The text, unpacked.
    pub fn into_text(self) -> Box<dyn BufRead + Send> {
        self.text
    }
}

struct Counting<R> {
    input: R,
    position: Arc<AtomicU64>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.position.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// A line that is not empty.
#[derive(Debug)]
pub struct NumberedLine {
    /// Counted from 1; empty lines count.
    pub number: u64,
    /// Its text without the line feed, and what it says.
    pub line: Result<(Vec<u8>, LogLine), LineError>,
}

/// The lines of a recorded log.
pub struct LogReader {
    text: Box<dyn BufRead + Send>,
    number: u64,
    default_actor: Option<ActorId>,
}

impl LogReader {
    /// Reads an input's lines.
    pub fn new(input: LogInput) -> Self {
        Self { text: input.into_text(), number: 0, default_actor: None }
    }

    /// Takes this actor for lines that name none. A server does the same with the token's subject.
    #[must_use]
    pub fn with_default_actor(mut self, actor: ActorId) -> Self {
        self.default_actor = Some(actor);
        self
    }

    /// The number of the line that was read last; 0 before the first.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line that is not empty; `None` at the end.
    ///
    /// # Errors
    /// [`io::Error`] of the input, packed data that ends early among them.
    pub fn next_line(&mut self) -> io::Result<Option<NumberedLine>> {
        loop {
            let Some(text) = self.read_text()? else { return Ok(None) };
            let rules = LineRules { default_actor: self.default_actor.as_ref(), ..LineRules::RECORDED };
            let line = match text {
                Some(text) if text.iter().all(u8::is_ascii_whitespace) => continue,
                Some(text) => parse_line(&text, rules).map(|line| (text, line)),
                None => Err(LineError::TooLong),
            };
            return Ok(Some(NumberedLine { number: self.number, line }));
        }
    }

    /// One line without its line feed; `Some(None)` for one that is longer than can be.
    fn read_text(&mut self) -> io::Result<Option<Option<Vec<u8>>>> {
        let mut text = Vec::new();
        let limit = RECORDED_LINE_BYTES_MAX as u64 + 1;
        if self.text.by_ref().take(limit).read_until(b'\n', &mut text)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if text.last() == Some(&b'\n') {
            text.pop();
            if text.last() == Some(&b'\r') {
                text.pop();
            }
        } else if text.len() > RECORDED_LINE_BYTES_MAX {
            self.text.skip_until(b'\n')?;
            return Ok(Some(None));
        }
        Ok(Some(Some(text)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const NOTE: &str = r#"{"case_id":"62","operation_id":"6f1e4c52-9f0a-4b8e-8d2b-0a6a1f4f7c11","actor":"47","command":"note","reason":"Called."}"#;

    fn numbers(input: LogInput) -> Vec<(u64, bool)> {
        let mut reader = LogReader::new(input);
        let mut numbers = Vec::new();
        while let Some(line) = reader.next_line().expect("readable") {
            numbers.push((line.number, line.line.is_ok()));
        }
        numbers
    }

    fn packed(text: &str) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text.as_bytes()).expect("memory");
        encoder.finish().expect("memory")
    }

    #[test]
    fn lines_are_counted_from_one_and_empty_ones_are_skipped() {
        let log = format!("{NOTE}\n\n  \r\n{{\n{NOTE}\r\n{NOTE}");
        assert_eq!(numbers(LogInput::from_bytes(log)), [(1, true), (4, false), (5, true), (6, true)]);
        assert_eq!(numbers(LogInput::from_bytes("")), []);
        assert_eq!(numbers(LogInput::from_bytes("\n")), []);
    }

    #[test]
    fn packed_logs_are_recognised_by_their_bytes_and_may_have_several_members() {
        let mut bytes = packed(&format!("{NOTE}\n"));
        bytes.extend(packed(&format!("{NOTE}\n")));
        assert_eq!(numbers(LogInput::from_bytes(bytes)), [(1, true), (2, true)]);
    }

    #[test]
    fn a_packed_log_that_ends_early_is_an_error_and_not_a_shorter_log() {
        let mut bytes = packed(&format!("{NOTE}\n"));
        bytes.truncate(bytes.len() - 4);
        let mut reader = LogReader::new(LogInput::from_bytes(bytes));
        let error = std::iter::from_fn(|| reader.next_line().transpose()).find_map(Result::err);
        assert_eq!(error.expect("cut").kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_line_without_end_is_skipped_and_the_next_one_is_read() {
        let log = [vec![b'x'; RECORDED_LINE_BYTES_MAX + 10], b"\n".to_vec(), NOTE.as_bytes().to_vec()].concat();
        assert_eq!(numbers(LogInput::from_bytes(log)), [(1, false), (2, true)]);
    }
}
