//! What tools share to read rows: by id or name, by a text they contain, page by page.

pub(crate) mod lookup;
pub(crate) mod page;
pub(crate) mod search;
