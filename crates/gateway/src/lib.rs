//! The MCP gateway: decides, runs and records every tool call of the agents.
//!
//! - [`run`]: assembles the program from its parts, serves, shuts down
//! - [`check`]: opens the store and verifies the audit
//! - `front`: the listener for agents
//! - [`calls`]: decide, run, record, answer
//! - `config`: settings
//!
//! The other parts are crates: `policy` decides, `control` has the built-in tools, `registry` the tools as
//! served, `audit` the records, `access` the tokens, `admin` the listener for administrators.

pub mod calls;
pub mod check;
pub mod config;
mod data_lock;
mod edge_audit;
mod front;
mod health;
mod jobs;
mod lost;
mod metrics;
mod relay;
mod reload;
pub mod run;
mod workflow_counter;
mod workflows;
