//! Removes messages of jobs from the queues of nodes that were removed.

use std::{collections::BTreeSet, time::Duration};

use async_nats::jetstream::message::StreamMessage;
use broker::{Broker, Chain};
use contract::node::Removed;
use futures_util::TryStreamExt;
use sea_orm::{ColumnTrait, Condition, EntityTrait, QueryFilter, QuerySelect};
use store::{
    Store,
    entity::{job, node},
};
use subjects::{NodeId, Pattern, Subject, job::Job, streams};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::Sandboxes;
use crate::ToolError;

const BATCH: u64 = 256;
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

impl Sandboxes {
    /// Removes the jobs that were moved or lost from the queue of a removed node. If it fails, a node that
    /// comes back under the same id finds in their chains that they are not its own, and
    /// [`Self::forget_left`] removes them.
    pub async fn forget_queued(&self, removed: &Removed) {
        let Ok(node) = removed.node_id.parse::<NodeId>() else { return };
        if removed.moved.is_empty() && removed.lost.is_empty() {
            return;
        }
        let Ok(broker) = self.broker().await else { return };
        let queue = Subject::NodeJobs(node).to_string();
        let no_longer_queued: BTreeSet<String> = removed.moved.iter().chain(&removed.lost).cloned().collect();
        let mut from = 1;
        while let Some(batch) = read(&broker, &queue, &mut from).await {
            delete(&broker, &queue, &batch, &no_longer_queued).await;
        }
    }

    /// Removes jobs from the queues of removed nodes that were moved or have ended: those that could not be
    /// removed with their node. Until then a job that its node had claimed is held by its former message.
    pub async fn forget_left(&self, store: &Store) -> Result<(), ToolError> {
        let Ok(broker) = self.broker().await else { return Ok(()) };
        for queue in queues_of_nodes(&broker).await {
            let Ok(Subject::NodeJobs(node)) = queue.parse() else { continue };
            if node::Entity::find_by_id(node.as_str()).one(store.read()).await?.is_some() {
                continue;
            }
            let mut from = 1;
            while let Some(batch) = read(&broker, &queue, &mut from).await {
                let elsewhere = Condition::any()
                    .add(job::Column::Queue.ne(&queue))
                    .add(job::Column::EndedAt.is_not_null());
                let no_longer_queued: Vec<String> = job::Entity::find()
                    .select_only()
                    .column(job::Column::Id)
                    .filter(job::Column::Id.is_in(batch.iter().filter_map(job_of)))
                    .filter(elsewhere)
                    .into_tuple()
                    .all(store.read())
                    .await?;
                delete(&broker, &queue, &batch, &no_longer_queued.into_iter().collect()).await;
            }
        }
        Ok(())
    }
}

/// Returns the queues of nodes that have messages; none if that is not known.
async fn queues_of_nodes(broker: &Broker) -> Vec<String> {
    let looking = async {
        let stream = broker.jetstream.get_stream_no_info(streams::JOBS).await.ok()?;
        let found = stream.info_with_subjects(Pattern::NodeJobs.to_string()).await.ok()?;
        let queues: Vec<String> = found.map_ok(|(queue, _)| queue).try_collect().await.ok()?;
        Some(queues)
    };
    timeout(LIST_TIMEOUT, looking).await.ok().flatten().unwrap_or_default()
}

/// Reads the next messages of a queue. `None` if there are no more, or they cannot be read.
async fn read(broker: &Broker, queue: &str, from: &mut u64) -> Option<Vec<StreamMessage>> {
    let batch = broker::read_batch(&broker.jetstream, streams::JOBS, queue, *from, BATCH).await;
    let batch = batch.inspect_err(|error| {
        warn!(queue, error = %Chain(error), "Queue of a removed node not emptied.");
    });
    let batch = batch.ok()?;
    *from = batch.last()?.sequence + 1;
    Some(batch)
}

async fn delete(broker: &Broker, queue: &str, batch: &[StreamMessage], jobs: &BTreeSet<String>) {
    let Ok(stream) = broker.jetstream.get_stream_no_info(streams::JOBS).await else { return };
    let is_one = |message: &&StreamMessage| job_of(message).is_some_and(|job| jobs.contains(&job));
    for message in batch.iter().filter(is_one) {
        if let Err(error) = stream.delete_message(message.sequence).await {
            debug!(queue, %error, "Message of a removed node not deleted.");
        }
    }
}

fn job_of(message: &StreamMessage) -> Option<String> {
    Some(Job::decode(&message.payload).ok()?.job_id.to_string())
}
