//! The gateway's connections to its upstreams, one [`Upstream`] for each MCP server.
//!
//! An upstream is reached over HTTP or as a child process, in the era of MCP that it supports. It gets its
//! own credential, never the caller's, and no capabilities. A call is repeated only if it cannot have run.
//! This crate makes no access decisions.

mod upstream;

mod breaker;
mod call;
mod error;
mod events;
mod health;
mod link;
mod options;
mod restart;
pub mod sanitize;
mod stdio;

pub use error::{Error, Failure};
pub use events::Progress;
pub use health::{Health, State};
pub use mcp::Fate;
pub use options::{Breaker, Options, Transport};
pub use upstream::Upstream;
