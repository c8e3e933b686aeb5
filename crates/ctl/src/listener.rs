//! Receives the updates of one handoff: subscribes before it is published, ends with its answer.

use std::time::Duration;

use async_nats::Subscriber;
use broker::Broker;
use futures_util::{
    StreamExt,
    stream::{SelectAll, select_all},
};
use subjects::{Answer, Delta, Event, HandoffId, Kind, Subject};
use tokio::time::Instant;

use crate::{answer, error::Error, print};

/// Interval at which the stream is polled, in case the answer was published while the connection was lost.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// First interval after an answer was received: it is received a moment before it is stored.
const FIRST_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// An update of the handoff.
#[derive(Debug)]
pub(crate) enum Update {
    Answer(Box<Answer>),
    Event(Event),
    Delta(Delta),
    /// Nothing to show; returned at least once per poll.
    Nothing,
}

pub(crate) struct AnswerListener {
    kinds: Vec<Kind>,
    id: HandoffId,
    messages: SelectAll<Subscriber>,
    polls: PollSchedule,
}

/// When to poll the stream next.
struct PollSchedule {
    at: Instant,
    interval: Duration,
}

impl PollSchedule {
    fn new() -> Self {
        Self { at: Instant::now(), interval: POLL_INTERVAL }
    }

    /// Polls at once, then again after a short interval that doubles.
    fn poll_now(&mut self) {
        *self = Self { at: Instant::now(), interval: FIRST_POLL_INTERVAL };
    }

    /// Waits until the next poll is due.
    async fn next(&mut self) {
        tokio::time::sleep_until(self.at).await;
        self.at = Instant::now() + self.interval;
        self.interval = POLL_INTERVAL.min(self.interval * 2);
    }
}

impl AnswerListener {
    /// Subscribes to the updates of a handoff, which may be one of several kinds.
    pub(crate) async fn start(broker: &Broker, kinds: &[Kind], id: HandoffId) -> Result<Self, Error> {
        let answers = kinds.iter().map(|kind| Subject::answer(*kind, id));
        let mut subscriptions = Vec::new();
        for subject in answers.chain([Subject::Event(id), Subject::Delta(id)]) {
            subscriptions.push(broker.client.subscribe(subject.to_string()).await?);
        }
        let messages = select_all(subscriptions);
        Ok(Self { kinds: kinds.to_vec(), id, messages, polls: PollSchedule::new() })
    }

    pub(crate) fn id(&self) -> HandoffId {
        self.id
    }

    /// Returns the next update, [`Update::Nothing`] at the latest after a poll. Cancel-safe: no message is
    /// lost.
    pub(crate) async fn next(&mut self, broker: &Broker) -> Result<Update, Error> {
        tokio::select! {
            Some(message) = self.messages.next() => {
                if let Ok(Subject::Completion(_) | Subject::Findings(_)) = message.subject.parse() {
                    self.polls.poll_now();
                    return Ok(Update::Nothing);
                }
                if let Ok(event) = serde_json::from_slice(&message.payload) {
                    return Ok(Update::Event(event));
                }
                Ok(serde_json::from_slice(&message.payload).map_or(Update::Nothing, Update::Delta))
            }
            () = self.polls.next() => match answer::stored(broker, &self.kinds, self.id).await {
                Ok(Some(answer)) => Ok(Update::Answer(Box::new(answer))),
                // A failed read is tried again with the next poll.
                Ok(None) | Err(Error::Read(_)) => Ok(Update::Nothing),
                Err(error) => Err(error),
            }
        }
    }

    /// Waits for the answer and shows progress. Fails with [`Error::NoAnswer`] after `within`.
    pub(crate) async fn wait_for_answer(
        mut self,
        broker: &Broker,
        within: Duration,
    ) -> Result<Answer, Error> {
        let started = Instant::now();
        let mut owner = String::new();
        loop {
            let left = within.saturating_sub(started.elapsed());
            let update = tokio::time::timeout(left, self.next(broker))
                .await
                .unwrap_or_else(|_| Err(Error::NoAnswer(self.id, humantime::format_duration(within))));
            match update {
                Ok(Update::Event(event)) => {
                    owner = format!(" · claimed by {}, attempt {}", event.instance, event.attempt);
                }
                Ok(Update::Delta(_)) => {}
                Ok(Update::Nothing) => {
                    print::progress(&format!("waiting for {} s{owner}", started.elapsed().as_secs()));
                }
                Ok(Update::Answer(answer)) => {
                    print::progress("");
                    return Ok(*answer);
                }
                Err(error) => {
                    print::progress("");
                    return Err(error);
                }
            }
        }
    }
}
