//! What tools share to check arguments and to present contents: checks, paths, values, slices.

pub(crate) mod characters;
pub(crate) mod check;
pub(crate) mod path;
pub(crate) mod slice;
pub(crate) mod value;
