//! The tables, one file each. Times are microseconds since 1970, UTC; ids are text; JSON is text, byte for byte.

// Who may call, and what is decided about calls.
pub mod token;
pub mod login;
pub mod tool_setting;
pub mod access_rule;
pub mod revision;

// Servers behind us.
pub mod upstream;
pub mod upstream_tool;

// What happened.
pub mod audit;
pub mod audit_head;
pub mod in_flight;
pub mod idempotency;

// What the tools work on.
pub mod project;
pub mod task;
pub mod task_dependency;
pub mod job;
pub mod preference;
pub mod preference_history;
pub mod system_setting;
pub mod finding;
pub mod artifact;
pub mod skill;
pub mod persona;
pub mod node;
pub mod model;
pub mod allowed_image;
