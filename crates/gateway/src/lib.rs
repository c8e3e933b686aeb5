//! The MCP gateway: the one place where tool calls are decided, run and recorded.

pub mod audit; // one row per call, chained and sealed
pub mod calls; // the life of a call
pub mod canonical; // one text for one JSON value
pub mod catalogue; // the tools as they are served
pub mod clock; // times as the store keeps them
pub mod config; // flags, file, environment
pub mod policy; // who may call what; pure
pub mod sanitize; // text by strangers
pub mod secret_file;
pub mod store; // SQLite or PostgreSQL
pub mod tokens; // issued, presented, revoked
pub mod tools; // the gateway's own tools
