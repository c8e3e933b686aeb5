//! From the queue to a settled delivery: pull no more than there are free slots, hold what is being worked on,
//! settle it once, hand back what was dropped.
//!
//! It never looks into a body and never decides what becomes of a handoff.

mod delivery; // one message, ours until settled
mod pool; // the slots of one kind
mod pull; // one-shot pull requests over one subscription
mod returner; // hands back what was dropped unsettled

pub(crate) use delivery::{Delivery, Settlement};
pub(crate) use pool::{Around, Pool};
pub(crate) use returner::Returner;
