//! Operator functions: status of queues and instances, runs of handoffs, dead letters and their replay, and
//! what queues have lost.
//!
//! This crate neither prints nor prompts; `cynodectl` and the gateway's console do, each in its own way.

pub mod answer;
pub mod dead;
mod error;
mod format;
pub mod lost;
pub mod publish;
pub mod run;
pub mod status;
pub mod work;

pub use error::Error;
pub use format::{excerpt, format_size, label};
