//! The gateway's own tools. Each is a type: what it takes, what it gives, what it does.
//!
//! A tool sees the store only through its [`Context`]: one transaction, in which its effect and the record that it
//! happened are written together.

mod error; // what a tool says when it cannot
mod page; // lists in pieces
mod projects;
mod spec; // what a tool is

pub use error::ToolError;
pub use spec::{Context, Does, Entry, OwnTool};

/// Every tool of our own.
pub fn all() -> Vec<Entry> {
    [projects::tools()].into_iter().flatten().collect()
}
