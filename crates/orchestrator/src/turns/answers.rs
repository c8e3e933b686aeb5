//! Delivers answers to the requests that wait for them.
//!
//! One consumer for each process reads every answer that is stored, from where the process started: it misses
//! none when the connection is lost, and what it reads is committed. (A plain subscription would also show
//! answers that the stream then refuses.)

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_nats::jetstream::{
    self, Message,
    consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull},
};
use broker::{Broker, Chain, Unavailable, retry::RetryDelays};
use contract::thread::{GetTurn, Turn, TurnAnswer};
use futures_util::StreamExt;
use operate::answer;
use subjects::{Answer, HandoffId, Pattern, Role, Subject};
use tokio::{
    select,
    sync::oneshot,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use uuid::Uuid;

use super::{
    Turns,
    outcome::{cancelled, outcome},
};
use crate::gateway::CallError;

const BATCH: usize = 256;
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The server removes the consumer of a process that is gone.
const INACTIVE_AFTER: Duration = Duration::from_secs(60);
/// A request also looks for its answer itself, should the consumer be stuck, and asks whether its turn has
/// ended without an answer of a worker.
const LOOK_EVERY: Duration = Duration::from_secs(30);
const MAX_REMEMBERED: usize = 10_000;

/// An answer that requests wait for.
#[derive(Clone, Debug)]
pub(crate) struct Delivered {
    pub(crate) answer: TurnAnswer,
    /// Whether a worker gave it, so that it has to be stored. Other answers are stored by those who find that
    /// no worker answers.
    pub(crate) is_of_worker: bool,
}

/// The requests that wait for an answer.
#[derive(Debug, Default)]
pub(super) struct Answers {
    waiting: Arc<Mutex<Waiting>>,
    /// Turns whose answer this process stored in their thread a moment ago.
    ended: Mutex<Ended>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// Several requests may wait for one answer.
    by_handoff: HashMap<HandoffId, Vec<(u64, oneshot::Sender<Delivered>)>>,
    /// Since when each request waits, by its number, so the oldest first.
    since: BTreeMap<u64, Instant>,
}

#[derive(Debug, Default)]
struct Ended {
    ids: HashSet<HandoffId>,
    order: VecDeque<HandoffId>,
}

/// An answer that a request waits for. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct Expected {
    id: HandoffId,
    number: u64,
    user: String,
    answer: oneshot::Receiver<Delivered>,
    waiting: Arc<Mutex<Waiting>>,
    look_at: Instant,
}

/// It is not known whether the stream has an answer.
#[derive(Debug)]
pub(super) struct AnswerUnknown;

