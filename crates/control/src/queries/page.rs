//! Pagination of lists.

use contract::Page;
use sea_orm::{EntityTrait, QuerySelect, Select};
use serde::Serialize;

use crate::{Context, ToolError};

const DEFAULT_LIMIT: u64 = 50;
const MAX_LIMIT: u64 = 200;
/// Agents truncate a result at 32 KiB, and a truncated list cannot be parsed.
const MAX_PAGE_BYTES: usize = 24 * 1024;

/// Which page of a list to return. Tools that list take `limit` (50 by default, at most 200) and `cursor`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRequest {
    pub(crate) limit: u64,
    /// Number of items before this page.
    pub(crate) offset: u64,
}

impl PageRequest {
    pub(crate) fn new(limit: Option<u64>, cursor: Option<&str>) -> Result<Self, ToolError> {
        Self::with_default(DEFAULT_LIMIT, limit, cursor)
    }

    /// Returns a request with the largest limit by default, for lists that callers expect to be complete.
    pub(crate) fn large(limit: Option<u64>, cursor: Option<&str>) -> Result<Self, ToolError> {
        Self::with_default(MAX_LIMIT, limit, cursor)
    }

    fn with_default(default: u64, limit: Option<u64>, cursor: Option<&str>) -> Result<Self, ToolError> {
        // Both databases take the offset as a signed 64-bit number; a u32 always fits.
        let offset = cursor.map_or(Ok(0), str::parse::<u32>);
        let offset = offset.map_err(|_| {
            ToolError::Invalid("`cursor` must be the `next_cursor` of the piece before".to_owned())
        })?;
        Ok(Self { limit: limit.unwrap_or(default).clamp(1, MAX_LIMIT), offset: u64::from(offset) })
    }

    /// Returns the number of rows to fetch: one more than the page holds, to tell whether it is the last.
    pub(crate) fn fetch_limit(self) -> u64 {
        self.limit + 1
    }

    /// Fetches the rows of this page and converts each into an item.
    pub(crate) async fn fetch<E, T>(
        self,
        query: Select<E>,
        context: &Context<'_>,
        convert: impl Fn(E::Model) -> T,
    ) -> Result<Page<T>, ToolError>
    where
        E: EntityTrait,
        T: Serialize,
    {
        let rows = query.offset(self.offset).limit(self.fetch_limit()).all(&context.db).await?;
        Ok(self.build_page(rows.into_iter().map(convert).collect()))
    }

    /// Builds the page from rows fetched with [`fetch_limit`](Self::fetch_limit). It also ends where it would
    /// exceed [`MAX_PAGE_BYTES`], but holds at least one item.
    pub(crate) fn build_page<T: Serialize>(self, found: Vec<T>) -> Page<T> {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let total = found.len();
        let items = take_fitting(found.into_iter().take(limit));
        let next = self.offset + items.len() as u64;
        let has_more = total > items.len();
        Page { items, next_cursor: has_more.then(|| next.to_string()) }
    }

    /// Builds the page from the complete list.
    pub(crate) fn paginate<T: Serialize>(self, all: Vec<T>) -> Page<T> {
        let offset = usize::try_from(self.offset).unwrap_or(usize::MAX);
        self.build_page(all.into_iter().skip(offset).collect())
    }
}

/// Takes items until one would exceed [`MAX_PAGE_BYTES`], but at least one.
pub(crate) fn take_fitting<T: Serialize>(found: impl IntoIterator<Item = T>) -> Vec<T> {
    let (mut room, mut items) = (MAX_PAGE_BYTES, Vec::new());
    for item in found {
        let size = serde_json::to_string(&item).map_or(0, |text| text.len());
        if size > room && !items.is_empty() {
            break;
        }
        room = room.saturating_sub(size);
        items.push(item);
    }
    items
}
