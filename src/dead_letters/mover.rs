//! Dead-letters handoffs named in the server's advisories: they reached the delivery limit and are not
//! redelivered.

use std::time::Duration;

use async_nats::jetstream::{AckKind, consumer::PullConsumer, stream::ConsumerError};
use broker::{Chain, ReadError, retry::RetryDelays};
use futures_util::StreamExt;
use serde::Deserialize;
use subjects::{Kind, Role, Subject, streams};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{DeadLetterResources, DeadLetterWriter, dead_letter_stored, remove_from_queue};
use crate::admission::Policy;

const PULL_EXPIRY: Duration = Duration::from_secs(10);
const MAX_BATCH: usize = 16;
const FIRST_WAIT: Duration = Duration::from_millis(500);
const MAX_WAIT: Duration = Duration::from_secs(30);
const ACK_TIMEOUT: Duration = Duration::from_secs(2);

/// The part of an advisory that is used.
#[derive(Debug, Deserialize)]
struct Advisory {
    stream_seq: u64,
    deliveries: u64,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("reading the advisory consumer")]
    Consumer(#[from] ConsumerError),
    #[error("pulling advisories")]
    Pull(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("reading the handoff")]
    Read(#[from] ReadError),
    #[error("removing the handoff from the queue")]
    Remove(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    DeadLetter(#[from] super::Error),
    #[error("acknowledging the advisory")]
    Ack(#[from] broker::AckError),
}

/// Runs until `stop`. Failures are retried: an advisory stays stored until its handoff is moved.
pub(crate) async fn run(resources: DeadLetterResources, stop: CancellationToken) {
    let writer = resources.writer();
    let mut waits = RetryDelays::forever(FIRST_WAIT, MAX_WAIT);
    loop {
        let moved = tokio::select! {
            biased;
            // Cancel-safe per docs on `cancelled()`.
            () = stop.cancelled() => return,
            // Cancelled halfway, the advisory is not acknowledged and is processed again.
            moved = pull_and_move(&writer, resources.role, &resources.policy) => moved,
        };
        match moved {
            Ok(()) => waits.reset(),
            Err(error) => {
                debug!(error = %Chain(&error), "Dead-letter advisories not read; retrying.");
                let wait = waits.next_delay().unwrap_or(MAX_WAIT);
                if tokio::time::timeout(wait, stop.cancelled()).await.is_ok() {
                    return;
                }
            }
        }
    }
}

async fn pull_and_move(writer: &DeadLetterWriter<'_>, role: Role, policy: &Policy) -> Result<(), Error> {
    let jetstream = &writer.storage.streams.broker.jetstream;
    let consumer: PullConsumer =
        jetstream.get_consumer_from_stream(streams::mover_name(role), streams::ADVISORIES).await?;
    let mut batch = consumer
        .batch()
        .max_messages(MAX_BATCH)
        .expires(PULL_EXPIRY)
        .messages()
        .await
        .map_err(|error| Error::Pull(Box::new(error)))?;
    while let Some(message) = batch.next().await {
        let message = message.map_err(Error::Pull)?;
        match serde_json::from_slice::<Advisory>(&message.payload) {
            // A failure must not delay the next advisory: this one is redelivered.
            Ok(advisory) => {
                if let Err(error) = move_one(writer, role, policy, &advisory).await {
                    warn!(
                        sequence = advisory.stream_seq,
                        error = %Chain(&error),
                        "Handoff not moved to the dead letters; retrying."
                    );
                    continue;
                }
            }
            Err(error) => warn!(%error, "Advisory unreadable; ignored."),
        }
        if let Some(ack) = &message.reply {
            broker::confirm(&writer.storage.streams.broker.client, ack, AckKind::Ack.into(), ACK_TIMEOUT)
                .await?;
        }
    }
    Ok(())
}

async fn move_one(
    writer: &DeadLetterWriter<'_>,
    role: Role,
    policy: &Policy,
    advisory: &Advisory,
) -> Result<(), Error> {
    let (broker, sequence) = (&*writer.storage.streams.broker, advisory.stream_seq);
    let queue = broker.layout.handoffs(role);
    let Some(message) = broker::message_at(&broker.jetstream, queue, sequence).await? else {
        // Acknowledged late, or moved by another instance.
        return Ok(());
    };
    let Some(kind) = kind_of(&message.subject) else { return Ok(()) };
    dead_letter_stored(writer, policy, kind, &message, advisory.deliveries).await?;
    remove_from_queue(broker, role, message.sequence).await.map_err(Error::Remove)?;
    writer.metrics.moved.inc();
    Ok(())
}

fn kind_of(subject: &str) -> Option<Kind> {
    match subject.parse() {
        Ok(Subject::Handoff(kind)) => Some(kind),
        _ => None,
    }
}
