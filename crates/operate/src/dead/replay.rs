//! Publishes the handoff of a dead letter again.

use async_nats::HeaderMap;
use broker::Broker;
use bytes::Bytes;
use nkeys::KeyPair;
use serde_json::{Value, json};
use subjects::{Encoding, HandoffId, Subject, Timestamp, headers};

use super::{Letter, LetterState, delete};
use crate::{
    Error,
    publish::{publish, sign},
};

/// The result of a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Id under which the handoff was published; `None` if the body is unreadable.
    pub id: Option<HandoffId>,
    pub original_id: Option<HandoffId>,
    /// Notes for the operator on what was changed.
    pub notes: Vec<String>,
    /// The handoff was signed and changed, and there was no key to sign it again.
    pub signature_removed: bool,
}

/// Publishes the handoff of a dead letter again and deletes the letter. `key` signs the handoff.
///
/// A handoff that failed gets a new id and refers to the old one: the worker resumes from the old journal,
/// with the old idempotency keys. A handoff without an answer keeps its id. Any other is not replayed
/// ([`Error::NotReplayed`]).
pub async fn replay(broker: &Broker, letter: &Letter, key: Option<&KeyPair>) -> Result<Replayed, Error> {
    // With the wrong layout an existing answer would not be found, and the replay would keep an id that is
    // answered.
    broker::check_layout(broker).await?;
    let prepared = Box::pin(PreparedReplay::prepare(broker, letter, key)).await?;
    publish(broker, &Subject::Handoff(letter.about.kind), &prepared.headers, &prepared.body).await?;
    // Deleted last: a letter whose replay was not stored must stay.
    delete(broker, letter.number).await?;
    Ok(prepared.replayed)
}

/// A handoff that is ready to be published again.
struct PreparedReplay {
    replayed: Replayed,
    headers: HeaderMap,
    body: Bytes,
}

impl PreparedReplay {
    async fn prepare(broker: &Broker, letter: &Letter, key: Option<&KeyPair>) -> Result<Self, Error> {
        let body = letter.body(broker).await?;
        if let Some(why) = LetterState::read_with_body(broker, letter, &body).await?.replay_refusal() {
            return Err(Error::NotReplayed { number: letter.number, why });
        }
        let original_id = letter.handoff_id_in(&body);
        let replayed = Replayed { id: original_id, original_id, notes: Vec::new(), signature_removed: false };
        let mut prepared = Self { replayed, headers: kept_headers(letter), body };
        let readable = letter.encoding().zip(letter.readable(&prepared.body).filter(Value::is_object));
        if let (Some(original_id), Some((encoding, mut value))) = (original_id, readable) {
            let changed = prepared.change(broker, letter, original_id, &mut value).await?;
            if changed {
                prepared.body = subjects::encode(encoding, &value)?.into();
            }
            prepared.sign(letter, key, changed, encoding)?;
        } else {
            prepared.note(letter, "the body is unreadable; it is published unchanged.");
        }
        let message_id = match prepared.replayed.id {
            Some(id) if Some(id) != original_id => id.to_string(),
            // The queue would drop the original message id as a duplicate.
            id => {
                let id = id.map_or_else(String::new, |id| id.to_string());
                format!("replay:{}:{id}", letter.number)
            }
        };
        prepared.headers.insert(headers::MSG_ID, message_id);
        Ok(prepared)
    }

    fn note(&mut self, letter: &Letter, text: &str) {
        self.replayed.notes.push(format!("{}: {text}", letter.number));
    }

    /// Gives an answered handoff a new id that refers to the old one, and drops a deadline that has passed.
    /// Returns whether anything changed.
    async fn change(
        &mut self,
        broker: &Broker,
        letter: &Letter,
        original_id: HandoffId,
        value: &mut Value,
    ) -> Result<bool, Error> {
        let mut changed = false;
        let answer = Subject::answer(letter.about.kind, original_id);
        let runs = broker.layout.runs(letter.about.kind.role());
        if broker::last_on(&broker.jetstream, runs, &answer).await?.is_some() {
            let id = original_id.replay_id();
            value["handoff_id"] = id.to_string().into();
            // `issued_at` stays: it determines how long the journal is kept.
            match value["replays"].as_array_mut() {
                Some(replays) => replays.push(original_id.to_string().into()),
                None => value["replays"] = json!([original_id]),
            }
            self.replayed.id = Some(id);
            self.note(
                letter,
                &format!("{original_id} has been answered; resuming from its journal as {id}."),
            );
            changed = true;
        }
        let deadline = value["deadline"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
        if deadline.is_some_and(|deadline| deadline.at() <= time::OffsetDateTime::now_utc()) {
            value["deadline"] = Value::Null;
            self.note(letter, "its deadline has passed; it is published without one.");
            changed = true;
        }
        Ok(changed)
    }

    /// Signs the handoff, or removes a signature that the change has made invalid.
    fn sign(
        &mut self,
        letter: &Letter,
        key: Option<&KeyPair>,
        changed: bool,
        encoding: Encoding,
    ) -> Result<(), Error> {
        if let Some(key) = key {
            let lease = headers::get_any_case(Some(&self.headers), headers::LEASE);
            let subject = Subject::Handoff(letter.about.kind);
            let signature = sign(key, &subject, encoding, &self.body, lease)?;
            self.headers.insert(headers::SIGNATURE, signature);
        } else if changed && self.headers.get(headers::SIGNATURE).is_some() {
            let mut unsigned = HeaderMap::new();
            for (name, values) in
                self.headers.iter().filter(|(name, _)| AsRef::<str>::as_ref(*name) != headers::SIGNATURE)
            {
                values.iter().for_each(|value| unsigned.append(name.clone(), value.clone()));
            }
            self.headers = unsigned;
            self.replayed.signature_removed = true;
        }
        Ok(())
    }
}

/// Returns the headers that describe the body, without those for the server (`Nats-…`).
fn kept_headers(letter: &Letter) -> HeaderMap {
    let mut out = HeaderMap::new();
    for (name, values) in letter.about.original.iter() {
        let text: &str = name.as_ref();
        if !text.starts_with("Nats-") {
            values.iter().for_each(|value| out.append(name.clone(), value.clone()));
        }
    }
    out
}
