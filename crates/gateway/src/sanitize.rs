//! What comes from servers behind us is text by strangers: models read it, people see it in terminals and on pages.
//! Characters that hide, reorder or command are taken out; meaning is left alone.

use std::borrow::Cow;

use rmcp::model::{CallToolResult, ContentBlock, JsonObject, ResourceContents, Tool};
use serde_json::Value;

/// Longer descriptions are cut: nobody approves a novel.
const MAX_DESCRIPTION: usize = 4096;

/// The copy of a tool that agents see, under the name that we give it.
pub fn tool(mut tool: Tool, name: &str) -> Tool {
    tool.name = Cow::Owned(name.to_owned());
    tool.title = tool.title.map(|title| text(&title).into_owned());
    tool.description = tool.description.map(|description| Cow::Owned(cut(&text(&description))));
    tool.input_schema = std::sync::Arc::new(object(&tool.input_schema));
    tool.output_schema = tool.output_schema.map(|schema| std::sync::Arc::new(object(&schema)));
    // Pictures are fetched from addresses that a stranger chose, and this is nothing that agents need.
    tool.icons = None;
    tool.meta = None;
    tool
}

/// A result, with the mark that a stranger wrote it.
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
    text[..text.floor_char_boundary(MAX_DESCRIPTION)].to_owned()
}

/// Copies only what has to be changed.
pub fn text(text: &str) -> Cow<'_, str> {
    if text.chars().any(is_hidden) {
        Cow::Owned(text.chars().filter(|letter| !is_hidden(*letter)).collect())
    } else {
        Cow::Borrowed(text)
    }
}

pub(crate) fn is_hidden(letter: char) -> bool {
    matches!(letter,
        '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{9f}' // commands to terminals
        | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{feff}' // no width
        | '\u{202a}'..='\u{202e}' // another direction
        | '\u{e0000}'..='\u{e007f}' // letters that no one sees
    )
}
