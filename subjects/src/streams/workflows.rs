//! The queue of workflows that wait for a runner.

use std::time::Duration;

use async_nats::jetstream::{consumer, stream};

use super::{DAY, MAX_ACK_PENDING, MAX_QUEUED, MAX_WAITING, base, durable};
use crate::workflow_run::SUBJECT;

/// Workflows that wait for a runner.
pub const WORKFLOWS: &str = "CYNODE_WORKFLOWS";

/// The consumer that all runners share.
pub const WORKFLOW_RUNNERS: &str = "workflow-runners";

/// How long a runner may be silent before its message is delivered to another, unless set otherwise.
pub const RUNNER_ACK_WAIT: Duration = Duration::from_secs(15);

/// Returns the stream of workflows.
pub fn workflows(replicas: usize) -> stream::Config {
    stream::Config {
        description: Some("Workflows for runners; acknowledged is removed.".into()),
        subjects: vec![SUBJECT.to_owned()],
        retention: stream::RetentionPolicy::WorkQueue,
        discard: stream::DiscardPolicy::New,
        max_messages: MAX_QUEUED,
        // A message of the gateway's outbox may be published again long after it was stored.
        duplicate_window: DAY,
        ..base(WORKFLOWS, replicas)
    }
}

/// Returns the durable consumer that all runners share. It never gives a message up: a run has one message,
/// and the lease of its workflow says who may work on it.
pub fn workflow_runners(ack_wait: Duration) -> consumer::pull::Config {
    consumer::pull::Config {
        filter_subject: SUBJECT.to_owned(),
        ack_wait,
        max_deliver: -1,
        max_ack_pending: MAX_ACK_PENDING,
        max_waiting: MAX_WAITING,
        ..durable(WORKFLOW_RUNNERS)
    }
}
