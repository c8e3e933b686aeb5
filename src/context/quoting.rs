//! Quotes and escapes untrusted text, so that it cannot pose as structure of the prompt.

use std::borrow::Cow;

/// Marks with which chat templates separate roles and tool calls, each with a harmless replacement. Some
/// servers interpret them even inside a message.
const TEMPLATE_MARKS: [(&str, &str); 24] = [
    ("<|", "‹|"),
    ("|>", "|›"),
    ("<<SYS>>", "‹‹SYS››"),
    ("<</SYS>>", "‹‹/SYS››"),
    ("[INST]", "[ INST]"),
    ("[/INST]", "[ /INST]"),
    ("<start_of_turn>", "‹start_of_turn›"),
    ("<end_of_turn>", "‹end_of_turn›"),
    ("<tool_call>", "‹tool_call›"),
    ("</tool_call>", "‹/tool_call›"),
    ("<s>", "‹s›"),
    ("</s>", "‹/s›"),
    ("[TOOL_CALLS]", "[ TOOL_CALLS]"),
    ("[TOOL_RESULTS]", "[ TOOL_RESULTS]"),
    ("[/TOOL_RESULTS]", "[ /TOOL_RESULTS]"),
    ("[AVAILABLE_TOOLS]", "[ AVAILABLE_TOOLS]"),
    ("[SYSTEM_PROMPT]", "[ SYSTEM_PROMPT]"),
    ("[/SYSTEM_PROMPT]", "[ /SYSTEM_PROMPT]"),
    ("<tool_response>", "‹tool_response›"),
    ("</tool_response>", "‹/tool_response›"),
    ("<bos>", "‹bos›"),
    ("<eos>", "‹eos›"),
    ("<｜", "‹｜"),
    ("｜>", "｜›"),
];

/// Replaces all marks of chat templates in a text.
pub(crate) fn escape_template_marks(text: &str) -> Cow<'_, str> {
    let mut out = Cow::Borrowed(text);
    // Most texts have none of the bytes that occur in marks; 0xEF is the first byte of the wide bar.
    if !has_any(text, |byte| matches!(byte, b'<' | b'[' | b'|' | 0xEF)) {
        return out;
    }
    for (mark, harmless) in TEMPLATE_MARKS {
        if out.contains(mark) {
            out = Cow::Owned(out.replace(mark, harmless));
        }
    }
    out
}

/// Replaces template marks in a message of the request and escapes lines that look like the heading of a
/// layer.
pub(crate) fn sanitize_message(text: &str) -> Cow<'_, str> {
    let text = escape_template_marks(text);
    if !has_any(&text, |byte| byte == b'#') {
        return text;
    }
    if !text.split(is_line_break).any(is_heading) {
        return text;
    }
    let escaped = text.split(is_line_break).map(|line| {
        if is_heading(line) { Cow::Owned(line.replacen('#', "\\#", 1)) } else { Cow::Borrowed(line) }
    });
    Cow::Owned(escaped.collect::<Vec<_>>().join("\n"))
}

/// Returns whether a line looks like the heading of a layer, at any level.
fn is_heading(line: &str) -> bool {
    let line = line.trim_start();
    let title = line.trim_start_matches('#');
    title.len() < line.len() && title.trim_start().to_ascii_lowercase().starts_with("layer ")
}

/// Returns `text` on one line and without template marks.
pub(crate) fn single_line(text: &str) -> Cow<'_, str> {
    let text = escape_template_marks(text);
    if text.contains(is_line_break) { Cow::Owned(text.replace(is_line_break, " ")) } else { text }
}

/// Returns `text` with every line quoted.
pub(crate) fn quote_lines(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    push_quoted(&mut out, text);
    out
}

/// Appends `text` with `>` before every line. All characters that any reader could take for a line break
/// count as one.
pub(super) fn push_quoted(out: &mut String, text: &str) {
    for line in escape_template_marks(text).split(is_line_break) {
        out.push('>');
        let line = line.trim_end();
        if !line.is_empty() {
            out.push(' ');
            out.push_str(line);
        }
        out.push('\n');
    }
}

/// Appends `name: value`. Lines after the first are indented, so that none can pose as another field.
pub(super) fn push_field(out: &mut String, name: &str, value: &str) {
    if !out.is_empty() {
        out.push('\n');
    }
    out.push_str(name);
    out.push(':');
    for (index, line) in value.trim().split(is_line_break).enumerate() {
        out.push_str(if index == 0 { " " } else { "\n    " });
        out.push_str(line);
    }
}

/// Returns whether any byte matches. Works on chunks of bytes without decoding: every text passes through it.
fn has_any(text: &str, wanted: impl Fn(u8) -> bool) -> bool {
    text.as_bytes().chunks(256).any(|chunk| chunk.iter().fold(false, |found, byte| found | wanted(*byte)))
}

fn is_line_break(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}
