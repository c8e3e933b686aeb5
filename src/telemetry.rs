//! Metrics, health and traces of the worker. Observes only; nothing here makes a decision.

mod health;
mod http;
mod metrics;
pub(crate) mod spans;

pub(crate) use health::{Blocker, Breaker, Health};
pub(crate) use http::{Error as HttpError, Server};
pub(crate) use metrics::{KindMetrics, Metrics, Outcome};
