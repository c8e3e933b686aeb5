//! Runs jobs in sandboxes on this machine: pulls what it has a slot for, and reports each result once.
//!
//! - [`run`]: starts and stops all parts in order
//! - `job`: the life of one job
//! - `queue`, `presence`, `orders`, `cancels`: queues to pull from, reports, orders and cancel requests
//! - `tools`: what jobs call through the node
//! - `engines`, `health`, `metrics`, `http`: available engines, probes and metrics

mod cancels;
pub mod config;
mod crash_points;
mod engines;
mod health;
mod http;
mod job;
mod metrics;
mod orders;
mod presence;
mod queue;
pub mod run;
mod tools;

/// Stops pulling while something that every job needs is unavailable.
type Breaker = intake::Breaker<health::Health>;
type Streams = chain::Streams<Breaker>;
