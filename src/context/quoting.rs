use std::borrow::Cow;

/// Marks with which chat templates tell roles and tool calls apart. Some servers read them wherever they stand, also
/// inside a message, so they are taken apart before they get there.
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

/// Text in which no mark of a chat template is left.
pub(crate) fn defused(text: &str) -> Cow<'_, str> {
    let mut out = Cow::Borrowed(text);
    // Most texts have none of the bytes that any mark has; 0xEF begins the wide bar.
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

/// The text of a message of the request: without marks, and without lines that look like the heading of a layer.
pub(crate) fn message_text(text: &str) -> Cow<'_, str> {
    let text = defused(text);
    if !has_any(&text, |byte| byte == b'#') {
        return text;
    }
    let is_heading = |line: &str| line.trim_start().to_ascii_lowercase().starts_with("# layer ");
    if !text.split(is_line_break).any(is_heading) {
        return text;
    }
    let escaped = text.split(is_line_break).map(|line| {
        if is_heading(line) { Cow::Owned(line.replacen('#', "\\#", 1)) } else { Cow::Borrowed(line) }
    });
    Cow::Owned(escaped.collect::<Vec<_>>().join("\n"))
}

/// A quotation on its own.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    quote(&mut out, text);
    out
}

/// Appends `text` as a quotation: every line begins with `>`, whatever a line is taken to end with.
pub(super) fn quote(out: &mut String, text: &str) {
    for line in defused(text).split(is_line_break) {
        out.push('>');
        let line = line.trim_end();
        if !line.is_empty() {
            out.push(' ');
            out.push_str(line);
        }
        out.push('\n');
    }
}

/// A value under its name. Lines after the first are indented, so that none can pose as another value.
pub(super) fn field(out: &mut String, name: &str, value: &str) {
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

/// Byte by byte, without looking at characters: this is asked of every text there is.
fn has_any(text: &str, wanted: impl Fn(u8) -> bool) -> bool {
    text.as_bytes().chunks(256).any(|chunk| chunk.iter().fold(false, |found, byte| found | wanted(*byte)))
}

fn is_line_break(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}
