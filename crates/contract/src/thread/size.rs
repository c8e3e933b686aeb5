//! How large messages are: as JSON, in which they are stored and sent.

use subjects::ChatMessage;

/// What a message has as JSON in a list besides its text, at most.
pub const FRAME_BYTES: usize = r#"{"role":"assistant","content":""},"#.len();

/// Returns the size of a message as JSON in a list, in bytes.
pub fn message_size(message: &ChatMessage) -> usize {
    text_size(&message.content) + FRAME_BYTES
}

/// Returns the size of a text in a JSON string, in bytes.
pub fn text_size(text: &str) -> usize {
    text.chars().map(character_size).sum()
}

/// Returns the size of a character in a JSON string, in bytes.
pub fn character_size(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        character => character.len_utf8(),
    }
}
