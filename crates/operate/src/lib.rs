//! What operators look at and do, whichever way they come in: how queues and instances are, what was done on a handoff,
//! what was given up and giving it another chance.
//!
//! It prints nothing and asks nobody; `cynodectl` and the gateway's console do that, each in its own way.

pub mod answer; // answers as they are stored
pub mod dead; // what was given up
mod error;
pub mod publish; // handing work off
pub mod run; // what was done on a handoff
pub mod status; // streams, queues, instances
mod words;
pub mod work; // in hand, and answered lately // of the contract, for people

pub use error::Error;
pub use words::{excerpt, size, word};
