//! Publishes the messages of the outbox, in order per key, and removes those that their streams have. The
//! messages of different keys are published concurrently, as far as [`lanes`] permits.
//!
//! Every gateway on a store runs a relay, and none of them is the leader. Each publishes the next message
//! with a key only when the stream has the one before it, whichever relay published that, and a message has
//! the same id however often it is published. So the order holds, and no message is stored twice.

mod conditional;
mod lanes;
mod request;

use std::{
    collections::{BTreeMap, HashMap},
    ops::ControlFlow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker::{Broker, Chain, Expect, OnDemand, PublishError, ReadError};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use sea_orm::DbErr;
use store::{NO_STREAM, Outbox, SendIf, Store, clock, entity::outbox};
use subjects::headers;
use tokio::{
    select,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use self::lanes::{Lanes, Run};
use crate::metrics::Metrics;

/// The first pause after a read that found no messages. It doubles up to [`MAX_PAUSE`], and starts anew when
/// a message is added or published.
const MIN_PAUSE: Duration = Duration::from_millis(2);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The pause while NATS or the store is not available.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// How often the messages that wait are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);
/// How often to search for messages behind a long backlog of another subject, which reads all of it.
const LOOK_PAST_INTERVAL: Duration = Duration::from_millis(100);
/// Messages that are read, and that are removed, at once.
const BATCH: usize = 256;
const STREAM_TIMEOUT: Duration = Duration::from_secs(5);

/// Why messages cannot be read, or why a key is blocked.
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
    #[error("searching for a message on {0}")]
    Look(String, #[source] ReadError),
    #[error("no worker answers on {0}")]
    NoAnswer(String),
}

impl Failure {
    /// Returns whether it says nothing about other messages of the subject.
    fn is_of_one_message(&self) -> bool {
        matches!(self, Self::Publish(_, PublishError::TooLarge))
    }
}

/// The outcome of publishing a run.
#[derive(Debug)]
struct Ended {
    key: String,
    subject: String,
    /// The messages that their stream has.
    published: Vec<i64>,
    outcome: Result<(), Failure>,
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
        let (mut lanes, mut looks) = (Lanes::default(), Looks::new());
        let mut publishing = FuturesUnordered::new();
        while !stop.is_cancelled() {
            if looks.is_due() && lanes.has_room() {
                match self.look(&mut lanes, &mut looks).await {
                    Ok(Some((broker, runs))) => {
                        for run in runs {
                            publishing.push(self.publish_run(broker.clone(), run, &stop));
                        }
                    }
                    Ok(None) => {}
                    Err(error) => looks.fail(&error),
                }
            }
            let ended = select! {
                biased;
                () = stop.cancelled() => break,
                ended = publishing.next(), if !publishing.is_empty() => ended,
                () = self.outbox.added() => {
                    looks.hurry(!publishing.is_empty());
                    None
                }
                () = sleep_until(looks.at), if lanes.has_room() => None,
            };
            let Some(ended) = ended else { continue };
            let mut all = vec![ended];
            while let Some(Some(ended)) = publishing.next().now_or_never() {
                all.push(ended);
            }
            looks.hurry(true);
            if let Err(error) = self.settle(&mut lanes, all).await {
                looks.fail(&error);
            }
        }
        // What is sent already is removed, so that it is not sent again after the next start.
        while let Some(ended) = publishing.next().await {
            if let Err(error) = self.settle(&mut lanes, vec![ended]).await {
                warn!(error = %Chain(&error), "Published messages not removed; they are sent again.");
            }
        }
    }

    /// Reads the oldest messages that may be published, and returns those for which there is a lane.
    async fn look(
        &self,
        lanes: &mut Lanes,
        looks: &mut Looks,
    ) -> Result<Option<(Arc<Broker>, Vec<Run>)>, Failure> {
        if looks.counts() {
            self.metrics.set_outbox(&self.store.waiting_messages().await?);
        }
        let mut batch = self.oldest_messages(lanes, false).await?;
        if batch.is_empty() {
            looks.found_none(lanes);
            return Ok(None);
        }
        let mut is_full = batch.len() >= BATCH;
        let broker = Arc::new(self.nats.broker().await?);
        let mut runs = lanes.start(batch, Instant::now());
        // A subject with a long backlog is slow: messages of others may wait behind it.
        if runs.is_empty() && is_full && lanes.has_full_subject() && looks.looks_past() {
            batch = self.oldest_messages(lanes, true).await?;
            is_full = batch.len() >= BATCH;
            runs = lanes.start(batch, Instant::now());
        }
        match runs.is_empty() {
            true => looks.found_none(lanes),
            false => looks.found_some(lanes, is_full),
        }
        Ok(Some((broker, runs)))
    }

    async fn oldest_messages(
        &self,
        lanes: &mut Lanes,
        past_full: bool,
    ) -> Result<Vec<outbox::Model>, Failure> {
        let left_out = lanes.left_out(Instant::now(), past_full);
        let limit = u64::try_from(BATCH).unwrap_or(u64::MAX);
        Ok(self.store.oldest_messages(left_out.keys, left_out.subjects, limit).await?)
    }

    /// Removes the messages that are published, and frees their lanes.
    async fn settle(&self, lanes: &mut Lanes, ended: Vec<Ended>) -> Result<(), Failure> {
        let published: Vec<i64> = ended.iter().flat_map(|run| run.published.iter().copied()).collect();
        let removed = self.remove(&published).await;
        let now = Instant::now();
        for run in &ended {
            lanes.end(&run.key, &run.subject, run.outcome.as_ref().err(), now);
        }
        removed
    }

    async fn remove(&self, published: &[i64]) -> Result<(), Failure> {
        for ids in published.chunks(BATCH) {
            self.store.remove_messages(ids.to_vec()).await?;
            self.metrics.outbox_published.inc_by(u64::try_from(ids.len()).unwrap_or(u64::MAX));
        }
        Ok(())
    }

    /// Publishes the messages of a run in order until one fails, or the gateway stops.
    async fn publish_run(&self, broker: Arc<Broker>, run: Run, stop: &CancellationToken) -> Ended {
        let Run { key, subject, messages } = run;
        let mut published = Vec::with_capacity(messages.len());
        let mut outcome = Ok(());
        for message in messages {
            if stop.is_cancelled() {
                break;
            }
            let (id, stream) = (message.id, message.stream.clone());
            outcome = if stream == NO_STREAM {
                request::send(&broker, &message).await
            } else {
                self.publish_stored(&broker, message).await
            };
            if outcome.is_err() {
                // The stream may have been deleted.
                self.windows().remove(&stream);
                break;
            }
            published.push(id);
        }
        Ended { key, subject, published, outcome }
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

/// When the relay looks for messages.
#[derive(Debug)]
struct Looks {
    at: Instant,
    pause: Duration,
    counted_at: Option<Instant>,
    looked_past_at: Option<Instant>,
    is_failing: bool,
}

impl Looks {
    fn new() -> Self {
        Self {
            at: Instant::now(),
            pause: MIN_PAUSE,
            counted_at: None,
            looked_past_at: None,
            is_failing: false,
        }
    }

    fn is_due(&self) -> bool {
        self.at <= Instant::now()
    }

    /// Returns whether the messages that wait are to be counted now, and notes that they are.
    fn counts(&mut self) -> bool {
        let counts = self.counted_at.is_none_or(|at| at.elapsed() >= COUNT_INTERVAL);
        if counts {
            self.counted_at = Some(Instant::now());
        }
        counts
    }

    /// Returns whether to look past subjects that are full now, and notes that it is done.
    fn looks_past(&mut self) -> bool {
        let is_due = self.looked_past_at.is_none_or(|at| at.elapsed() >= LOOK_PAST_INTERVAL);
        if is_due {
            self.looked_past_at = Some(Instant::now());
        }
        is_due
    }

    /// Records that there may be messages. While others are published, several such notes lead to one look.
    fn hurry(&mut self, is_busy: bool) {
        self.pause = MIN_PAUSE;
        if !self.is_failing {
            let wait = if is_busy { MIN_PAUSE } else { Duration::ZERO };
            self.at = self.at.min(Instant::now() + wait);
        }
    }

    fn found_none(&mut self, lanes: &Lanes) {
        let wait = self.pause;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        self.succeed(lanes, wait);
    }

    /// Records that messages were found; if `has_more`, others may follow them.
    fn found_some(&mut self, lanes: &Lanes, has_more: bool) {
        self.pause = MIN_PAUSE;
        self.succeed(lanes, if has_more { Duration::ZERO } else { MIN_PAUSE });
    }

    fn succeed(&mut self, lanes: &Lanes, wait: Duration) {
        let now = Instant::now();
        self.at = lanes.next_due(now).map_or(now + wait, |due| due.min(now + wait));
        if std::mem::take(&mut self.is_failing) {
            info!("Outbox publishing resumed.");
        }
    }

    fn fail(&mut self, error: &Failure) {
        self.at = Instant::now() + FAILURE_PAUSE;
        if !std::mem::replace(&mut self.is_failing, true) {
            warn!(error = %Chain(error), "Outbox messages not published; retrying.");
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
