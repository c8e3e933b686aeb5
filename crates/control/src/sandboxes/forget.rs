//! Removes messages of jobs from the queue of a node that was removed.

use broker::Chain;
use contract::node::Removed;
use subjects::{NodeId, Subject, job::Job, streams};
use tracing::{debug, warn};

use super::Sandboxes;

const BATCH: u64 = 256;

impl Sandboxes {
    /// Removes the jobs that were moved or lost from the queue of a removed node. If it fails, a node that
    /// comes back under the same id finds in their chains that they are not its own.
    pub async fn forget_queued(&self, removed: &Removed) {
        let Ok(node) = removed.node_id.parse::<NodeId>() else { return };
        if removed.moved.is_empty() && removed.lost.is_empty() {
            return;
        }
        let Ok(broker) = self.broker().await else { return };
        let queue = Subject::NodeJobs(node).to_string();
        let mut from = 1;
        loop {
            let batch = broker::read_batch(&broker.jetstream, streams::JOBS, &queue, from, BATCH).await;
            let batch = match batch {
                Ok(batch) => batch,
                Err(error) => {
                    warn!(queue, error = %Chain(&error), "Queue of a removed node not emptied.");
                    return;
                }
            };
            let Some(last) = batch.last() else { return };
            from = last.sequence + 1;
            let is_no_longer_queued = |message: &async_nats::jetstream::message::StreamMessage| {
                let job = Job::decode(&message.payload).map(|job| job.job_id.to_string());
                job.is_ok_and(|job| removed.moved.contains(&job) || removed.lost.contains(&job))
            };
            let Ok(stream) = broker.jetstream.get_stream_no_info(streams::JOBS).await else { return };
            for message in batch.iter().filter(|message| is_no_longer_queued(message)) {
                if let Err(error) = stream.delete_message(message.sequence).await {
                    debug!(queue, %error, "Message of a removed node not deleted.");
                }
            }
        }
    }
}
