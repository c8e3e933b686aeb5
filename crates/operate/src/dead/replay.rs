use async_nats::HeaderMap;
use broker::Broker;
use bytes::Bytes;
use nkeys::KeyPair;
use serde_json::{Value, json};
use subjects::{Encoding, HandoffId, Subject, Timestamp, headers};

use super::{Fate, Letter, delete};
use crate::{
    Error,
    publish::{publish, sign},
};

/// A letter that was handed off once more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Under which id it went out; `None` when the body cannot be read.
    pub id: Option<HandoffId>,
    pub was: Option<HandoffId>,
    /// What was changed, for the person.
    pub notes: Vec<String>,
    /// It was signed, does not fit its signature any more, and nobody signed it anew.
    pub lost_its_signature: bool,
}

/// Hands a letter off once more and takes it out of the stream. `key` signs it.
///
/// A handoff that failed goes out under a new id and names the old one: the worker goes on from the old journal, with the
/// old idempotency keys. One that has no answer goes out under its own id. Any other is not replayed.
pub async fn replay(broker: &Broker, letter: &Letter, key: Option<&KeyPair>) -> Result<Replayed, Error> {
    // An answer that is looked for in the wrong stream is not found, and what goes out again under its id comes to nothing.
    broker::check_layout(broker).await?;
    let ready = Box::pin(Ready::make(broker, letter, key)).await?;
    publish(broker, &Subject::Handoff(letter.about.kind), &ready.headers, &ready.body).await?;
    // Only now: a letter whose replay was not stored must stay.
    delete(broker, letter.number).await?;
    Ok(ready.told)
}

/// A handoff made ready to be published once more.
struct Ready {
    told: Replayed,
    headers: HeaderMap,
    body: Bytes,
}

impl Ready {
    async fn make(broker: &Broker, letter: &Letter, key: Option<&KeyPair>) -> Result<Self, Error> {
        let body = letter.body(broker).await?;
        if let Some(why) = Fate::of_body(broker, letter, &body).await?.refusal() {
            return Err(Error::NotReplayed { number: letter.number, why });
        }
        let was = letter.handoff_id_in(&body);
        let told = Replayed { id: was, was, notes: Vec::new(), lost_its_signature: false };
        let mut ready = Self { told, headers: kept(letter), body };
        let readable = letter.encoding().zip(letter.readable(&ready.body).filter(Value::is_object));
        if let (Some(was), Some((encoding, mut value))) = (was, readable) {
            let changed = ready.change(broker, letter, was, &mut value).await?;
            if changed {
                ready.body = subjects::encode(encoding, &value)?.into();
            }
            ready.sign(letter, key, changed, encoding)?;
        } else {
            ready.note(letter, "the body cannot be read; it goes out as it was.");
        }
        let message_id = match ready.told.id {
            Some(id) if Some(id) != was => id.to_string(),
            // The queue still remembers the id as it was and would drop a second one of it.
            id => {
                let id = id.map_or_else(String::new, |id| id.to_string());
                format!("replay:{}:{id}", letter.number)
            }
        };
        ready.headers.insert(headers::MSG_ID, message_id);
        Ok(ready)
    }

    fn note(&mut self, letter: &Letter, text: &str) {
        self.told.notes.push(format!("{}: {text}", letter.number));
    }

    /// Gives it a new id if it has been answered, with the old one to go on from, and drops a deadline that has passed.
    async fn change(
        &mut self,
        broker: &Broker,
        letter: &Letter,
        was: HandoffId,
        value: &mut Value,
    ) -> Result<bool, Error> {
        let mut changed = false;
        let answer = Subject::answer(letter.about.kind, was);
        let runs = broker.layout.runs(letter.about.kind.role());
        if broker::last_on(&broker.jetstream, runs, &answer).await?.is_some() {
            let id = was.replayed();
            value["handoff_id"] = id.to_string().into();
            // When it was issued stays: it tells for how long its journal is kept.
            match value["replays"].as_array_mut() {
                Some(replays) => replays.push(was.to_string().into()),
                None => value["replays"] = json!([was]),
            }
            self.told.id = Some(id);
            self.note(letter, &format!("{was} has been answered; resuming from its journal as {id}."));
            changed = true;
        }
        let deadline = value["deadline"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        if deadline.is_some_and(|deadline| deadline.at() <= time::OffsetDateTime::now_utc()) {
            value["deadline"] = Value::Null;
            self.note(letter, "its deadline has passed; it goes out without one.");
            changed = true;
        }
        Ok(changed)
    }

    fn sign(
        &mut self,
        letter: &Letter,
        key: Option<&KeyPair>,
        changed: bool,
        encoding: Encoding,
    ) -> Result<(), Error> {
        if let Some(key) = key {
            let signature = sign(key, &Subject::Handoff(letter.about.kind), encoding, &self.body)?;
            self.headers.insert(headers::SIGNATURE, signature);
        } else if changed && self.headers.get(headers::SIGNATURE).is_some() {
            let mut unsigned = HeaderMap::new();
            for (name, values) in
                self.headers.iter().filter(|(name, _)| AsRef::<str>::as_ref(*name) != headers::SIGNATURE)
            {
                values.iter().for_each(|value| unsigned.append(name.clone(), value.clone()));
            }
            self.headers = unsigned;
            self.told.lost_its_signature = true;
        }
        Ok(())
    }
}

/// The headers that speak about the body. Those for the server are not sent again.
fn kept(letter: &Letter) -> HeaderMap {
    let mut out = HeaderMap::new();
    for (name, values) in letter.about.original.iter() {
        let text: &str = name.as_ref();
        if !text.starts_with("Nats-") {
            values.iter().for_each(|value| out.append(name.clone(), value.clone()));
        }
    }
    out
}
