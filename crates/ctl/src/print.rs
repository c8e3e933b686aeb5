//! The only module that writes to the terminal: results to standard output, everything else to standard
//! error, so that a script can read the results and a person sees both.

use std::{
    borrow::Cow,
    io::{BufRead, IsTerminal, Write},
};

use serde::Serialize;

/// Prints a line of the result.
pub(crate) fn line(text: &str) {
    // A closed pipe means that the reader is gone; there is nothing to report it to.
    drop(writeln!(std::io::stdout(), "{text}"));
}

/// Prints part of a line and flushes it.
pub(crate) fn text(text: &str) {
    let mut stdout = std::io::stdout();
    drop(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}

/// Writes foreign bytes to standard output: unchanged into a file or a pipe, and without control characters
/// on a terminal, which they could command.
pub(crate) fn foreign_bytes(bytes: &[u8]) {
    let mut stdout = std::io::stdout();
    let safe = if stdout.is_terminal() { Cow::Owned(without_controls(bytes)) } else { Cow::Borrowed(bytes) };
    drop(stdout.write_all(&safe).and_then(|()| stdout.flush()));
}

/// Replaces control characters of one byte, except for line feeds and tabs.
fn without_controls(bytes: &[u8]) -> Vec<u8> {
    let is_safe = |byte: u8| matches!(byte, b'\n' | b'\t') || !byte.is_ascii_control();
    let replaced = |byte: &u8| if is_safe(*byte) { vec![*byte] } else { "\u{fffd}".as_bytes().to_vec() };
    bytes.iter().flat_map(replaced).collect()
}

/// Prints a result as one line of JSON.
pub(crate) fn json(value: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(value) {
        line(&text);
    }
}

/// Prints a message to standard error.
pub(crate) fn note(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// Prints a progress message that the next one overwrites; only if standard error is a terminal.
pub(crate) fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        drop(write!(stderr, "\r\x1b[K{text}"));
        drop(stderr.flush());
    }
}

/// Prompts for confirmation. Returns `false` without a prompt if standard input is not a terminal.
pub(crate) fn confirm(question: &str) -> bool {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return false;
    }
    note(&format!("{question} [y/N]"));
    let mut line = String::new();
    input.lock().read_line(&mut line).is_ok() && line.trim().eq_ignore_ascii_case("y")
}

/// Prints a table.
pub(crate) fn table(head: &[&str], rows: Vec<Vec<String>>) {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING).set_header(head.iter().copied()).add_rows(rows);
    for text in table.lines() {
        line(text.trim_end());
    }
}

/// Like [`sanitize`], in one line.
pub(crate) fn one_line(text: &str) -> String {
    sanitize(text).replace('\n', " ")
}

/// Replaces characters in foreign text that could move the cursor, hide output or show it in another order.
pub(crate) fn sanitize(text: &str) -> String {
    let is_unsafe = |char: char| match char {
        '\n' | '\t' => false,
        // Marks, embeddings, overrides and isolates of bidirectional text.
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        char => char.is_control(),
    };
    text.chars().map(|char| if is_unsafe(char) { '\u{fffd}' } else { char }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_could_command_a_terminal_are_replaced() {
        assert_eq!(
            without_controls("a\x1b[2J\r\n\té\x07".as_bytes()),
            "a\u{fffd}[2J\u{fffd}\n\té\u{fffd}".as_bytes()
        );
        assert_eq!(one_line("a\nstatus done"), "a status done");
    }

    #[test]
    fn what_could_deceive_a_reader_is_replaced() {
        assert_eq!(
            sanitize("a\n\tb \u{1b}[2J \u{202e}cba\u{2066} é 語"),
            "a\n\tb \u{fffd}[2J \u{fffd}cba\u{fffd} é 語"
        );
    }
}
