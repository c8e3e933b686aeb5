//! The tables, one file each. Times are microseconds since 1970, UTC; ids are text; JSON is text, byte for byte.

// Who may call, and what is decided about calls.
pub mod access_rule;
pub mod login;
pub mod revision;
pub mod token;
pub mod tool_setting;

// Servers behind us.
pub mod upstream;
pub mod upstream_tool;

// What happened.
pub mod audit;
pub mod audit_pruned;
pub mod idempotency;
pub mod in_flight;

// What the tools work on.
pub mod allowed_image;
pub mod artifact;
pub mod finding;
pub mod job;
pub mod model;
pub mod node;
pub mod persona;
pub mod preference;
pub mod preference_history;
pub mod project;
pub mod skill;
pub mod system_setting;
pub mod task;
pub mod task_dependency;
