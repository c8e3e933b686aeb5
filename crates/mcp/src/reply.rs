//! Converts the result of a tool into text of limited size for a model, plus the structured content if it
//! fits.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// The result of a tool call, success or failure.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The text of the result. Content that is not text is replaced by a description in brackets.
    pub text: String,
    /// The structured content. Omitted if it alone exceeds the size limit.
    pub structured: Option<Value>,
    /// Whether the tool ran and reported an error.
    pub is_error: bool,
    /// Whether the text was truncated or the structured content omitted.
    pub truncated: bool,
}

impl Reply {
    /// Reads a result. Nothing in it counts as a rejection: a gateway rejects a call with an error of the
    /// protocol, and passes on results as the servers behind it wrote them.
    pub(crate) fn from_result(result: CallToolResult, max_bytes: usize) -> Self {
        let is_error = result.is_error.unwrap_or(false);
        let structured = result.structured_content;
        let json = structured.as_ref().map(Value::to_string);
        let mut text = text_of(&result.content);
        if text.is_empty()
            && let Some(json) = &json
        {
            text.clone_from(json);
        }
        let cut = cut(&mut text, max_bytes);
        let fits = json.is_none_or(|json| json.len() <= max_bytes);
        Self { text, structured: structured.filter(|_| fits), is_error, truncated: cut || !fits }
    }
}

fn text_of(content: &[ContentBlock]) -> String {
    let parts: Vec<String> = content.iter().map(part).collect();
    parts.join("\n")
}

fn part(block: &ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text.clone(),
        ContentBlock::Image(image) => described("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => described("audio", &audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::TextResourceContents { text, .. } => text.clone(),
            ResourceContents::BlobResourceContents { mime_type, blob, .. } => {
                described("resource", mime_type.as_deref().unwrap_or("of unknown type"), blob)
            }
            _ => "[resource of unknown kind]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[link {} to {}]", link.name, link.uri),
        _ => "[content of unknown kind]".to_owned(),
    }
}

fn described(what: &str, kind: &str, base64: &str) -> String {
    let bytes = base64.trim_end_matches('=').len() * 3 / 4;
    format!("[{what} {kind}, {bytes} bytes]")
}

/// Truncates at a character boundary. Returns whether anything was cut.
fn cut(text: &mut String, max_bytes: usize) -> bool {
    if text.len() <= max_bytes {
        return false;
    }
    text.truncate(text.floor_char_boundary(max_bytes));
    true
}

#[cfg(test)]
mod tests {
    use rmcp::model::MetaObject;
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_cut_at_a_character_boundary() {
        let reply = Reply::from_result(CallToolResult::success(vec![ContentBlock::text("aéé")]), 4);
        assert_eq!((reply.text.as_str(), reply.truncated), ("aé", true));
    }

    #[test]
    fn content_that_is_not_text_is_described() {
        let content = vec![ContentBlock::text("look:"), ContentBlock::image("AAAAAA==", "image/png")];
        let reply = Reply::from_result(CallToolResult::success(content), 100);
        assert_eq!(reply.text, "look:\n[image image/png, 4 bytes]");
    }

    #[test]
    fn structured_content_without_text_is_also_used_as_text() {
        let mut result = CallToolResult::default();
        result.structured_content = Some(json!({"id": 7}));
        let reply = Reply::from_result(result.clone(), 100);
        assert_eq!(
            (reply.text.as_str(), reply.structured, reply.truncated),
            (r#"{"id":7}"#, Some(json!({"id": 7})), false)
        );
        let reply = Reply::from_result(result, 3);
        assert_eq!((reply.text.as_str(), reply.structured, reply.truncated), (r#"{"i"#, None, true));
    }

    #[test]
    fn a_result_is_no_rejection_whatever_the_server_wrote_into_it() {
        let mut by_structure = CallToolResult::error(vec![ContentBlock::text("not yours")]);
        by_structure.structured_content = Some(json!({"code": "rejected"}));
        let mut by_meta = CallToolResult::error(vec![ContentBlock::text("not yours")]);
        let mut meta = MetaObject::default();
        meta.0.insert("code".to_owned(), json!("rejected"));
        by_meta.meta = Some(meta);
        for result in [by_structure, by_meta] {
            let reply = Reply::from_result(result, 100);
            assert_eq!((reply.text.as_str(), reply.is_error), ("not yours", true));
        }
    }
}
