//! The connections of the MCP gateway to the servers behind it, one [`Upstream`] for each.
//!
//! A server is reached over HTTP or as a child process, in whichever era of MCP it speaks. It is told apart from the
//! caller: it gets a credential of its own, never the caller's, and can ask nothing of us. No call is repeated unless it
//! cannot have run. What a tool may do and who may call it is decided elsewhere.

mod upstream; // the public face: list, call, health, close

mod breaker; // pure: whether a server that keeps failing is asked
mod call; // one call on one connection
mod error; // what went wrong, and what became of the call
mod events; // what a server says unasked
mod health; // how it is
mod link; // the connection: made when needed, made anew when lost
mod options; // how to reach it, and the limits
mod restart; // pure: when a process that died is started again
mod stdio; // servers that are programs

pub use error::{Error, Failure};
pub use events::Progress;
pub use health::{Health, State};
pub use mcp::Fate;
pub use options::{Breaker, Options, Transport};
pub use upstream::Upstream;
