//! Acts on the server's advisories: a handoff was delivered too often and will not be delivered again.

use std::time::Duration;

use async_nats::jetstream::{AckKind, consumer::PullConsumer, stream::ConsumerError};
use broker::{Chain, ReadError, retry::Waits};
use futures_util::StreamExt;
use serde::Deserialize;
use subjects::{Kind, Role, Subject, streams};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{Net, Undertaker, give_up_stored, remove};
use crate::admission::Policy;

const PULL_EXPIRES: Duration = Duration::from_secs(10);
const AT_ONCE: usize = 16;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
const ONE_ACK: Duration = Duration::from_secs(2);

/// What of an advisory is of use.
#[derive(Debug, Deserialize)]
struct Advisory {
    stream_seq: u64,
    deliveries: u64,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("looking up the advisory consumer")]
    Consumer(#[from] ConsumerError),
    #[error("pulling advisories")]
    Pull(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("reading the handoff")]
    Read(#[from] ReadError),
    #[error("removing the handoff from the queue")]
    Remove(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Dead(#[from] super::Error),
    #[error("acknowledging the advisory")]
    Ack(#[from] broker::AckError),
}

/// Moves until `stop`. Whatever fails is tried again: the advisory stays until its handoff is moved.
pub(crate) async fn run(net: Net, stop: CancellationToken) {
    let undertaker = net.undertaker();
    let mut waits = Waits::forever(FIRST_WAIT, LONGEST_WAIT);
    loop {
        let moved = tokio::select! {
            biased;
            // Cancel-safe per docs on `cancelled()`.
            () = stop.cancelled() => return,
            // Cancelled halfway, the advisory was not acknowledged and is acted on again.
            moved = pull_and_move(&undertaker, net.role, &net.policy) => moved,
        };
        match moved {
            Ok(()) => waits.reset(),
            Err(error) => {
                debug!(error = %Chain(&error), "Dead-letter advisories not read; retrying.");
                let wait = waits.next_wait().unwrap_or(LONGEST_WAIT);
                if tokio::time::timeout(wait, stop.cancelled()).await.is_ok() {
                    return;
                }
            }
        }
    }
}

async fn pull_and_move(undertaker: &Undertaker<'_>, role: Role, policy: &Policy) -> Result<(), Error> {
    let jetstream = &undertaker.storage.broker.jetstream;
    let consumer: PullConsumer =
        jetstream.get_consumer_from_stream(streams::mover_name(role), streams::ADVISORIES).await?;
    let mut batch = consumer
        .batch()
        .max_messages(AT_ONCE)
        .expires(PULL_EXPIRES)
        .messages()
        .await
        .map_err(|error| Error::Pull(Box::new(error)))?;
    while let Some(message) = batch.next().await {
        let message = message.map_err(Error::Pull)?;
        match serde_json::from_slice::<Advisory>(&message.payload) {
            // The next one must not wait for this one: its advisory comes back.
            Ok(advisory) => {
                if let Err(error) = move_one(undertaker, role, policy, &advisory).await {
                    warn!(sequence = advisory.stream_seq, error = %Chain(&error), "Handoff not moved to the dead letters; retrying.");
                    continue;
                }
            }
            Err(error) => warn!(%error, "Advisory unreadable; ignored."),
        }
        if let Some(ack) = &message.reply {
            broker::confirm(&undertaker.storage.broker.client, ack, AckKind::Ack.into(), ONE_ACK).await?;
        }
    }
    Ok(())
}

async fn move_one(
    undertaker: &Undertaker<'_>,
    role: Role,
    policy: &Policy,
    advisory: &Advisory,
) -> Result<(), Error> {
    let (broker, sequence) = (&*undertaker.storage.broker, advisory.stream_seq);
    let queue = broker.layout.handoffs(role);
    let Some(message) = broker::message_at(&broker.jetstream, queue, sequence).await? else {
        // Acknowledged late, or moved by another.
        return Ok(());
    };
    let Some(kind) = kind_of(&message.subject) else { return Ok(()) };
    give_up_stored(undertaker, policy, kind, &message, advisory.deliveries).await?;
    remove(broker, role, message.sequence).await.map_err(Error::Remove)?;
    undertaker.metrics.moved.inc();
    Ok(())
}

fn kind_of(subject: &str) -> Option<Kind> {
    match subject.parse() {
        Ok(Subject::Handoff(kind)) => Some(kind),
        _ => None,
    }
}
