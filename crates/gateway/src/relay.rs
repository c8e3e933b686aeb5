//! Publishes the messages of the outbox, in order per subject, and removes those that the stream has.
//!
//! Every gateway on a store runs a relay, and none of them is the leader. Each publishes the next message of
//! a subject only when the stream has the one before it, whichever relay published that, and a message has
//! the same id however often it is published. So the order holds, and no message is stored twice.

use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker::{Broker, Chain, OnDemand, PublishError, ReadError};
use futures_util::{StreamExt, stream};
use sea_orm::DbErr;
use store::{Outbox, Store, clock, entity::outbox};
use subjects::{headers, streams};
use tokio::{
    select,
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::metrics::Metrics;

/// The first pause after a round without messages. It doubles up to [`MAX_PAUSE`], and starts anew when a
/// message is added.
const MIN_PAUSE: Duration = Duration::from_millis(2);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a failure.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// How often the messages that wait are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// Messages in one round.
const BATCH: u64 = 256;
/// Subjects that are published concurrently.
const SUBJECTS_AT_ONCE: usize = 16;
const STREAM_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a round could not be finished, or a subject goes no further.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Nats(#[from] broker::Unavailable),
    #[error("the store is not available")]
    Store(#[from] DbErr),
    #[error("the stream {} does not exist and cannot be created: run `cynodectl provision`", streams::EVENTS)]
    Stream,
    #[error("publishing on {0}")]
    Publish(String, #[source] PublishError),
    #[error("looking for a message on {0}")]
    Look(String, #[source] ReadError),
}

/// Publishes the messages of the outbox.
#[derive(Debug)]
pub(crate) struct Relay {
    store: Store,
    nats: Arc<OnDemand>,
    outbox: Arc<Outbox>,
    metrics: Arc<Metrics>,
    /// How long the stream recognises a message, while it is known to exist.
    dedupe_window: Mutex<Option<Duration>>,
}

impl Relay {
    pub(crate) fn new(store: Store, nats: Arc<OnDemand>, outbox: Arc<Outbox>, metrics: Arc<Metrics>) -> Self {
        Self { store, nats, outbox, metrics, dedupe_window: Mutex::default() }
    }

    /// Publishes until `stop` is cancelled. What waits then is published after the next start, or by another
    /// gateway.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut pause = MIN_PAUSE;
        let mut failing = FailingSubjects::default();
        let (mut counted_at, mut is_failing) = (None::<Instant>, false);
        while !stop.is_cancelled() {
            let counts = counted_at.is_none_or(|at| at.elapsed() >= COUNT_INTERVAL);
            if counts {
                counted_at = Some(Instant::now());
            }
            let round = self.publish_round(&mut failing, counts).await;
            if let (Err(error), false) = (&round, is_failing) {
                warn!(error = %Chain(error), "Messages of the outbox wait; retrying.");
            } else if is_failing && round.is_ok() {
                info!("Messages of the outbox are published again.");
            }
            is_failing = round.is_err();
            match round {
                Ok(0) => select! {
                    () = stop.cancelled() => return,
                    () = self.outbox.added() => pause = MIN_PAUSE,
                    () = sleep(pause) => pause = (pause * 2).min(MAX_PAUSE),
                },
                Ok(_) => pause = MIN_PAUSE,
                Err(_) => select! {
                    () = stop.cancelled() => return,
                    () = sleep(FAILURE_PAUSE) => {}
                },
            }
        }
    }

    /// Publishes one batch. Returns how many messages were published.
    async fn publish_round(&self, failing: &mut FailingSubjects, counts: bool) -> Result<usize, Failure> {
        if counts {
            self.metrics.set_outbox(&self.store.waiting_messages().await?);
        }
        let batch = self.store.oldest_messages(failing.paused(), BATCH).await?;
        if batch.is_empty() {
            return Ok(0);
        }
        let broker = self.nats.broker().await?;
        let window = self.ensure_stream(&broker).await?;
        let mut by_subject: BTreeMap<String, Vec<outbox::Model>> = BTreeMap::new();
        for message in batch {
            by_subject.entry(message.subject.clone()).or_default().push(message);
        }
        let publishing = by_subject.into_iter().map(|(subject, messages)| {
            let broker = &broker;
            async move { (subject, publish_in_order(broker, messages, window).await) }
        });
        let mut publishing = stream::iter(publishing).buffer_unordered(SUBJECTS_AT_ONCE);
        let mut published = Vec::new();
        while let Some((subject, (ids, ended))) = publishing.next().await {
            published.extend(ids);
            if ended.is_err() {
                // It may have been deleted.
                *self.window() = None;
            }
            failing.record(&subject, ended);
        }
        drop(publishing);
        let count = published.len();
        if count > 0 {
            self.store.remove_messages(published).await?;
            self.metrics.outbox_published.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        }
        Ok(count)
    }

    /// Creates the stream if it is missing. Returns how long it recognises a message, which an operator may
    /// have changed.
    async fn ensure_stream(&self, broker: &Broker) -> Result<Duration, Failure> {
        if let Some(window) = *self.window() {
            return Ok(window);
        }
        let created = broker.jetstream.get_or_create_stream(streams::events(1));
        // A gateway that may not create streams gets no answer.
        let created = timeout(STREAM_TIMEOUT, created).await;
        let stream = created.map_err(|_| Failure::Stream)?.map_err(|_| Failure::Stream)?;
        let window = stream.cached_info().config.duplicate_window;
        *self.window() = Some(window);
        Ok(window)
    }

    /// No value is ever left half written, so a poisoned lock is safe to use.
    fn window(&self) -> MutexGuard<'_, Option<Duration>> {
        self.dedupe_window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Subjects whose last publish failed, and when to try them again. They do not delay the others.
#[derive(Debug, Default)]
struct FailingSubjects(HashMap<String, Instant>);

impl FailingSubjects {
    /// Returns the subjects that are not to be tried yet.
    fn paused(&self) -> Vec<String> {
        let now = Instant::now();
        self.0.iter().filter(|(_, until)| **until > now).map(|(subject, _)| subject.clone()).collect()
    }

    fn record(&mut self, subject: &str, ended: Result<(), Failure>) {
        match ended {
            Ok(()) => {
                if self.0.remove(subject).is_some() {
                    info!(subject, "Messages of the outbox are published again.");
                }
            }
            Err(error) => {
                let until = Instant::now() + FAILURE_PAUSE;
                if self.0.insert(subject.to_owned(), until).is_none() {
                    warn!(subject, error = %Chain(&error), "Messages of the outbox wait; retrying.");
                }
            }
        }
    }
}

/// Publishes the messages of one subject until one fails. Returns the ids of those that the stream has.
async fn publish_in_order(
    broker: &Broker,
    messages: Vec<outbox::Model>,
    window: Duration,
) -> (Vec<i64>, Result<(), Failure>) {
    let mut stored = Vec::with_capacity(messages.len());
    for message in messages {
        let id = message.id;
        if let Err(failure) = publish(broker, message, window).await {
            return (stored, Err(failure));
        }
        stored.push(id);
    }
    (stored, Ok(()))
}

async fn publish(broker: &Broker, message: outbox::Model, window: Duration) -> Result<(), Failure> {
    let outbox::Model { subject, message_id, body, created_at, .. } = message;
    // The stream would not recognise it any more, if an earlier attempt stored it without our knowledge.
    let age = Duration::from_micros(u64::try_from(clock::now() - created_at).unwrap_or_default());
    if age >= window / 2 && has_message(broker, &subject, &message_id, created_at).await? {
        return Ok(());
    }
    let mut sent = async_nats::HeaderMap::new();
    sent.insert(headers::MSG_ID, message_id);
    sent.insert(headers::CONTENT_TYPE, "application/json");
    // Another stream may listen to the subject.
    sent.insert(headers::EXPECTED_STREAM, streams::EVENTS);
    let published = broker::publish(&broker.client, subject.clone(), sent, body.into(), None).await;
    published.map(drop).map_err(|error| Failure::Publish(subject, error))
}

/// Returns whether the stream has a message that cannot be older than `since`.
async fn has_message(broker: &Broker, subject: &str, message_id: &str, since: i64) -> Result<bool, Failure> {
    const CLOCK_DIFFERENCE_US: i64 = 3_600_000_000;
    let mut is_found = false;
    let look = broker::scan_newest_first(&broker.jetstream, streams::EVENTS, subject, |message| {
        is_found = message.headers.get(headers::MSG_ID).is_some_and(|id| id.as_str() == message_id);
        if is_found || clock::micros(message.time) < since - CLOCK_DIFFERENCE_US {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    look.await.map_err(|error| Failure::Look(subject.to_owned(), error))?;
    Ok(is_found)
}
