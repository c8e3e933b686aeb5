//! Finds handoffs that the server gave up although its advisory was lost: on a work queue they are just those that
//! are still stored although their consumer is done with them.

use std::{collections::BTreeMap, time::Duration};

use async_nats::jetstream::{consumer::PullConsumer, message::StreamMessage};
use broker::{Broker, Chain, ReadError};
use subjects::{Kind, Subject, streams};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{Net, Undertaker, give_up_stored, remove};
use crate::admission::Policy;

/// What the sweeper needs to know.
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
    Dead(#[from] super::Error),
    #[error("removing the handoff from the queue")]
    Remove(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Sweeps until `stop`.
pub(crate) async fn run(net: Net, schedule: Schedule, stop: CancellationToken) {
    let undertaker = net.undertaker();
    // What was left behind at the last look. In a cluster a removal may lag behind the floor, so a handoff is
    // taken for left behind only when it is seen twice.
    let mut seen: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
    while tokio::time::timeout(schedule.every, stop.cancelled()).await.is_err() {
        for kind in net.role.kinds() {
            let before = seen.remove(&kind).unwrap_or_default();
            match sweep(&undertaker, &net.policy, kind, schedule.ack_wait, &before).await {
                Ok(left) => {
                    seen.insert(kind, left);
                }
                Err(error) => {
                    debug!(%kind, error = %Chain(&error), "Dead-letter sweep failed; retrying at the next interval.")
                }
            }
        }
    }
}

async fn sweep(
    undertaker: &Undertaker<'_>,
    policy: &Policy,
    kind: Kind,
    ack_wait: Duration,
    before: &[u64],
) -> Result<Vec<u64>, Error> {
    let broker = &*undertaker.storage.broker;
    let done_to = done_to(broker, kind).await?;
    let queue = broker.layout.handoffs(kind.role());
    let filter = Subject::Handoff(kind).to_string();
    let mut left = Vec::new();
    let mut from = 1;
    while let Some(message) = broker::next_on(&broker.jetstream, queue, &filter, from).await? {
        if message.sequence > done_to {
            break;
        }
        from = message.sequence + 1;
        if before.contains(&message.sequence) && is_old(&message, ack_wait) {
            warn!(%kind, sequence = message.sequence, "Handoff stuck in the queue; moving it to the dead letters.");
            // The next one must not wait for this one.
            if let Err(error) = move_away(undertaker, policy, kind, &message).await {
                warn!(%kind, sequence = message.sequence, error = %Chain(&error), "Stuck handoff not moved; retrying.");
                left.push(message.sequence);
            } else {
                undertaker.metrics.swept.inc();
            }
        } else {
            left.push(message.sequence);
        }
    }
    Ok(left)
}

async fn move_away(
    undertaker: &Undertaker<'_>,
    policy: &Policy,
    kind: Kind,
    message: &StreamMessage,
) -> Result<(), Error> {
    let deliveries = u64::try_from(streams::MAX_DELIVER).unwrap_or(0);
    give_up_stored(undertaker, policy, kind, message, deliveries).await?;
    remove(&undertaker.storage.broker, kind.role(), message.sequence).await.map_err(Error::Remove)
}

/// The sequence up to which the consumer will deliver nothing any more.
///
/// That is its acknowledgement floor; but the floor moves only with an acknowledgement, so on a quiet queue it stays
/// behind. When nothing waits for one, all that was delivered is done with.
async fn done_to(broker: &Broker, kind: Kind) -> Result<u64, Error> {
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
