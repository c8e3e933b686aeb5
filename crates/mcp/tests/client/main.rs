//! The client against real servers: the stand-in for the gateway, and sockets that misbehave.

mod support; // what the tests share
mod token; // the bearer token and its file
mod tools; // listing and calling
mod trouble; // servers that are away, break off, or are no MCP servers
