//! Splits a text into chunks at its lines.

/// A chunk ends at the first empty line after as many bytes, and before a line that would exceed the second.
const WANTED_BYTES: usize = 800;
const MAX_BYTES: usize = 1600;

/// A piece of a text. All chunks of a text, one after the other, are the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunk<'t> {
    /// From 1.
    pub(super) first_line: usize,
    pub(super) last_line: usize,
    pub(super) text: &'t str,
}

/// Returns the chunks of a text that is not empty.
pub(super) fn split(text: &str) -> Vec<Chunk<'_>> {
    let mut chunks = Vec::new();
    let (mut begin, mut end, mut first_line) = (0, 0, 1);
    for (number, line) in text.split_inclusive('\n').enumerate().map(|(at, line)| (at + 1, line)) {
        if end > begin && end - begin + line.len() > MAX_BYTES {
            push(&mut chunks, text, begin..end, first_line, number - 1);
            (begin, first_line) = (end, number);
        }
        end += line.len();
        while end - begin > MAX_BYTES {
            let cut = cut_of_line(text, begin);
            push(&mut chunks, text, begin..cut, number, number);
            (begin, first_line) = (cut, number);
        }
        if end - begin >= WANTED_BYTES && line.trim().is_empty() {
            push(&mut chunks, text, begin..end, first_line, number);
            (begin, first_line) = (end, number + 1);
        }
    }
    let lines = text.split_inclusive('\n').count();
    push(&mut chunks, text, begin..end, first_line, lines);
    chunks
}

fn push<'t>(
    chunks: &mut Vec<Chunk<'t>>,
    text: &'t str,
    range: std::ops::Range<usize>,
    first_line: usize,
    last_line: usize,
) {
    if let Some(text) = text.get(range).filter(|text| !text.is_empty()) {
        chunks.push(Chunk { first_line, last_line, text });
    }
}

/// Returns where a line that is too long is cut: after a space, if it has one in its second half.
fn cut_of_line(text: &str, begin: usize) -> usize {
    let longest = text.floor_char_boundary(begin + MAX_BYTES);
    let half = text.floor_char_boundary(begin + MAX_BYTES / 2);
    let space = text.get(half..longest).and_then(|part| part.rfind(' '));
    space.map_or(longest, |at| half + at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str) -> Vec<Chunk<'_>> {
        let chunks = split(text);
        let joined: String = chunks.iter().map(|chunk| chunk.text).collect();
        assert_eq!(joined, text);
        let mut before = 1;
        for chunk in &chunks {
            assert!(chunk.text.len() <= MAX_BYTES && !chunk.text.is_empty());
            assert!((before..=before + 1).contains(&chunk.first_line), "{chunk:?} after line {before}");
            before = chunk.last_line;
        }
        assert_eq!(before, text.split_inclusive('\n').count().max(1));
        chunks
    }

    #[test]
    fn chunks_are_the_text_with_its_lines() {
        let lines: Vec<String> = (1..=200).map(|line| format!("line {line} of a text")).collect();
        for text in
            [lines.join("\n"), lines.join("\r\n"), lines.join("\n\n"), lines.concat(), "ä".repeat(5_000)]
        {
            let chunks = check(&text);
            assert!(chunks.len() > 2);
            for chunk in chunks.iter().filter(|chunk| chunk.text.starts_with("line ")) {
                let number = text
                    .lines()
                    .position(|line| line.len() > 1 && chunk.text.starts_with(line))
                    .map(|at| at + 1);
                assert!(number.is_none() || number == Some(chunk.first_line));
            }
        }
    }

    #[test]
    fn a_short_text_is_one_chunk() {
        assert_eq!(check("one\n\ntwo\n"), [Chunk { first_line: 1, last_line: 3, text: "one\n\ntwo\n" }]);
    }

    #[test]
    fn chunks_end_at_empty_lines_once_they_are_long_enough() {
        let paragraph = format!("{}\n", "word ".repeat(100).trim_end());
        let text = format!("{paragraph}\n{paragraph}\n{paragraph}");
        let chunks = check(&text);
        assert_eq!(
            chunks.iter().map(|it| (it.first_line, it.last_line)).collect::<Vec<_>>(),
            [(1, 4), (5, 5)]
        );
    }
}
