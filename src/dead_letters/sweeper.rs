//! Dead-letters handoffs that reached the delivery limit although their advisory was lost.
//!
//! In a work queue these are the messages that are still stored although their consumer will not deliver them
//! again.

use std::{collections::BTreeMap, time::Duration};

use async_nats::jetstream::{consumer::PullConsumer, message::StreamMessage};
use broker::{Broker, Chain, ReadError};
use subjects::{Kind, Subject, streams};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{DeadLetterResources, DeadLetterWriter, dead_letter_stored, remove_from_queue};
use crate::admission::Policy;

/// Timing of the sweeper.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) every: Duration,
    pub(crate) ack_wait: Duration,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("reading the consumer of {0} handoffs")]
    Consumer(Kind, #[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("reading the handoff queue")]
    Read(#[from] ReadError),
    #[error(transparent)]
    DeadLetter(#[from] super::Error),
    #[error("removing the handoff from the queue")]
    Remove(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Runs until `stop`.
pub(crate) async fn run(resources: DeadLetterResources, schedule: Schedule, stop: CancellationToken) {
    let writer = resources.writer();
    // Sequences that the previous sweep found. In a cluster a removal may lag behind the acknowledgement
    // floor, so a message counts as stuck only if two sweeps find it.
    let mut seen: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
    while tokio::time::timeout(schedule.every, stop.cancelled()).await.is_err() {
        for kind in resources.role.kinds() {
            let before = seen.remove(&kind).unwrap_or_default();
            match sweep(&writer, &resources.policy, kind, schedule.ack_wait, &before).await {
                Ok(left) => {
                    seen.insert(kind, left);
                }
                Err(error) => {
                    debug!(
                        %kind,
                        error = %Chain(&error),
                        "Dead-letter sweep failed; retrying at the next interval."
                    )
                }
            }
        }
    }
}

async fn sweep(
    writer: &DeadLetterWriter<'_>,
    policy: &Policy,
    kind: Kind,
    ack_wait: Duration,
    before: &[u64],
) -> Result<Vec<u64>, Error> {
    let broker = &*writer.storage.streams.broker;
    let settled_up_to = settled_up_to(broker, kind).await?;
    let queue = broker.layout.handoffs(kind.role());
    let filter = Subject::Handoff(kind).to_string();
    let mut left = Vec::new();
    let mut from = 1;
    while let Some(message) = broker::next_on(&broker.jetstream, queue, &filter, from).await? {
        if message.sequence > settled_up_to {
            break;
        }
        from = message.sequence + 1;
        if before.contains(&message.sequence) && is_old(&message, ack_wait) {
            warn!(
                %kind,
                sequence = message.sequence,
                "Handoff stuck in the queue; moving it to the dead letters."
            );
            // A failure must not delay the next message.
            if let Err(error) = move_one(writer, policy, kind, &message).await {
                warn!(
                    %kind,
                    sequence = message.sequence,
                    error = %Chain(&error),
                    "Stuck handoff not moved; retrying."
                );
                left.push(message.sequence);
            } else {
                writer.metrics.swept.inc();
            }
        } else {
            left.push(message.sequence);
        }
    }
    Ok(left)
}

async fn move_one(
    writer: &DeadLetterWriter<'_>,
    policy: &Policy,
    kind: Kind,
    message: &StreamMessage,
) -> Result<(), Error> {
    let deliveries = u64::try_from(streams::MAX_DELIVER).unwrap_or(0);
    dead_letter_stored(writer, policy, kind, message, deliveries).await?;
    remove_from_queue(&writer.storage.streams.broker, kind.role(), message.sequence)
        .await
        .map_err(Error::Remove)
}

/// Returns the sequence up to which the consumer will not deliver anything any more.
///
/// This is its acknowledgement floor. The floor moves only with an acknowledgement, so it lags on a quiet
/// queue; if no acknowledgement is pending, everything that was delivered is settled.
async fn settled_up_to(broker: &Broker, kind: Kind) -> Result<u64, Error> {
    let name = streams::consumer_name(kind);
    let consumer: PullConsumer = broker
        .jetstream
        .get_consumer_from_stream(name, broker.layout.handoffs(kind.role()))
        .await
        .map_err(|error| Error::Consumer(kind, Box::new(error)))?;
    let info = consumer.cached_info();
    let floor = info.ack_floor.stream_sequence;
    Ok(if info.num_ack_pending == 0 { floor.max(info.delivered.stream_sequence) } else { floor })
}

fn is_old(message: &StreamMessage, ack_wait: Duration) -> bool {
    OffsetDateTime::now_utc() - message.time > 2 * ack_wait
}
