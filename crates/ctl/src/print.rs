//! The only place that writes to the terminal: results to standard output, everything else to standard error, so
//! that a script can take the one and a person sees both.

use std::io::{BufRead, IsTerminal, Write};

use serde::Serialize;

/// A result.
pub(crate) fn line(text: &str) {
    // A closed pipe means that nobody reads on; there is nobody to tell.
    drop(writeln!(std::io::stdout(), "{text}"));
}

/// Part of a line, shown at once.
pub(crate) fn text(text: &str) {
    let mut stdout = std::io::stdout();
    drop(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()));
}

/// Bytes as they are.
pub(crate) fn bytes(bytes: &[u8]) {
    drop(std::io::stdout().write_all(bytes));
}

/// A result for a program: one JSON value on one line.
pub(crate) fn json(value: &impl Serialize) {
    if let Ok(text) = serde_json::to_string(value) {
        line(&text);
    }
}

/// A remark for the person.
pub(crate) fn note(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// A remark that is written over by the next, for a person at a terminal only.
pub(crate) fn progress(text: &str) {
    let mut stderr = std::io::stderr();
    if stderr.is_terminal() {
        drop(write!(stderr, "\r\x1b[K{text}"));
        drop(stderr.flush());
    }
}

/// Asks a person at a terminal; nobody there means no.
pub(crate) fn asked(question: &str) -> bool {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return false;
    }
    note(&format!("{question} [y/N]"));
    let mut line = String::new();
    input.lock().read_line(&mut line).is_ok() && line.trim().eq_ignore_ascii_case("y")
}

/// Rows under a head, in columns.
pub(crate) fn table(head: &[&str], rows: Vec<Vec<String>>) {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING).set_header(head.iter().copied()).add_rows(rows);
    for text in table.lines() {
        line(text.trim_end());
    }
}

/// Text from others, made safe for a terminal: control characters could move the cursor or hide what is there.
pub(crate) fn safe(text: &str) -> String {
    text.chars()
        .map(|char| if char.is_control() && char != '\n' && char != '\t' { '\u{fffd}' } else { char })
        .collect()
}
