//! The chain of a job: what belongs to it, and where its queue message is.

use chain::{Description, Outages, Streams};
use subjects::{
    JobId, NodeId, Pattern, Subject,
    job::Job,
    streams::{self, Layout},
};
use tracing::warn;

/// The journal and the result of a job, as this node writes them.
#[derive(Debug)]
pub(super) struct JobChain {
    pub(super) job: JobId,
    pub(super) node: NodeId,
    /// The sequence of the queue message.
    pub(super) queued: u64,
}

impl Description for JobChain {
    fn stream(&self, _: &Layout) -> &'static str {
        streams::JOB_RUNS
    }

    fn over(&self) -> Pattern {
        Pattern::JobRun(self.job)
    }

    fn subject(&self) -> Subject {
        Subject::JobJournal(self.job, self.node.clone())
    }

    fn is_end(&self, subject: &str) -> bool {
        is_result(subject)
    }

    async fn check_queued<O: Outages>(&self, streams: &Streams<O>) -> bool {
        read_is_queued(streams, self.job, self.queued).await
    }

    fn log_rewriting(&self, stream: &str) {
        warn!(job.id = %self.job, stream, "Stream has lost journal entries; writing them again.");
    }
}

/// Returns whether a subject of a chain is that of its result.
pub(super) fn is_result(subject: &str) -> bool {
    matches!(subject.parse(), Ok(Subject::JobResult(..)))
}

/// Reads whether the queue still holds this message for this job. The id is compared because a recreated
/// stream reuses sequences.
pub(super) async fn read_is_queued<O: Outages>(streams: &Streams<O>, job: JobId, sequence: u64) -> bool {
    let jetstream = &streams.broker.jetstream;
    let found = streams.read(streams::JOBS, || broker::message_at(jetstream, streams::JOBS, sequence)).await;
    found.is_some_and(|message| Job::decode(&message.payload).is_ok_and(|queued| queued.job_id == job))
}
