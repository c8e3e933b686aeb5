//! The MCP gateway: decides, runs and records every tool call of the agents.
//!
//! - [`front`], [`admin`]: the listeners for agents and for administrators
//! - [`calls`]: decide, run, record, answer
//! - [`policy`]: pure; which caller may call which tool
//! - [`catalogue`], [`tools`], [`upstreams`]: the tools as served, built-in and upstream
//! - [`audit`], [`store`]: one row per call in a hash chain; SQLite or PostgreSQL

pub mod admin;
pub mod admin_token;
pub mod audit;
pub mod calls;
pub mod canonical;
pub mod catalogue;
pub mod clock;
pub mod config;
pub mod data_lock;
pub mod front;
pub mod metrics;
pub mod nats;
mod reload;
pub mod run;
pub mod sanitize;
pub mod secret_file;
mod serve;
mod spans;
pub mod store;
pub mod tokens;
pub mod tools;
mod unauthenticated;
pub mod upstreams;
