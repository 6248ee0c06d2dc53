//! Any bytes as a stream of lines, in pieces of any size: the lines do not depend on the pieces.
#![no_main]

use bytes::Bytes;
use casework::command_log::{LINE_BYTES_MAX, StreamLine, StreamLineReader};
use futures_util::FutureExt as _;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece_bytes, text) = input;
    let whole = read(text, usize::MAX);
    assert_eq!(read(text, usize::from(piece_bytes).max(1)), whole);
    let expected: Vec<(u64, &[u8])> = (1..)
        .zip(text.split(|byte| *byte == b'\n'))
        .filter(|(_, line)| !line.iter().all(u8::is_ascii_whitespace))
        .collect();
    assert_eq!(whole.len(), expected.len());
    for (line, (number, text)) in whole.iter().zip(expected) {
        assert_eq!(line.number, number);
        assert_eq!(line.text.as_deref(), (text.len() <= LINE_BYTES_MAX).then_some(text));
    }
});

fn read(text: &[u8], piece_bytes: usize) -> Vec<StreamLine> {
    let pieces: Vec<Result<Bytes, String>> =
        text.chunks(piece_bytes.min(text.len().max(1))).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
    let mut reader = StreamLineReader::new(futures_util::stream::iter(pieces));
    let mut lines = Vec::new();
    while let Some(line) = reader.next().now_or_never().expect("the pieces are all there") {
        lines.push(line);
    }
    lines
}
