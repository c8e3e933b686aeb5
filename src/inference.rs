//! Who answers. In this build: `offline`, a deterministic model that needs nothing.

mod offline;

pub(crate) use offline::Offline;
