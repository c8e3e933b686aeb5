//! Makes a piece of a log of chunks: each chunk once, and characters whole.

use subjects::{NodeId, job::LogChunk};

use super::cursor::Cursor;

/// A chunk as the stream has it.
#[derive(Debug)]
pub(super) struct StoredChunk {
    pub(super) sequence: u64,
    pub(super) node: NodeId,
    pub(super) chunk: LogChunk,
}

/// A piece of a log, of one attempt.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) attempt: Option<u32>,
    pub(super) bytes: Vec<u8>,
    /// Where the next piece begins.
    pub(super) cursor: Cursor,
    /// The chunks that were read hold more than the piece.
    pub(super) has_more: bool,
    /// The next chunk is of another attempt: nothing continues the last character.
    is_attempt_over: bool,
    /// Where reading began.
    from: Cursor,
    parts: Vec<Part>,
}

/// Where the content of a chunk begins in a piece.
#[derive(Debug)]
struct Part {
    start: usize,
    sequence: u64,
    /// The bytes of the chunk that an earlier piece has.
    skipped: usize,
    node: NodeId,
    attempt: u32,
    number: u64,
}

impl Piece {
    /// Takes what follows `from`, at most `limit` bytes. `read_to` is the sequence up to which the stream was
    /// read, if there was anything to read.
    pub(super) fn new(chunks: &[StoredChunk], from: Cursor, read_to: Option<u64>, limit: usize) -> Self {
        let mut piece = Self {
            attempt: None,
            bytes: Vec::new(),
            cursor: from.clone(),
            has_more: false,
            is_attempt_over: false,
            from,
            parts: Vec::new(),
        };
        for StoredChunk { sequence, node, chunk } in chunks {
            let resumed = piece.from.bytes.filter(|_| piece.from.sequence == *sequence);
            if resumed.is_none() && !piece.cursor.shown.is_new(node, chunk.attempt, chunk.number) {
                continue;
            }
            let attempt = *piece.attempt.get_or_insert(chunk.attempt);
            piece.is_attempt_over = chunk.attempt != attempt;
            if piece.is_attempt_over || piece.bytes.len() >= limit {
                piece.end_before(*sequence);
                return piece;
            }
            let skipped = resumed.unwrap_or_default();
            let rest = chunk.bytes.get(skipped..).unwrap_or_default();
            let (start, room) = (piece.bytes.len(), limit - piece.bytes.len());
            let (node, number) = (node.clone(), chunk.number);
            piece.parts.push(Part { start, sequence: *sequence, skipped, node, attempt, number });
            piece.bytes.extend_from_slice(&rest[..rest.len().min(room)]);
            if rest.len() > room {
                piece.has_more = true;
                piece.cut_at(limit);
                return piece;
            }
            piece.cursor.shown.add(&piece.parts[piece.parts.len() - 1].node, attempt, number);
        }
        if let Some(sequence) = read_to {
            (piece.cursor.sequence, piece.cursor.bytes) = (sequence, None);
        }
        piece
    }

    /// Leaves a character of which only the beginning was written to the next piece. `is_end` says that
    /// nothing more comes.
    pub(super) fn keep_characters_whole(&mut self, is_end: bool) {
        let unfinished = unfinished_character(&self.bytes);
        if unfinished > 0 && !is_end && !self.is_attempt_over {
            self.cut_at(self.bytes.len() - unfinished);
        }
    }

    /// Ends the piece with all that was taken, before a chunk that is not.
    fn end_before(&mut self, sequence: u64) {
        (self.cursor.sequence, self.cursor.bytes) = (sequence, Some(0));
        self.has_more = true;
    }

    /// Ends the piece after some of its bytes.
    fn cut_at(&mut self, end: usize) {
        self.bytes.truncate(end);
        let Some(at) = self.parts.iter().rposition(|part| part.start <= end) else { return };
        let mut shown = self.from.shown.clone();
        self.parts[..at].iter().for_each(|part| shown.add(&part.node, part.attempt, part.number));
        let part = &self.parts[at];
        self.cursor = Cursor { sequence: part.sequence, bytes: Some(part.skipped + end - part.start), shown };
    }
}

