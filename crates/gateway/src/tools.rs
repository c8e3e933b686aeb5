//! The gateway's own tools. Each is a type: what it takes, what it gives, what it does.
//!
//! A tool sees the store only through its [`Context`]: one transaction, in which its effect and the record that it
//! happened are written together.

mod error; // what a tool says when it cannot
mod spec; // what a tool is

mod check; // limits of what is kept
mod own; // what a confined caller may look at
mod page; // lists in pieces
mod search; // rows that contain a text
mod slice; // contents in pieces
mod value; // values with a type

mod artifacts;
mod findings;
mod help;
mod images;
mod jobs;
mod models;
mod nodes;
mod personas;
mod preferences;
mod projects;
mod settings;
mod skills;
mod tasks;

pub use error::ToolError;
pub use help::{Shelf, Shown};
pub(crate) use preferences::{Address, ByAdministrator};
pub(crate) use skills::holds_a_secret;
pub use skills::seed;
pub use spec::{Context, Does, Entry, OwnTool};

/// Every tool of our own.
pub fn all() -> Vec<Entry> {
    let families = [
        help::tools(),
        projects::tools(),
        tasks::tools(),
        jobs::tools(),
        preferences::tools(),
        settings::tools(),
        findings::tools(),
        artifacts::tools(),
        skills::tools(),
        personas::tools(),
        nodes::tools(),
        models::tools(),
        images::tools(),
    ];
    families.into_iter().flatten().collect()
}
