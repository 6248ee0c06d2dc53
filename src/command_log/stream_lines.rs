//! Cutting a stream of bytes into lines.
//!
//! Owns the bound on a line: of one that is too long nothing is kept, and the stream goes on behind it. Reads no more than
//! it is asked for. What an upload that broke off left of its last line is dropped.

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};

use super::line::LINE_BYTES_MAX;

/// A line that is not empty, with its number from 1 (empty lines are counted).
#[derive(Debug, PartialEq, Eq)]
pub struct StreamLine {
    /// Where it stands.
    pub number: u64,
    /// Without its line feed; `None`: it is too long.
    pub text: Option<Bytes>,
}

/// Reads lines from pieces of any size.
pub struct StreamLineReader<S> {
    pieces: S,
    buffer: BytesMut,
    /// How much of the buffer is known to hold no line feed.
    searched: usize,
    number: u64,
    /// Inside a line that was reported as too long.
    skipping: bool,
    ended: bool,
}

impl<S, E> StreamLineReader<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: std::fmt::Display,
{
    /// At the first line.
    pub fn new(pieces: S) -> Self {
        Self { pieces, buffer: BytesMut::new(), searched: 0, number: 0, skipping: false, ended: false }
    }

    /// The next line; `None` at the end. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<StreamLine> {
        loop {
            if let Some(line) = self.cut() {
                return Some(line);
            }
            if self.ended {
                return None;
            }
            match self.pieces.next().await {
                Some(Ok(piece)) => self.buffer.extend_from_slice(&piece),
                Some(Err(error)) => {
                    tracing::debug!(%error, "a stream of commands broke off");
                    self.buffer.clear();
                    self.searched = 0;
                    self.ended = true;
                }
                None => self.ended = true,
            }
        }
    }

    /// Takes a line out of the buffer, if one is whole or too long.
    fn cut(&mut self) -> Option<StreamLine> {
        loop {
            let feed = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n').map(|at| self.searched + at);
            let (text, is_last) = match feed {
                Some(at) => {
                    let mut text = self.buffer.split_to(at + 1);
                    text.truncate(at);
                    (text, false)
                }
                None if self.ended && !self.buffer.is_empty() => (self.buffer.split(), true),
                None if self.skipping => {
                    self.buffer.clear();
                    self.searched = 0;
                    return None;
                }
                None if self.buffer.len() > LINE_BYTES_MAX => {
                    self.buffer.clear();
                    self.searched = 0;
                    self.skipping = true;
                    self.number += 1;
                    return Some(StreamLine { number: self.number, text: None });
                }
                None => {
                    self.searched = self.buffer.len();
                    return None;
                }
            };
            self.searched = 0;
            if std::mem::take(&mut self.skipping) {
                // The rest of the line that was reported.
                if is_last {
                    return None;
                }
                continue;
            }
            self.number += 1;
            if text.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let text = (text.len() <= LINE_BYTES_MAX).then(|| text.freeze());
            return Some(StreamLine { number: self.number, text });
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// Reads a text in pieces of one size.
    fn lines(text: &[u8], piece_bytes: usize) -> Vec<(u64, Option<usize>)> {
        let pieces: Vec<Result<Bytes, String>> =
            text.chunks(piece_bytes).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let mut reader = StreamLineReader::new(futures_util::stream::iter(pieces));
        let mut lines = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        while let Some(line) = runtime.block_on(reader.next()) {
            lines.push((line.number, line.text.map(|text| text.len())));
        }
        lines
    }

    #[test]
    fn lines_are_the_same_in_pieces_of_any_size() {
        let text = b"{}\n\n  \r\n[1]\r\nlast";
        for piece_bytes in [1, 2, 3, 100] {
            assert_eq!(lines(text, piece_bytes), [(1, Some(2)), (4, Some(4)), (5, Some(4))]);
        }
        assert_eq!(lines(b"", 1), []);
        assert_eq!(lines(b"\n\n", 1), []);
    }

    #[test]
    fn a_line_that_is_too_long_is_reported_once_and_the_stream_goes_on() {
        let fits = vec![b'x'; LINE_BYTES_MAX];
        let too_long = vec![b'x'; LINE_BYTES_MAX + 1];
        let far_too_long = vec![b'x'; 5 * LINE_BYTES_MAX];
        let text = [&fits[..], &too_long, b"{}", &far_too_long, b"[]", &too_long].join(&b'\n');
        let expected = [(1, Some(LINE_BYTES_MAX)), (2, None), (3, Some(2)), (4, None), (5, Some(2)), (6, None)];
        for piece_bytes in [1_000, 65_536, 1 << 20] {
            assert_eq!(lines(&text, piece_bytes), expected);
        }
    }

    #[test]
    fn what_broke_off_is_dropped() {
        let pieces = [Ok(Bytes::from_static(b"{}\n{\"a\"")), Err("reset")];
        let mut reader = StreamLineReader::new(futures_util::stream::iter(pieces));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(reader.next()).map(|line| line.number), Some(1));
        assert_eq!(runtime.block_on(reader.next()), None);
    }
}
