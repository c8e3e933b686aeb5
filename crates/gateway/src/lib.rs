//! The MCP gateway: the one place where tool calls are decided, run and recorded.

pub mod policy; // who may call what; pure
pub mod store; // SQLite or PostgreSQL
