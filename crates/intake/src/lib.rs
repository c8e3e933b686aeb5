//! Pulls messages, holds their deliveries while they are processed, and settles each once.
//!
//! It requests no more messages than there are free slots, and hands back what was dropped unsettled. It
//! never reads a body and never decides what happens to a message.
//!
//! - [`Workload`]: what a program says about the messages that it pulls
//! - [`Pool`]: the loop that fills the slots of one queue
//! - [`Delivery`], [`Returner`]: one delivered message; what hands back those that were dropped
//! - [`Breaker`], [`Gate`]: stop pulling during an outage

mod breaker;
mod delivery;
mod gate;
mod pool;
mod pull;
mod receipt;
mod returner;
mod slots;
mod workload;

pub use breaker::{Breaker, WaitingGuard};
pub use delivery::{Delivery, Settlement};
pub use gate::{Breakers, Gate, Hold};
pub use pool::{Pool, PoolOptions, PoolResources};
pub use returner::Returner;
pub use slots::Slots;
pub use workload::{Health, Metrics, Releasable, Release, Workload};

#[cfg(test)]
mod tests;
