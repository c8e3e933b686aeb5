//! Takes handoffs from JetStream, answers each exactly once, settles it.
//!
//! Modules stand in the order in which a handoff passes them. The process spawns no other process, opens no
//! database and holds no provider key.

mod admission; // pure: may this be worked on?
mod agent; // from a handoff to what is answered
mod analysts; // work verified by others
mod breaker; // no work is pulled during an outage
mod cancels; // what nobody wants any more
pub mod config; // flags, file, environment: one checked value
mod context; // pure: the six layers, preferences, what fits
mod crash_points; // where a process may die
mod dead; // what is given up
mod handoff; // the life of one handoff, from delivery to settlement
mod inference; // who answers
pub mod instructions; // the role's bundle
mod intake; // pull, hold, settle
mod journal; // what was done, so that another can go on
#[doc(hidden)]
pub mod measure; // for the benchmarks
mod presence; // who is here
mod recording; // effects written down, and given back
mod reply; // the one answer, committed
mod storage; // the streams, waited for
mod telemetry; // metrics, health, traces
mod tools; // what may be called, and the way to it
mod worker; // all of it, started and stopped in order

pub use worker::{Error, check, run};

/// What every answer and every connection names as its origin.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
