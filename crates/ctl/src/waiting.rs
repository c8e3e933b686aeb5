//! Listening for what comes of a handoff, from before it is published until its answer is there.

use std::time::{Duration, Instant};

use async_nats::Subscriber;
use broker::Broker;
use futures_util::{
    StreamExt,
    stream::{SelectAll, select_all},
};
use subjects::{Answer, Delta, Event, HandoffId, Kind, Subject};
use tokio::time::Interval;

use crate::{error::Error, print};

/// A look into the stream now and then, should the answer have passed while the connection was away.
const LOOK_EVERY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) enum Heard {
    Answer(Box<Answer>),
    Event(Event),
    Delta(Delta),
    /// Time has passed.
    Nothing,
}

pub(crate) struct Waiting {
    kind: Kind,
    id: HandoffId,
    heard: SelectAll<Subscriber>,
    look: Interval,
}

impl Waiting {
    pub(crate) async fn start(broker: &Broker, kind: Kind, id: HandoffId) -> Result<Self, Error> {
        let mut heard = Vec::new();
        for subject in [Subject::answer(kind, id), Subject::Event(id), Subject::Delta(id)] {
            heard.push(broker.client.subscribe(subject.to_string()).await?);
        }
        Ok(Self { kind, id, heard: select_all(heard), look: tokio::time::interval(LOOK_EVERY) })
    }

    pub(crate) fn id(&self) -> HandoffId {
        self.id
    }

    /// What is heard next, at the latest after a while. Dropped before it ends, nothing that was heard is lost.
    pub(crate) async fn next(&mut self, broker: &Broker) -> Result<Heard, Error> {
        let subject = Subject::answer(self.kind, self.id);
        tokio::select! {
            Some(message) = self.heard.next() => {
                if let Some(found) = operate::answer::read(&message.subject, message.headers.as_ref(), &message.payload) {
                    return found.map(|answer| Heard::Answer(Box::new(answer))).map_err(Error::nats);
                }
                if let Ok(event) = serde_json::from_slice(&message.payload) {
                    return Ok(Heard::Event(event));
                }
                Ok(serde_json::from_slice(&message.payload).map_or(Heard::Nothing, Heard::Delta))
            }
            _ = self.look.tick() => {
                let runs = broker.layout.runs(self.kind.role());
                let stored = broker::last_on(&broker.jetstream, runs, &subject).await.ok().flatten();
                let found = stored.and_then(|message| {
                    operate::answer::read(&message.subject, Some(&message.headers), &message.payload)
                });
                match found {
                    Some(found) => found.map(|answer| Heard::Answer(Box::new(answer))).map_err(Error::nats),
                    None => Ok(Heard::Nothing),
                }
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
