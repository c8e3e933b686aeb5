//! What the operator sees: metrics, health, traces. Nothing here decides anything.

mod health;
mod http;
mod metrics;
pub(crate) mod spans; // what of a handoff goes into its trace

pub(crate) use health::{Blocker, Health};
pub(crate) use http::{Error as HttpError, Server};
pub(crate) use metrics::{Metrics, OfKind, Outcome};
