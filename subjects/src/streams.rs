//! The configuration of streams and consumers. Creating and comparing them is done in the `broker` crate.

mod jobs;
mod layout;
mod workflows;

use std::time::Duration;

use async_nats::jetstream::{
    consumer::{self, AckPolicy, DeliverPolicy},
    stream::{self, StorageType},
};
pub use jobs::{
    EDGE_AUDIT, EDGE_AUDIT_CONSUMER, JOB_LOGS, JOB_RESULTS_CONSUMER, JOB_RUNS, JOBS, edge_audit,
    edge_audit_consumer, job_results_consumer, node_consumer, node_consumer_name, of_jobs,
};
pub use layout::{Layout, UnknownLayout};
pub use workflows::{RUNNER_ACK_WAIT, WORKFLOW_RUNNERS, WORKFLOWS, workflow_runners, workflows};

use crate::{Kind, Pattern, Role, Subject};

pub const HANDOFFS: &str = "CYNODE_HANDOFFS";
pub const PA_HANDOFFS: &str = "CYNODE_PA_HANDOFFS";
pub const RUNS: &str = "CYNODE_RUNS";
pub const PA_RUNS: &str = "CYNODE_PA_RUNS";
pub const DEAD: &str = "CYNODE_DEAD";
pub const ADVISORIES: &str = "CYNODE_ADVISORIES";
pub const AUDIT: &str = "CYNODE_AUDIT";
/// What the gateway reports.
pub const EVENTS: &str = "CYNODE_EVENTS";
/// Object-store bucket for bodies that are too large for a message.
pub const SPILL: &str = "CYNODE_SPILL";
pub const PA_SPILL: &str = "CYNODE_PA_SPILL";

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How long answers and journals are kept. A handoff issued longer ago is refused, since an earlier answer to
/// it may already have been deleted.
pub const ANSWER_RETENTION: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The server's limit on deliveries, as a last resort. The worker dead-letters a handoff without progress
/// long before; a handoff that makes progress may be delivered as often as it needs.
pub const MAX_DELIVER: i64 = 10_000;

/// The number of pull requests that may wait on one consumer, and so the number of instances of one role. The
/// server does not allow this to be changed later.
const MAX_WAITING: i64 = 4_096;

/// The number of handoffs of one kind that may be in flight across all instances.
const MAX_ACK_PENDING: i64 = 100_000;

/// The number of messages that a queue holds. A full queue refuses new messages; it never discards stored
/// ones.
const MAX_QUEUED: i64 = 1_000_000;

/// The settings of streams and consumers that differ between deployments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    pub replicas: usize,
    pub ack_wait: Duration,
    /// How long the queue remembers message ids.
    pub dedupe_window: Duration,
}

/// Returns the stream of the gateway's signed audit heads. Messages cannot be deleted or purged.
pub fn audit(replicas: usize) -> stream::Config {
    stream::Config {
        description: Some("Signed heads of the gateway's audit.".into()),
        subjects: vec![crate::audit::HEAD_SUBJECT.to_owned()],
        deny_delete: true,
        deny_purge: true,
        ..base(AUDIT, replicas)
    }
}

/// Returns the stream of the gateway's events. A lease ends by itself within the time that they are kept.
pub fn events(replicas: usize) -> stream::Config {
    stream::Config {
        description: Some("What the gateway reports: leases and API keys that were revoked.".into()),
        subjects: vec![crate::lease::REVOKED_SUBJECT.to_owned(), crate::key::REVOKED_SUBJECT.to_owned()],
        max_age: 7 * DAY,
        // A message of the gateway's outbox may be published again long after it was stored.
        duplicate_window: DAY,
        ..base(EVENTS, replicas)
    }
}

fn dead(sizing: Sizing) -> stream::Config {
    stream::Config {
        description: Some("Handoffs that were given up, whole, with the reason.".into()),
        subjects: Role::ALL.map(|role| Pattern::Dead(role).to_string()).to_vec(),
        max_age: 30 * DAY,
        // A worker that dies after writing a dead letter and before acknowledging the handoff writes the same
        // letter again, possibly a day later.
        duplicate_window: DAY,
        ..base(DEAD, sizing.replicas)
    }
}

fn base(name: &str, replicas: usize) -> stream::Config {
    stream::Config {
        name: name.to_owned(),
        storage: StorageType::File,
        num_replicas: replicas,
        allow_direct: true,
        max_messages: -1,
        max_bytes: -1,
        max_messages_per_subject: -1,
        max_message_size: -1,
        max_consumers: -1,
        // What a server uses if none is given, so that it is no difference.
        duplicate_window: Duration::from_secs(120),
        ..stream::Config::default()
    }
}

/// Returns the durable consumer of a kind, which all instances of its role share.
pub fn consumer(kind: Kind, sizing: Sizing) -> consumer::pull::Config {
    consumer::pull::Config {
        filter_subject: Subject::Handoff(kind).to_string(),
        ack_wait: sizing.ack_wait,
        max_deliver: MAX_DELIVER,
        max_ack_pending: MAX_ACK_PENDING,
        max_waiting: MAX_WAITING,
        ..durable(consumer_name(kind))
    }
}

pub const fn consumer_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Chat => "pma-chat",
        Kind::Schedule => "pma-schedule",
        Kind::Plan => "pma-plan",
        Kind::Continue => "pma-continue",
        Kind::Review => "pma-review",
        Kind::Verify => "pa-verify",
    }
}

/// Returns the name of the consumer of max-deliveries advisories, from which a worker dead-letters handoffs.
pub const fn mover_name(role: Role) -> &'static str {
    match role {
        Role::ProjectManager => "pma-dead-mover",
        Role::ProjectAnalyst => "pa-dead-mover",
    }
}

const ADVISORY_ROOT: &str = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES";

fn durable(name: &str) -> consumer::pull::Config {
    consumer::pull::Config {
        durable_name: Some(name.to_owned()),
        deliver_policy: DeliverPolicy::All,
        ack_policy: AckPolicy::Explicit,
        ..consumer::pull::Config::default()
    }
}
