//! Reads contents in slices that are small enough for a result.

use contract::artifact::Encoding;
use data_encoding::BASE64;

use crate::ToolError;

const DEFAULT_BYTES: usize = 16 * 1024;
const MAX_BYTES: usize = 64 * 1024;
/// The longest UTF-8 character, so that every slice of a text makes progress.
const MIN_BYTES: usize = 4;

/// Part of a content.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(crate) encoding: Encoding,
    pub(crate) content: String,
    pub(crate) offset: usize,
    /// Offset of the next slice; `None` at the end.
    pub(crate) next: Option<usize>,
}

/// Returns at most `limit` bytes from `offset` on. Text is split between characters; other content is
/// returned as base64.
///
/// Fails if the offset is beyond the end, or if text is wanted and the content is not UTF-8.
pub(crate) fn slice(
    content: &[u8],
    offset: Option<u64>,
    limit: Option<u64>,
    wanted: Option<Encoding>,
) -> Result<Slice, ToolError> {
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let offset = offset.map_or(0, number);
    if offset > content.len() {
        return Err(ToolError::Invalid(format!(
            "`offset` is beyond the end of the content, which has {} bytes",
            content.len()
        )));
    }
    let limit = limit.map_or(DEFAULT_BYTES, number).clamp(MIN_BYTES, MAX_BYTES);
    let text = str::from_utf8(content).ok();
    let piece = match (text, wanted) {
        (Some(text), None | Some(Encoding::Text)) => {
            let from = text.floor_char_boundary(offset);
            let to = text.floor_char_boundary(from.saturating_add(limit));
            (Encoding::Text, text[from..to].to_owned(), from, to)
        }
        (None, Some(Encoding::Text)) => {
            return Err(ToolError::Invalid("the content is not text; ask for `base64`".to_owned()));
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
