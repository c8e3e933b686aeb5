use data_encoding::BASE64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ToolError;

const DEFAULT: usize = 16 * 1024;
const LARGEST: usize = 64 * 1024;
/// No character has more bytes, so that every piece moves on.
const SMALLEST: usize = 4;

/// How a content is written in JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Encoding {
    #[default]
    Text,
    Base64,
}

/// A piece of a content that is small enough for a result.
#[derive(Debug)]
pub(super) struct Slice {
    pub(super) encoding: Encoding,
    pub(super) content: String,
    pub(super) offset: usize,
    /// Where the next piece begins, if there is one.
    pub(super) next: Option<usize>,
}

/// From `offset` on, `limit` bytes at most. Text is cut between characters; what is no text comes as base64.
pub(super) fn slice(
    content: &[u8],
    offset: Option<u64>,
    limit: Option<u64>,
    wanted: Option<Encoding>,
) -> Result<Slice, ToolError> {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let offset = offset.map_or(0, number);
    if offset > content.len() {
        return Err(ToolError::Invalid(format!(
            "`offset` lies behind the end, which is at {}",
            content.len()
        )));
    }
    let limit = limit.map_or(DEFAULT, number).clamp(SMALLEST, LARGEST);
    let text = str::from_utf8(content).ok();
    let piece = match (text, wanted) {
        (Some(text), None | Some(Encoding::Text)) => {
            let from = text.floor_char_boundary(offset);
            let to = text.floor_char_boundary(from.saturating_add(limit));
            (Encoding::Text, text[from..to].to_owned(), from, to)
        }
        (None, Some(Encoding::Text)) => {
            return Err(ToolError::Invalid("the content is no text; ask for `base64`".to_owned()));
        }
        (_, None | Some(Encoding::Base64)) => {
            let to = offset.saturating_add(limit).min(content.len());
            (Encoding::Base64, BASE64.encode(&content[offset..to]), offset, to)
        }
    };
    let (encoding, content_piece, offset, to) = piece;
    let next = Some(to).filter(|to| *to < content.len());
    Ok(Slice { encoding, content: content_piece, offset, next })
}
