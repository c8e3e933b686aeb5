//! Listening for what comes of a handoff, from before it is published until its answer is there.

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

/// A look into the stream now and then, should the answer have passed while the connection was away.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// An answer is heard a moment before it is stored.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) enum Heard {
    Answer(Box<Answer>),
    Event(Event),
    Delta(Delta),
    /// Time has passed.
    Nothing,
}

pub(crate) struct Waiting {
    kinds: Vec<Kind>,
    id: HandoffId,
    heard: SelectAll<Subscriber>,
    look: Looks,
}

/// When to look into the stream next.
struct Looks {
    at: Instant,
    pause: Duration,
}

impl Looks {
    fn from_now_on() -> Self {
        Self { at: Instant::now(), pause: LOOK_EVERY }
    }

    /// There may be something: look at once, and again soon.
    fn hasten(&mut self) {
        *self = Self { at: Instant::now(), pause: LOOK_AGAIN };
    }

    async fn next(&mut self) {
        tokio::time::sleep_until(self.at).await;
        self.at = Instant::now() + self.pause;
        self.pause = LOOK_EVERY.min(self.pause * 2);
    }
}

impl Waiting {
    pub(crate) async fn start(broker: &Broker, kinds: &[Kind], id: HandoffId) -> Result<Self, Error> {
        let answers = kinds.iter().map(|kind| Subject::answer(*kind, id));
        let mut heard = Vec::new();
        for subject in answers.chain([Subject::Event(id), Subject::Delta(id)]) {
            heard.push(broker.client.subscribe(subject.to_string()).await?);
        }
        Ok(Self { kinds: kinds.to_vec(), id, heard: select_all(heard), look: Looks::from_now_on() })
    }

    pub(crate) fn id(&self) -> HandoffId {
        self.id
    }

    /// What is heard next, at the latest after a while. Dropped before it ends, nothing that was heard is lost.
    pub(crate) async fn next(&mut self, broker: &Broker) -> Result<Heard, Error> {
        tokio::select! {
            Some(message) = self.heard.next() => {
                if let Ok(Subject::Completion(_) | Subject::Findings(_)) = message.subject.parse() {
                    self.look.hasten();
                    return Ok(Heard::Nothing);
                }
                if let Ok(event) = serde_json::from_slice(&message.payload) {
                    return Ok(Heard::Event(event));
                }
                Ok(serde_json::from_slice(&message.payload).map_or(Heard::Nothing, Heard::Delta))
            }
            () = self.look.next() => match answer::stored(broker, &self.kinds, self.id).await {
                Ok(Some(answer)) => Ok(Heard::Answer(Box::new(answer))),
                // A look that fails is a look too early.
                Ok(None) | Err(Error::Read(_)) => Ok(Heard::Nothing),
                Err(error) => Err(error),
            }
        }
    }

    pub(crate) async fn answer(mut self, broker: &Broker, within: Duration) -> Result<Answer, Error> {
        let started = Instant::now();
        let mut worked_on_by = String::new();
        loop {
            let left = within.saturating_sub(started.elapsed());
            let heard = tokio::time::timeout(left, self.next(broker))
                .await
                .unwrap_or_else(|_| Err(Error::NoAnswer(self.id, humantime::format_duration(within))));
            match heard {
                Ok(Heard::Event(event)) => {
                    worked_on_by = format!(" · {} is at it, attempt {}", event.instance, event.attempt);
                }
                Ok(Heard::Delta(_)) => {}
                Ok(Heard::Nothing) => {
                    print::progress(&format!("waiting for {} s{worked_on_by}", started.elapsed().as_secs()));
                }
                Ok(Heard::Answer(answer)) => {
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
