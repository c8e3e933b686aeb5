//! The last state of queues, instances and handoffs that NATS reported.

use std::sync::Arc;

use operate::{
    status::Status,
    work::{Answered, InWork},
};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::{sync::Mutex, time::Instant};

use crate::Error;

/// Queues, instances, handoffs in progress and the latest answers.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Work {
    #[serde(flatten)]
    pub(crate) status: Status,
    /// Handoffs that are delivered and not settled, longest first, at most 10 of each kind.
    pub(crate) in_work: Vec<InWork>,
    /// The latest 20 answers, newest first.
    pub(crate) answered: Vec<Answered>,
}

/// The last result, shared by concurrent readers. Failures are cached as well: otherwise each reader would
/// wait for the timeout in turn.
#[derive(Debug, Default)]
pub(crate) struct WorkCache(pub(crate) Mutex<Option<CachedWork>>);

#[derive(Debug)]
pub(crate) struct CachedWork {
    pub(crate) at: Instant,
    pub(crate) work: Result<Arc<Work>, Error>,
}
