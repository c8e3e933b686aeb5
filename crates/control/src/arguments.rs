//! What tools share to read arguments and to present rows: checks, references, paths, pages, filters, slices.

pub(crate) mod characters;
pub(crate) mod check;
pub(crate) mod lookup;
pub(crate) mod page;
pub(crate) mod path;
pub(crate) mod search;
pub(crate) mod slice;
pub(crate) mod value;
