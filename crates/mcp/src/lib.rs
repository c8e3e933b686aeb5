//! The MCP client of our processes.