/// Returns how many bytes at the end of a text are the beginning of a UTF-8 character: 0 to 3. Bytes that are
/// no beginning are not text, and not waited for.
pub fn unfinished_character(bytes: &[u8]) -> usize {
    let is_unfinished = |length: &usize| {
        let tail = bytes.len().checked_sub(*length).and_then(|from| bytes.get(from..)).unwrap_or_default();
        std::str::from_utf8(tail).is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
    };
    (1..=3).find(is_unfinished).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn chunk(sequence: u64, attempt: u32, number: u64, bytes: &[u8]) -> StoredChunk {
        let chunk = LogChunk { attempt, number, bytes: Bytes::copy_from_slice(bytes) };
        StoredChunk { sequence, node: "n1".parse().unwrap(), chunk }
    }

    /// Reads a log that has ended to its end, in pieces, as text.
    fn read_all(chunks: &[StoredChunk], limit: usize) -> Vec<String> {
        let (mut cursor, mut texts) = (Cursor::default(), Vec::new());
        for _ in 0..100 {
            let first = cursor.sequence + u64::from(cursor.bytes.is_none());
            let from = chunks.iter().position(|chunk| chunk.sequence >= first).unwrap_or(chunks.len());
            let read_to = chunks[from..].last().map(|last| last.sequence);
            let mut piece = Piece::new(&chunks[from..], cursor.clone(), read_to, limit);
            piece.keep_characters_whole(!piece.has_more);
            texts.push(String::from_utf8_lossy(&piece.bytes).into_owned());
            if !piece.has_more {
                return texts;
            }
            // As a client has it.
            cursor = piece.cursor.to_string().parse().unwrap();
        }
        panic!("no end: {texts:?}");
    }

    #[test]
    fn chunk_that_is_stored_twice_is_shown_once_however_small_the_pieces_are() {
        let chunks = [
            chunk(1, 1, 1, b"one "),
            chunk(2, 1, 2, b"two "),
            chunk(3, 1, 1, b"one "),
            chunk(5, 1, 2, b"two "),
            chunk(6, 1, 3, b"three"),
            chunk(7, 1, 3, b"three"),
        ];
        for limit in 4..20 {
            assert_eq!(read_all(&chunks, limit).concat(), "one two three", "{limit}");
        }
    }

    #[test]
    fn each_attempt_has_pieces_of_its_own() {
        let chunks = [chunk(1, 1, 1, b"a\xe2\x82"), chunk(2, 2, 1, b"b"), chunk(3, 1, 1, b"a\xe2\x82")];
        assert_eq!(read_all(&chunks, 100), ["a\u{fffd}", "b"]);
    }

    #[test]
    fn character_is_whole_wherever_chunks_and_pieces_end() {
        let text = "a€b𝄞c€€";
        for size in 1..6 {
            let parts = text.as_bytes().chunks(size).zip(1..);
            let chunks: Vec<_> = parts.map(|(part, number)| chunk(number, 1, number, part)).collect();
            for limit in 4..20 {
                assert_eq!(read_all(&chunks, limit).concat(), text, "{size} {limit}");
            }
        }
    }

    #[test]
    fn beginning_of_a_character_waits_for_its_rest_and_comes_at_the_end_of_the_log() {
        let chunks = [chunk(4, 1, 1, b"price: 5 "), chunk(5, 1, 2, b"\xe2"), chunk(6, 1, 3, b"\x82")];
        let mut piece = Piece::new(&chunks, Cursor::default(), Some(6), 100);
        piece.keep_characters_whole(false);
        assert_eq!((piece.bytes.as_slice(), piece.has_more), (b"price: 5 ".as_slice(), false));
        assert_eq!(piece.cursor.to_string(), "5+0,n1/1/1");
        let rest = [chunk(5, 1, 2, b"\xe2"), chunk(6, 1, 3, b"\x82"), chunk(9, 1, 4, b"\xac")];
        let mut next = Piece::new(&rest, piece.cursor.clone(), Some(9), 100);
        next.keep_characters_whole(false);
        assert_eq!((next.bytes.as_slice(), next.cursor.to_string().as_str()), ("€".as_bytes(), "9,n1/1/4"));
        let mut last = Piece::new(&rest[..2], piece.cursor, Some(6), 100);
        last.keep_characters_whole(true);
        assert_eq!(last.bytes, b"\xe2\x82");
    }

    #[test]
    fn what_is_not_text_is_not_waited_for() {
        for (bytes, unfinished) in [
            (&b""[..], 0),
            (b"a", 0),
            ("€".as_bytes(), 0),
            (b"a\xe2", 1),
            (b"\xe2\x82", 2),
            (b"a\xf0\x9d\x84", 3),
            (b"\x82\x82\x82", 0),
            (b"\xff", 0),
            (b"\xe2\x82a", 0),
        ] {
            assert_eq!(unfinished_character(bytes), unfinished, "{bytes:?}");
        }
    }
}
