//! Publishes the messages of the outbox, in order per key, and removes those that their streams have.
//!
//! Every gateway on a store runs a relay, and none of them is the leader. Each publishes the next message
//! with a key only when the stream has the one before it, whichever relay published that, and a message has
//! the same id however often it is published. So the order holds, and no message is stored twice.

mod conditional;
mod request;

use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker::{Broker, Chain, Expect, OnDemand, PublishError, ReadError};
use futures_util::{StreamExt, stream};
use sea_orm::DbErr;
use store::{NO_STREAM, Outbox, SendIf, Store, clock, entity::outbox};
use subjects::headers;
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
/// Keys whose messages are published concurrently.
const KEYS_AT_ONCE: usize = 16;
const STREAM_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a round could not be finished, or a key goes no further.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Nats(#[from] broker::Unavailable),
    #[error("the store is not available")]
    Store(#[from] DbErr),
    #[error("the stream {0} does not exist and cannot be created: run `cynodectl provision`")]
    Stream(String),
    #[error("publishing on {0}")]
    Publish(String, #[source] PublishError),
    #[error("looking for a message on {0}")]
    Look(String, #[source] ReadError),
    #[error("no worker answers on {0}")]
    NoAnswer(String),
}

/// Publishes the messages of the outbox.
#[derive(Debug)]
pub(crate) struct Relay {
    store: Store,
    nats: Arc<OnDemand>,
    outbox: Arc<Outbox>,
    metrics: Arc<Metrics>,
    /// How long each stream recognises a message, while it is known to exist.
    dedupe_windows: Mutex<HashMap<String, Duration>>,
}

impl Relay {
    pub(crate) fn new(store: Store, nats: Arc<OnDemand>, outbox: Arc<Outbox>, metrics: Arc<Metrics>) -> Self {
        Self { store, nats, outbox, metrics, dedupe_windows: Mutex::default() }
    }

    /// Publishes until `stop` is cancelled. What waits then is published after the next start, or by another
    /// gateway.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut pause = MIN_PAUSE;
        let mut failing = FailingKeys::default();
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
    async fn publish_round(&self, failing: &mut FailingKeys, counts: bool) -> Result<usize, Failure> {
        if counts {
            self.metrics.set_outbox(&self.store.waiting_messages().await?);
        }
        let batch = self.store.oldest_messages(failing.paused(), BATCH).await?;
        if batch.is_empty() {
            return Ok(0);
        }
        let broker = self.nats.broker().await?;
        let mut by_key: BTreeMap<String, Vec<outbox::Model>> = BTreeMap::new();
        for message in batch {
            by_key.entry(message.ordering.clone()).or_default().push(message);
        }
        let publishing = by_key.into_iter().map(|(key, messages)| {
            let broker = &broker;
            async move { (key, self.publish_in_order(broker, messages).await) }
        });
        let mut publishing = stream::iter(publishing).buffer_unordered(KEYS_AT_ONCE);
        let mut published = Vec::new();
        while let Some((key, (ids, ended))) = publishing.next().await {
            published.extend(ids);
            if ended.is_err() {
                // A stream may have been deleted.
                self.windows().clear();
            }
            failing.record(&key, ended);
        }
        drop(publishing);
        let count = published.len();
        if count > 0 {
            self.store.remove_messages(published).await?;
            self.metrics.outbox_published.inc_by(u64::try_from(count).unwrap_or(u64::MAX));
        }
        Ok(count)
    }

    /// Publishes messages until one fails. Returns the ids of those that their streams have.
    async fn publish_in_order(
        &self,
        broker: &Broker,
        messages: Vec<outbox::Model>,
    ) -> (Vec<i64>, Result<(), Failure>) {
        let mut stored = Vec::with_capacity(messages.len());
        for message in messages {
            let id = message.id;
            let published = if message.stream == NO_STREAM {
                request::send(broker, &message).await
            } else {
                self.publish_stored(broker, message).await
            };
            if let Err(failure) = published {
                return (stored, Err(failure));
            }
            stored.push(id);
        }
        (stored, Ok(()))
    }

    async fn publish_stored(&self, broker: &Broker, message: outbox::Model) -> Result<(), Failure> {
        let window = self.ensure_stream(broker, &message.stream).await?;
        publish(broker, message, window).await
    }

    /// Creates a stream if it is missing. Returns how long it recognises a message, which an operator may
    /// have changed.
    async fn ensure_stream(&self, broker: &Broker, name: &str) -> Result<Duration, Failure> {
        if let Some(window) = self.windows().get(name) {
            return Ok(*window);
        }
        let missing = || Failure::Stream(name.to_owned());
        // A gateway that may not create streams gets no answer.
        let found = match crate::jobs::stream_config(name) {
            Some(config) => timeout(STREAM_TIMEOUT, broker.jetstream.get_or_create_stream(config)).await,
            // The queue of handoffs: workers create it, with their own settings.
            None => {
                let found = timeout(STREAM_TIMEOUT, broker.jetstream.get_stream(name)).await;
                let stream = found.map_err(|_| missing())?.map_err(|_| missing())?;
                return Ok(self.remember_window(name, stream.cached_info().config.duplicate_window));
            }
        };
        let stream = found.map_err(|_| missing())?.map_err(|_| missing())?;
        Ok(self.remember_window(name, stream.cached_info().config.duplicate_window))
    }

    fn remember_window(&self, name: &str, window: Duration) -> Duration {
        self.windows().insert(name.to_owned(), window);
        window
    }

    /// No value is ever left half written, so a poisoned lock is safe to use.
    fn windows(&self) -> MutexGuard<'_, HashMap<String, Duration>> {
        self.dedupe_windows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keys whose last publish failed, and when to try them again. They do not delay the others.
#[derive(Debug, Default)]
struct FailingKeys(HashMap<String, Instant>);

impl FailingKeys {
    /// Returns the keys that are not to be tried yet.
    fn paused(&self) -> Vec<String> {
        let now = Instant::now();
        self.0.iter().filter(|(_, until)| **until > now).map(|(key, _)| key.clone()).collect()
    }

    fn record(&mut self, key: &str, ended: Result<(), Failure>) {
        match ended {
            Ok(()) => {
                if self.0.remove(key).is_some() {
                    info!(key, "Messages of the outbox are published again.");
                }
            }
            Err(error) => {
                let until = Instant::now() + FAILURE_PAUSE;
                if self.0.insert(key.to_owned(), until).is_none() {
                    warn!(key, error = %Chain(&error), "Messages of the outbox wait; retrying.");
                }
            }
        }
    }
}

async fn publish(broker: &Broker, message: outbox::Model, window: Duration) -> Result<(), Failure> {
    // The stream would not recognise it any more, if an earlier attempt stored it without our knowledge.
    let age = Duration::from_micros(u64::try_from(clock::now() - message.created_at).unwrap_or_default());
    // Workers recognise a copy of a handoff by themselves, and the gateway may not read their queue.
    let may_look = crate::jobs::stream_config(&message.stream).is_some();
    if may_look && age >= window / 2 && has_message(broker, &message).await? {
        return Ok(());
    }
    match message.only_if.as_deref().map(SendIf::parse) {
        Some(Some(condition)) => conditional::publish(broker, message, condition).await,
        // A condition of a newer gateway.
        Some(None) => Ok(()),
        None => send(broker, &message, None).await,
    }
}

/// Publishes a message, if `expect` holds.
async fn send(broker: &Broker, message: &outbox::Model, expect: Option<&Expect>) -> Result<(), Failure> {
    let mut sent = async_nats::HeaderMap::new();
    sent.insert(headers::MSG_ID, message.message_id.as_str());
    sent.insert(headers::CONTENT_TYPE, "application/json");
    let own = message.headers.as_deref().map(serde_json::from_str::<BTreeMap<String, String>>);
    for (name, value) in own.and_then(Result::ok).unwrap_or_default() {
        sent.insert(name, value);
    }
    // Another stream may listen to the subject.
    sent.insert(headers::EXPECTED_STREAM, message.stream.as_str());
    let (subject, body) = (message.subject.clone(), message.body.clone());
    let published = broker::publish(&broker.client, subject, sent, body.into(), expect).await;
    published.map(drop).map_err(|error| Failure::Publish(message.subject.clone(), error))
}

/// Returns whether the stream has a message that cannot be older than its row.
async fn has_message(broker: &Broker, wanted: &outbox::Model) -> Result<bool, Failure> {
    const CLOCK_DIFFERENCE_US: i64 = 3_600_000_000;
    let mut is_found = false;
    let look = broker::scan_newest_first(&broker.jetstream, &wanted.stream, &wanted.subject, |message| {
        is_found = message.headers.get(headers::MSG_ID).is_some_and(|id| id.as_str() == wanted.message_id);
        if is_found || clock::micros(message.time) < wanted.created_at - CLOCK_DIFFERENCE_US {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    look.await.map_err(|error| Failure::Look(wanted.subject.clone(), error))?;
    Ok(is_found)
}
