//! The MCP gateway: the one place where tool calls are decided, run and recorded.

pub mod clock; // times as the store keeps them
pub mod policy; // who may call what; pure
pub mod store; // SQLite or PostgreSQL
pub mod tools; // the gateway's own tools
