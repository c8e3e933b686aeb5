//! Pulls messages, holds their deliveries while they are processed, and settles each once.
//!
//! It requests no more messages than there are free slots, and hands back what was dropped unsettled. It
//! never reads a body and never decides what happens to a handoff.

mod delivery;
mod pool;
mod pull;
mod returner;

pub(crate) use delivery::{Delivery, Settlement};
pub(crate) use pool::{Pool, PoolResources};
pub(crate) use returner::Returner;
