//! Converts the result of a tool into text of limited size for a model, plus the structured content if it
//! fits.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use crate::{Error, error::sanitize};

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
    pub(crate) fn from_result(result: CallToolResult, max_bytes: usize) -> Result<Self, Error> {
        let is_error = result.is_error.unwrap_or(false);
        let structured = result.structured_content;
        let json = structured.as_ref().map(Value::to_string);
        let mut text = text_of(&result.content);
        if text.is_empty()
            && let Some(json) = &json
        {
            text.clone_from(json);
        }
        let code = |value: Option<&Value>| value.and_then(Value::as_str) == Some("rejected");
        let meta = result.meta.as_ref().and_then(|meta| meta.0.get("code"));
        if is_error && (code(meta) || code(structured.as_ref().and_then(|value| value.get("code")))) {
            return Err(Error::Rejected { code: None, message: sanitize(&text) });
        }
        let cut = cut(&mut text, max_bytes);
        let fits = json.is_none_or(|json| json.len() <= max_bytes);
        Ok(Self { text, structured: structured.filter(|_| fits), is_error, truncated: cut || !fits })
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

    fn read(result: CallToolResult, max_bytes: usize) -> Reply {
        Reply::from_result(result, max_bytes).expect("not a rejection")
    }

    #[test]
    fn text_is_cut_at_a_character_boundary() {
        let reply = read(CallToolResult::success(vec![ContentBlock::text("aéé")]), 4);
        assert_eq!((reply.text.as_str(), reply.truncated), ("aé", true));
    }

    #[test]
    fn content_that_is_not_text_is_described() {
        let content = vec![ContentBlock::text("look:"), ContentBlock::image("AAAAAA==", "image/png")];
        assert_eq!(read(CallToolResult::success(content), 100).text, "look:\n[image image/png, 4 bytes]");
    }

    #[test]
    fn structured_content_without_text_is_also_used_as_text() {
        let mut result = CallToolResult::default();
        result.structured_content = Some(json!({"id": 7}));
        let reply = read(result.clone(), 100);
        assert_eq!(
            (reply.text.as_str(), reply.structured, reply.truncated),
            (r#"{"id":7}"#, Some(json!({"id": 7})), false)
        );
        let reply = read(result, 3);
        assert_eq!((reply.text.as_str(), reply.structured, reply.truncated), (r#"{"i"#, None, true));
    }

    #[test]
    fn a_failure_marked_as_rejection_is_one() {
        let mut by_structure = CallToolResult::error(vec![ContentBlock::text("not yours\n")]);
        by_structure.structured_content = Some(json!({"code": "rejected"}));
        let mut by_meta = CallToolResult::error(vec![ContentBlock::text("not yours")]);
        let mut meta = MetaObject::default();
        meta.0.insert("code".to_owned(), json!("rejected"));
        by_meta.meta = Some(meta.clone());
        for result in [by_structure, by_meta] {
            let error = Reply::from_result(result, 100).expect_err("a rejection");
            assert!(
                matches!(&error, Error::Rejected { code: None, message } if message == "not yours"),
                "{error:?}"
            );
        }
        // Only an error result can be a rejection.
        let mut fine = CallToolResult::success(vec![ContentBlock::text("fine")]);
        fine.meta = Some(meta);
        assert_eq!(read(fine, 100).text, "fine");
    }
}
