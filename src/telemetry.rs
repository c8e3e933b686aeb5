//! What the operator sees: logs, metrics, health. Nothing here decides anything.

mod health;
mod http;
pub mod logs;
mod metrics;

pub(crate) use health::{Blocker, Health};
pub(crate) use http::{Error as HttpError, Server};
pub(crate) use metrics::{Metrics, OfKind, Outcome};