#[derive(Debug, thiserror::Error)]
enum FollowError {
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error("reading the stream of answers")]
    Stream(#[from] jetstream::context::GetStreamError),
    #[error("creating a consumer of answers")]
    Consumer(#[from] jetstream::stream::ConsumerError),
    #[error("requesting answers")]
    Request(#[from] jetstream::consumer::StreamError),
    #[error("receiving answers")]
    Receive(#[from] pull::MessagesError),
    #[error("reading the stream sequence of an answer")]
    NoPlace(#[source] async_nats::Error),
    #[error("the consumer skipped answers; reading the stream again")]
    Gap,
    #[error("the server ended the consumer")]
    Ended,
}

impl FollowError {
    /// Returns whether the stream of answers is away. After another error, or a loss of the connection, it is
    /// read again at once.
    fn is_outage(&self) -> bool {
        matches!(self, Self::Stream(_) | Self::Consumer(_) | Self::Request(_))
    }
}

impl Answers {
    /// Registers a request. To be called before its handoff is published.
    pub(super) fn expect(&self, id: HandoffId, user: &str) -> Expected {
        let (sender, answer) = oneshot::channel();
        let mut waiting = lock(&self.waiting);
        let number = waiting.next;
        waiting.next += 1;
        waiting.by_handoff.entry(id).or_default().push((number, sender));
        let since = Instant::now();
        waiting.since.insert(number, since);
        drop(waiting);
        let (user, waiting) = (user.to_owned(), self.waiting.clone());
        Expected { id, number, user, answer, waiting, look_at: since + LOOK_EVERY }
    }

    /// Returns how long the oldest request waits.
    pub(super) fn oldest_wait(&self) -> Duration {
        let waiting = lock(&self.waiting);
        waiting.since.first_key_value().map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }

    pub(super) fn is_expected(&self, id: HandoffId) -> bool {
        lock(&self.waiting).by_handoff.contains_key(&id)
    }

    pub(super) fn deliver(&self, id: HandoffId, delivered: &Delivered) {
        let senders = lock(&self.waiting).by_handoff.remove(&id).unwrap_or_default();
        for (_, sender) in senders {
            // A request that is gone meanwhile needs no answer.
            drop(sender.send(delivered.clone()));
        }
    }

    pub(super) fn remember_ended(&self, id: HandoffId) {
        let mut ended = lock(&self.ended);
        if ended.ids.insert(id) {
            ended.order.push_back(id);
        }
        if ended.order.len() > MAX_REMEMBERED
            && let Some(oldest) = ended.order.pop_front()
        {
            ended.ids.remove(&oldest);
        }
    }

    pub(super) fn was_ended_here(&self, id: HandoffId) -> bool {
        lock(&self.ended).ids.contains(&id)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Expected {
    /// Waits for the answer. Cancel-safe; not to be called again after it returned.
    pub(crate) async fn wait(&mut self, turns: &Turns) -> Delivered {
        loop {
            select! {
                biased;
                delivered = &mut self.answer => match delivered {
                    Ok(delivered) => return delivered,
                    // Each sender is used before it is dropped.
                    Err(_) => std::future::pending().await,
                },
                () = sleep_until(self.look_at) => {}
            }
            self.look_at = Instant::now() + LOOK_EVERY;
            turns.look_for_answer(self.id).await;
            turns.look_for_end(self.id, &self.user).await;
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        let mut waiting = lock(&self.waiting);
        waiting.since.remove(&self.number);
        if let Some(requests) = waiting.by_handoff.get_mut(&self.id) {
            requests.retain(|(number, _)| *number != self.number);
            if requests.is_empty() {
                waiting.by_handoff.remove(&self.id);
            }
        }
    }
}

impl Turns {
    /// Waits for the answer of a turn that another request began.
    pub(crate) async fn expect(&self, id: HandoffId, user: &str) -> Expected {
        let expected = self.answers.expect(id, user);
        self.look_for_answer(id).await;
        expected
    }

    /// Looks for an answer in the stream and delivers it.
    pub(super) async fn look_for_answer(&self, id: HandoffId) {
        if let Ok(Some(answer)) = self.find_answer(id).await {
            self.answers.deliver(id, &Delivered { answer, is_of_worker: true });
        }
    }

    /// Looks at the gateway for the end of a turn that no worker answers, and delivers it. Another
    /// orchestrator may have found it. A turn that was deleted with its thread was cancelled.
    async fn look_for_end(&self, id: HandoffId, user: &str) {
        let Ok(user_id) = user.parse() else { return };
        let answer = match self.gateway.call(&GetTurn { user_id, handoff_id: id }).await {
            Ok(Turn { answer: Some(answer), .. }) => answer,
            Ok(_) => return,
            Err(CallError::Failed { code, .. }) if code == "not_found" => cancelled(),
            Err(error) => {
                debug!(handoff.id = %id, error = %Chain(&error), "Turn not read; retrying.");
                return;
            }
        };
        self.answers.deliver(id, &Delivered { answer, is_of_worker: false });
    }

    /// Returns the answer of a turn if it is in the stream.
    pub(super) async fn find_answer(&self, id: HandoffId) -> Result<Option<TurnAnswer>, AnswerUnknown> {
        let broker = self.nats.broker().await.map_err(|_| AnswerUnknown)?;
        let (runs, subject) = (broker.layout.runs(Role::ProjectManager), Subject::Completion(id));
        let stored = broker::last_on(&broker.jetstream, runs, &subject).await.map_err(|error| {
            debug!(handoff.id = %id, error = %Chain(&error), "Answer not looked up; retrying.");
            AnswerUnknown
        })?;
        let Some(stored) = stored else { return Ok(None) };
        // An unreadable answer counts as an answer: a newer build may have written it.
        read(id, &stored.subject, Some(&stored.headers), &stored.payload).map(Some).ok_or(AnswerUnknown)
    }

    /// Returns whether no worker has claimed a handoff, as far as is known.
    pub(super) async fn is_unclaimed(&self, id: HandoffId) -> bool {
        let Ok(broker) = self.nats.broker().await else { return false };
        let (runs, run) = (broker.layout.runs(Role::ProjectManager), Pattern::Run(Role::ProjectManager, id));
        matches!(broker::last_on(&broker.jetstream, runs, &run).await, Ok(None))
    }

    /// Delivers an answer if a request waits for it.
    fn deliver(&self, message: &Message) {
        let Ok(Subject::Completion(id)) = message.subject.parse() else { return };
        if self.answers.is_expected(id)
            && let Some(answer) = read(id, &message.subject, message.headers.as_ref(), &message.payload)
        {
            self.answers.deliver(id, &Delivered { answer, is_of_worker: true });
        }
    }

    /// Delivers answers as they are stored, until `stop` is cancelled.
    pub(super) async fn follow_answers(&self, stop: &CancellationToken) {
        let mut delays = RetryDelays::forever(Duration::from_millis(50), Duration::from_secs(2));
        let mut last = None;
        loop {
            let followed = select! {
                () = stop.cancelled() => return,
                // Boxed, since the future is large.
                followed = Box::pin(self.follow(&mut last)) => followed,
            };
            match followed {
                // The connection was restored.
                Ok(()) => delays.reset(),
                Err(error) => {
                    debug!(error = %Chain(&error), "Answers not followed; retrying.");
                    if error.is_outage() {
                        self.readiness.send_modify(|readiness| readiness.follows = false);
                    }
                    select! {
                        () = stop.cancelled() => return,
                        () = sleep(delays.next_delay().unwrap_or_default()) => {}
                    }
                }
            }
        }
    }

    /// Delivers answers until the connection is restored after a loss. `last` is the place in the stream up
    /// to which answers were read.
    async fn follow(&self, last: &mut Option<u64>) -> Result<(), FollowError> {
        let broker = self.nats.broker().await?;
        let mut connections = broker.connections.clone();
        connections.mark_unchanged();
        let consumer = consumer(&broker, last).await?;
        let mut answers =
            consumer.stream().max_messages_per_batch(BATCH).heartbeat(HEARTBEAT).messages().await?;
        self.readiness.send_modify(|readiness| readiness.follows = true);
        let mut expected = 1;
        loop {
            let received = select! {
                // Cancel-safe: the change stays visible.
                changed = connections.changed() => return changed.map_err(|_| FollowError::Ended),
                // Cancel-safe: what is not yielded stays in the stream.
                received = answers.next() => received,
            };
            let message = received.ok_or(FollowError::Ended)??;
            let place = message.info().map_err(FollowError::NoPlace)?;
            if place.consumer_sequence != expected {
                return Err(FollowError::Gap);
            }
            expected += 1;
            *last = Some(place.stream_sequence);
            self.deliver(&message);
        }
    }
}

/// Decodes an answer.
fn read(
    id: HandoffId,
    subject: &str,
    headers: Option<&async_nats::HeaderMap>,
    body: &[u8],
) -> Option<TurnAnswer> {
    match answer::read(subject, headers, body)? {
        Ok(Answer::Completion(completion)) => Some(outcome(completion)),
        Ok(Answer::Findings(_)) => None,
        Err(error) => {
            warn!(handoff.id = %id, error = %Chain(&error), "Answer unreadable.");
            None
        }
    }
}

/// Creates the consumer of this process, after what was read last or at the end of the stream.
async fn consumer(broker: &Broker, last: &mut Option<u64>) -> Result<PullConsumer, FollowError> {
    let runs = broker.layout.runs(Role::ProjectManager);
    let end = broker.jetstream.get_stream(runs).await?.cached_info().state.last_sequence;
    // A stream that ends before was made anew.
    let after = last.map_or(end, |last| if last > end { 0 } else { last });
    *last = Some(after);
    let config = pull::Config {
        name: Some(format!("orchestrator-{}", Uuid::new_v4().simple())),
        filter_subject: Pattern::Answers(Role::ProjectManager).to_string(),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: after + 1 },
        ack_policy: AckPolicy::None,
        inactive_threshold: INACTIVE_AFTER,
        memory_storage: true,
        num_replicas: 1,
        ..pull::Config::default()
    };
    Ok(broker.jetstream.create_consumer_on_stream(config, runs).await?)
}
