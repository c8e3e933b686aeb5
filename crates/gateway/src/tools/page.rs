use schemars::JsonSchema;
use serde::Serialize;

use super::ToolError;

const DEFAULT: u64 = 50;
const LARGEST: u64 = 200;

/// Which piece of a list. Inputs of lists have `limit` (50 when not given, never more than 200) and `cursor`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) limit: u64,
    /// How many come before this piece.
    pub(super) offset: u64,
}

impl Page {
    pub(super) fn of(limit: Option<u64>, cursor: Option<&str>) -> Result<Self, ToolError> {
        let offset = cursor.map_or(Ok(0), str::parse);
        let offset = offset.map_err(|_| {
            ToolError::Invalid("`cursor` must be the `next_cursor` of the piece before".to_owned())
        })?;
        Ok(Self { limit: limit.unwrap_or(DEFAULT).clamp(1, LARGEST), offset })
    }

    /// One more than the piece holds, so that the last piece is known to be the last.
    pub(super) fn fetch(self) -> u64 {
        self.limit + 1
    }

    pub(super) fn cut<T>(self, mut found: Vec<T>) -> Piece<T> {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = found.len() > limit;
        found.truncate(limit);
        Piece { items: found, next_cursor: more.then(|| (self.offset + self.limit).to_string()) }
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Piece<T> {
    pub(super) items: Vec<T>,
    /// Give this as `cursor` to get the next piece; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<String>,
}
