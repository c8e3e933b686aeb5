//! Pulls handoffs from JetStream, answers each exactly once and settles it.
//!
//! The process spawns no other process, opens no database and holds no provider key.
//!
//! - `worker`: starts and stops everything else in order
//! - `admission`: pure; decides whether a message is accepted as a handoff
//! - `handoff`: runs one handoff from its delivery to its settlement
//! - `journal`: records what each attempt did, so that the next one can resume
//! - `agent`: answers a handoff, with `context`, `inference`, `tools` and `analysts`
//! - `reply`: builds the answer and commits it
//! - `dead_letters`: stores handoffs that failed, to be inspected and replayed

mod admission;
mod agent;
mod analysts;
mod cancels;
pub mod config;
mod context;
mod crash_points;
mod dead_letters;
mod handoff;
mod inference;
pub mod instructions;
mod journal;
mod lease;
#[doc(hidden)]
pub mod measure;
mod presence;
mod recording;
mod reply;
mod storage;
mod telemetry;
mod tools;
mod worker;

pub use worker::{Error, check, run};

/// Version reported in answers, claims and connection names.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
