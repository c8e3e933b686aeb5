use async_nats::jetstream::message::StreamMessage;
use broker::Broker;
use bytes::Bytes;
use serde_json::Value;
use subjects::{DeadLetter, DeadLetterError, Encoding, HandoffId, Timestamp, headers, streams};

use crate::Error;

/// A dead letter and where it lies.
#[derive(Clone, Debug)]
pub struct Letter {
    /// Its sequence in the stream of dead letters, which is what people call it by.
    pub number: u64,
    pub died_at: Timestamp,
    pub about: DeadLetter,
    pub(super) stored: Bytes,
}

impl Letter {
    pub async fn read(broker: &Broker, number: u64) -> Result<Option<Self>, Error> {
        let Some(message) = broker::message_at(&broker.jetstream, streams::DEAD, number).await? else {
            return Ok(None);
        };
        Self::of(&message).map(Some).map_err(|source| Error::Letter(number, source))
    }

    pub(super) fn of(message: &StreamMessage) -> Result<Self, DeadLetterError> {
        let about = DeadLetter::read(&message.subject, &message.headers)?;
        let died_at = Timestamp::new(message.time).unwrap_or_else(|_| Timestamp::epoch());
        Ok(Self { number: message.sequence, died_at, about, stored: message.payload.clone() })
    }

    /// The handoff as it was published, wherever it lies.
    pub async fn body(&self, broker: &Broker) -> Result<Bytes, Error> {
        match &self.about.spilled {
            Some(object) => Ok(broker::fetch(broker, self.about.kind.role(), object).await?),
            None => Ok(self.stored.clone()),
        }
    }

    /// Of the body, unless it lies elsewhere.
    pub fn bytes(&self) -> Option<usize> {
        self.about.spilled.is_none().then_some(self.stored.len())
    }

    /// How the body is written, if its header says so.
    pub fn encoding(&self) -> Option<Encoding> {
        Encoding::from_content_type(headers::get_any_case(Some(&self.about.original), headers::CONTENT_TYPE))
            .ok()
    }

    /// A body as a value, if it is one.
    pub fn readable(&self, body: &[u8]) -> Option<Value> {
        subjects::decode(self.encoding()?, body).ok()
    }

    /// The handoff's id as far as it can be read without fetching a body that lies elsewhere.
    pub fn handoff_id(&self) -> Option<HandoffId> {
        self.handoff_id_in(&self.stored)
    }

    pub fn handoff_id_in(&self, body: &[u8]) -> Option<HandoffId> {
        let body = subjects::Body::inspect(self.encoding()?, body);
        body.glimpse().handoff_id.or_else(|| {
            headers::get_any_case(Some(&self.about.original), headers::MSG_ID).and_then(|id| id.parse().ok())
        })
    }

    /// Headers of the handoff's message; of several of one name, all.
    pub fn headers(&self) -> Vec<(String, String)> {
        let originals = self.about.original.iter();
        originals
            .map(|(name, values)| {
                let values: Vec<&str> = values.iter().map(|value| value.as_str()).collect();
                (name.to_string(), values.join(", "))
            })
            .collect()
    }
}
