use std::borrow::Cow;

/// Marks with which chat templates tell roles and tool calls apart. Some servers read them wherever they stand, also
/// inside a message, so they are taken apart before they get there.
const TEMPLATE_MARKS: [(&str, &str); 13] = [
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
];

/// Text in which no mark of a chat template is left.
pub(crate) fn defused(text: &str) -> Cow<'_, str> {
    let mut out = Cow::Borrowed(text);
    for (mark, harmless) in TEMPLATE_MARKS {
        if out.contains(mark) {
            out = Cow::Owned(out.replace(mark, harmless));
        }
    }
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

fn is_line_break(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}
