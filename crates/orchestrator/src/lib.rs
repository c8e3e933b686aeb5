//! The front door: an OpenAI-compatible API. Chats with `cynodeai.pm` are handed off to a project manager.
//!
//! The process keeps no state. Threads, turns and API keys are rows of the gateway's store, reached by its
//! MCP tools; work and answers are on NATS. Any number of orchestrators serve the same clients, and each may
//! die at any instant.
//!
//! - [`run`]: assembles the program from its parts, serves, shuts down
//! - `server`: routes, and what holds for every request
//! - `chat`: `/v1/chat/completions`; `responses`: `/v1/responses`; `answering`: what both share
//! - `threads`: `/v1/threads`; `models`: `/v1/models`
//! - `turns`: from a request to a handoff and its answer, exactly once
//! - `direct`: models that are not the project manager
//! - `joined_text`: joins texts of a request without secrets
//! - `egress`: external providers of models, for agents
//! - `keys`, `rate_limits`, `proven_secrets`: who calls, and how often; `names`: what clients may call things
//! - `config`: settings

mod answering;
mod body;
mod caller;
mod chat;
pub mod config;
mod crash_points;
mod direct;
mod egress;
mod error;
mod gateway;
mod health;
mod joined_text;
mod keys;
mod metrics;
mod models;
mod names;
mod openapi;
mod path_id;
mod proven_secrets;
mod query;
mod rate_limits;
mod respond;
mod responses;
mod revocations;
pub mod run;
mod schedules;
mod server;
mod spans;
mod state;
mod threads;
mod turns;
