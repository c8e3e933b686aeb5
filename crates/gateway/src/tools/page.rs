use schemars::JsonSchema;
use serde::Serialize;

use super::ToolError;

const DEFAULT: u64 = 50;
const LARGEST: u64 = 200;
/// Agents cut a result at 32 KiB, and what is cut can no longer be read as a list.
const ROOM: usize = 24 * 1024;

/// Which piece of a list. Inputs of lists have `limit` (50 when not given, never more than 200) and `cursor`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Page {
    pub(super) limit: u64,
    /// How many come before this piece.
    pub(super) offset: u64,
}

impl Page {
    pub(super) fn of(limit: Option<u64>, cursor: Option<&str>) -> Result<Self, ToolError> {
        Self::with_default(DEFAULT, limit, cursor)
    }

    /// For lists that their callers expect to be whole.
    pub(super) fn large(limit: Option<u64>, cursor: Option<&str>) -> Result<Self, ToolError> {
        Self::with_default(LARGEST, limit, cursor)
    }

    fn with_default(default: u64, limit: Option<u64>, cursor: Option<&str>) -> Result<Self, ToolError> {
        // A cursor is held by a signed number in both databases.
        let offset = cursor.map_or(Ok(0), str::parse::<u32>);
        let offset = offset.map_err(|_| {
            ToolError::Invalid("`cursor` must be the `next_cursor` of the piece before".to_owned())
        })?;
        Ok(Self { limit: limit.unwrap_or(default).clamp(1, LARGEST), offset: u64::from(offset) })
    }

    /// One more than the piece holds, so that the last piece is known to be the last.
    pub(super) fn fetch(self) -> u64 {
        self.limit + 1
    }

    /// Also cut where it would grow too large; at least one is in it.
    pub(super) fn cut<T: Serialize>(self, found: Vec<T>) -> Piece<T> {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let (all, mut room, mut items) = (found.len(), ROOM, Vec::new());
        for item in found.into_iter().take(limit) {
            let size = serde_json::to_string(&item).map_or(0, |text| text.len());
            if size > room && !items.is_empty() {
                break;
            }
            room = room.saturating_sub(size);
            items.push(item);
        }
        let next = self.offset + items.len() as u64;
        let more = all > items.len();
        Piece { items, next_cursor: more.then(|| next.to_string()) }
    }

    /// The piece of what is already at hand.
    pub(super) fn of_all<T: Serialize>(self, all: Vec<T>) -> Piece<T> {
        let offset = usize::try_from(self.offset).unwrap_or(usize::MAX);
        self.cut(all.into_iter().skip(offset).collect())
    }
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct Piece<T> {
    pub(super) items: Vec<T>,
    /// Give this as `cursor` to get the next piece; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<String>,
}
