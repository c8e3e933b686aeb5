//! Removes hidden, reordering and control characters from text of upstreams, which models read and people see
//! in terminals and on console pages. Changes no visible text, except that long descriptions are truncated.

use std::borrow::Cow;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, ResourceContents, Tool};
use serde_json::Value;

/// Longer descriptions are truncated, because an administrator has to read them before approval.
const MAX_DESCRIPTION_BYTES: usize = 4096;

/// Returns the definition that agents see, under the name that the gateway serves.
pub fn tool(mut tool: Tool, name: &str) -> Tool {
    tool.name = Cow::Owned(name.to_owned());
    tool.title = tool.title.map(|title| text(&title).into_owned());
    tool.description = tool.description.map(|description| Cow::Owned(cut(&text(&description))));
    tool.input_schema = std::sync::Arc::new(object(&tool.input_schema));
    tool.output_schema = tool.output_schema.map(|schema| std::sync::Arc::new(object(&schema)));
    // Icons would be fetched from addresses that the upstream chooses, and agents need neither icons nor
    // `_meta`.
    tool.icons = None;
    tool.meta = None;
    tool
}

/// Escapes hidden characters as `\u{…}`, so that a person sees them.
pub fn escape_hidden(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_hidden(letter) {
            out.extend(letter.escape_unicode());
        } else {
            out.push(letter);
        }
    }
    out
}

/// Sanitizes the text and the structured content of a result.
pub fn result(mut result: CallToolResult) -> CallToolResult {
    for block in &mut result.content {
        match block {
            ContentBlock::Text(content) => clean(&mut content.text),
            ContentBlock::Resource(embedded) => {
                if let ResourceContents::TextResourceContents { text, .. } = &mut embedded.resource {
                    clean(text);
                }
            }
            _ => {}
        }
    }
    if let Some(structured) = &mut result.structured_content {
        clean_value(structured);
    }
    result
}

fn clean(place: &mut String) {
    if let Cow::Owned(cleaned) = text(place) {
        *place = cleaned;
    }
}

fn clean_value(value: &mut Value) {
    match value {
        Value::String(text) => clean(text),
        Value::Array(values) => values.iter_mut().for_each(clean_value),
        Value::Object(map) => map.values_mut().for_each(clean_value),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn object(object: &JsonObject) -> JsonObject {
    let mut value = Value::Object(object.clone());
    clean_value(&mut value);
    match value {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_DESCRIPTION_BYTES)].to_owned()
}

/// Removes hidden characters; copies only if there are any.
pub fn text(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_hidden) {
        Cow::Owned(text.chars().filter(|letter| !is_hidden(*letter)).collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// Returns whether a character is invisible, changes the text direction, or controls a terminal.
pub fn is_hidden(letter: char) -> bool {
    matches!(letter,
        // Control characters, except tab, line feed and carriage return.
        '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Zero width.
        | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        // Text direction.
        | '\u{202a}'..='\u{202e}'
        // Invisible tag characters.
        | '\u{e0000}'..='\u{e007f}'
    )
}
