//! The streams of jobs and of what nodes audit.

use std::time::Duration;

use async_nats::jetstream::{consumer, stream};

use super::{DAY, MAX_ACK_PENDING, MAX_DELIVER, MAX_QUEUED, MAX_WAITING, Sizing, base, durable};
use crate::{Pattern, Subject};

/// Jobs that wait for a node.
pub const JOBS: &str = "CYNODE_JOBS";
/// Journals and results of jobs, and requests that they end.
pub const JOB_RUNS: &str = "CYNODE_JOB_RUNS";
/// What jobs wrote.
pub const JOB_LOGS: &str = "CYNODE_JOB_LOGS";
/// The audit of calls that nodes decided on.
pub const EDGE_AUDIT: &str = "CYNODE_EDGE_AUDIT";

/// The consumer through which gateways learn what became of jobs.
pub const JOB_RESULTS_CONSUMER: &str = "gateway-jobs";
/// The consumer through which gateways take over the audit of nodes.
pub const EDGE_AUDIT_CONSUMER: &str = "gateway-edge-audit";

/// How much of all logs is kept. The oldest are dropped first. The server reserves it when it creates the
/// stream, so it must fit on a small disk.
const MAX_LOG_BYTES: i64 = 1024 * 1024 * 1024;

/// Returns the streams of jobs, in order of creation.
pub fn of_jobs(sizing: Sizing) -> [stream::Config; 3] {
    let queue = stream::Config {
        description: Some("Jobs for nodes; acknowledged is removed.".into()),
        subjects: vec![Pattern::ClassJobs.to_string(), Pattern::NodeJobs.to_string()],
        retention: stream::RetentionPolicy::WorkQueue,
        discard: stream::DiscardPolicy::New,
        max_messages: MAX_QUEUED,
        // A message of the gateway's outbox may be published again long after it was stored.
        duplicate_window: DAY,
        ..base(JOBS, sizing.replicas)
    };
    let runs = stream::Config {
        description: Some("Journals and results of jobs, and requests that they end.".into()),
        subjects: [Pattern::JobJournals, Pattern::JobResults, Pattern::JobCancels]
            .map(|pattern| pattern.to_string())
            .to_vec(),
        max_age: 7 * DAY,
        duplicate_window: DAY,
        ..base(JOB_RUNS, sizing.replicas)
    };
    let logs = stream::Config {
        description: Some("What jobs wrote.".into()),
        subjects: vec![Pattern::JobLogs.to_string()],
        max_age: 7 * DAY,
        max_bytes: MAX_LOG_BYTES,
        // A chunk whose confirmation was lost is published again when the server is back.
        duplicate_window: Duration::from_secs(3600),
        ..base(JOB_LOGS, sizing.replicas)
    };
    [queue, runs, logs]
}

/// Returns the stream of what nodes audit. Messages cannot be deleted or purged.
pub fn edge_audit(replicas: usize) -> stream::Config {
    stream::Config {
        description: Some("The audit of calls that nodes decided on.".into()),
        subjects: vec![Pattern::EdgeAudits.to_string()],
        deny_delete: true,
        deny_purge: true,
        max_age: 90 * DAY,
        duplicate_window: Duration::from_secs(120),
        ..base(EDGE_AUDIT, replicas)
    }
}

/// Returns the durable consumer of a queue of jobs, [`Subject::ClassJobs`] or [`Subject::NodeJobs`]. All
/// nodes of a class share one.
pub fn node_consumer(queue: &Subject, ack_wait: Duration) -> consumer::pull::Config {
    consumer::pull::Config {
        filter_subject: queue.to_string(),
        ack_wait,
        max_deliver: MAX_DELIVER,
        max_ack_pending: MAX_ACK_PENDING,
        max_waiting: MAX_WAITING,
        ..durable(&node_consumer_name(queue))
    }
}

/// Returns the name of the consumer of a queue of jobs.
pub fn node_consumer_name(queue: &Subject) -> String {
    match queue {
        Subject::ClassJobs(class) => format!("class-{class}"),
        Subject::NodeJobs(node) => format!("node-{node}"),
        other => other.to_string().replace('.', "-"),
    }
}

/// Returns the consumer of journals and results of jobs, which all gateways of a store share. In order: one
/// message at a time.
pub fn job_results_consumer() -> consumer::pull::Config {
    consumer::pull::Config {
        filter_subjects: vec![Pattern::JobJournals.to_string(), Pattern::JobResults.to_string()],
        ack_wait: Duration::from_secs(30),
        max_deliver: -1,
        max_ack_pending: 1,
        max_waiting: MAX_WAITING,
        ..durable(JOB_RESULTS_CONSUMER)
    }
}

/// Returns the consumer of what nodes audit, which all gateways of a store share.
pub fn edge_audit_consumer() -> consumer::pull::Config {
    consumer::pull::Config {
        filter_subject: Pattern::EdgeAudits.to_string(),
        ack_wait: Duration::from_secs(30),
        max_deliver: -1,
        max_waiting: MAX_WAITING,
        ..durable(EDGE_AUDIT_CONSUMER)
    }
}
