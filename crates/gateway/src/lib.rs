//! The MCP gateway: the one place where tool calls are decided, run and recorded.

pub mod admin; // where administrators come in
pub mod admin_token; // the first administrator's, in a file
pub mod audit; // one row per call, chained and sealed
pub mod calls; // the life of a call
pub mod canonical; // one text for one JSON value
pub mod catalogue; // the tools as they are served
pub mod clock; // times as the store keeps them
pub mod config; // flags, file, environment
pub mod data_lock; // one gateway for each folder
pub mod front; // where agents come in
pub mod metrics; // what can be counted
pub mod nats; // where there is one
pub mod policy; // who may call what; pure
mod reload; // the configuration file, again
pub mod run; // everything together
pub mod sanitize; // text by strangers
pub mod secret_file; // whole or not there
mod serve; // connections, and how many
mod spans; // what of a call goes into its trace
pub mod store; // SQLite or PostgreSQL
mod strangers; // callers without a good token
pub mod tokens; // issued, presented, revoked
pub mod tools; // the gateway's own tools
pub mod upstreams; // the servers behind us
