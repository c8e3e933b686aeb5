//! One dead letter, read from the stream.

use async_nats::jetstream::message::StreamMessage;
use broker::Broker;
use bytes::Bytes;
use serde_json::Value;
use subjects::{DeadLetter, DeadLetterError, Encoding, HandoffId, Timestamp, headers, streams};

use crate::Error;

/// A dead letter with its position in the stream.
#[derive(Clone, Debug)]
pub struct Letter {
    /// Sequence in the stream of dead letters, shown to operators as its number.
    pub number: u64,
    pub died_at: Timestamp,
    pub about: DeadLetter,
    /// Body of the message; empty if the handoff was spilled.
    pub(super) stored: Bytes,
}

impl Letter {
    /// Reads a dead letter; `None` if there is none of that number.
    pub async fn read(broker: &Broker, number: u64) -> Result<Option<Self>, Error> {
        let Some(message) = broker::message_at(&broker.jetstream, streams::DEAD, number).await? else {
            return Ok(None);
        };
        Self::from_message(&message).map(Some).map_err(|source| Error::Letter(number, source))
    }

    pub(super) fn from_message(message: &StreamMessage) -> Result<Self, DeadLetterError> {
        let about = DeadLetter::read(&message.subject, &message.headers)?;
        let died_at = Timestamp::new(message.time).unwrap_or_else(|_| Timestamp::epoch());
        Ok(Self { number: message.sequence, died_at, about, stored: message.payload.clone() })
    }

    /// Returns the handoff as it was published, fetching it from the object store if it was spilled.
    pub async fn body(&self, broker: &Broker) -> Result<Bytes, Error> {
        match &self.about.spilled {
            Some(object) => Ok(broker::fetch(broker, self.about.kind.role(), object).await?),
            None => Ok(self.stored.clone()),
        }
    }

    /// Returns the size of the body; `None` if it was spilled.
    pub fn bytes(&self) -> Option<usize> {
        self.about.spilled.is_none().then_some(self.stored.len())
    }

    /// Returns the encoding of the body from its header.
    pub fn encoding(&self) -> Option<Encoding> {
        Encoding::from_content_type(headers::get_any_case(Some(&self.about.original), headers::CONTENT_TYPE))
            .ok()
    }

    /// Decodes a body; `None` if it is unreadable.
    pub fn readable(&self, body: &[u8]) -> Option<Value> {
        subjects::decode(self.encoding()?, body).ok()
    }

    /// Returns the id of the handoff, without fetching a spilled body.
    pub fn handoff_id(&self) -> Option<HandoffId> {
        self.handoff_id_in(&self.stored)
    }

    /// Returns the id of the handoff from a body, or else from the message id header.
    pub fn handoff_id_in(&self, body: &[u8]) -> Option<HandoffId> {
        let body = subjects::Body::inspect(self.encoding()?, body);
        body.envelope_fields().handoff_id.or_else(|| {
            headers::get_any_case(Some(&self.about.original), headers::MSG_ID).and_then(|id| id.parse().ok())
        })
    }

    /// Returns the headers of the handoff's message for people; several values of one name are joined. The
    /// lease is a credential, so only that there is one is said.
    pub fn headers(&self) -> Vec<(String, String)> {
        let originals = self.about.original.iter();
        originals
            .map(|(name, values)| {
                let name = name.to_string();
                if name.eq_ignore_ascii_case(headers::LEASE) {
                    return (name, "[redacted]".to_owned());
                }
                let values: Vec<&str> = values.iter().map(|value| value.as_str()).collect();
                (name, values.join(", "))
            })
            .collect()
    }
}
