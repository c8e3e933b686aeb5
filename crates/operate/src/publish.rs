//! Signs and publishes handoffs.

use std::time::Duration;

use async_nats::HeaderMap;
use broker::{Broker, PublishError, Stored};
use bytes::Bytes;
use nkeys::KeyPair;
use subjects::{Body, Encoding, Handoff, Subject, headers, signature::SignatureBase};

use crate::Error;

const PUBLISH_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the signature header of a body and its lease.
pub fn sign(
    key: &KeyPair,
    subject: &Subject,
    encoding: Encoding,
    body: &[u8],
    lease: Option<&str>,
) -> Result<String, Error> {
    let inspected = Body::inspect(encoding, body);
    let subject = subject.to_string();
    let signed =
        SignatureBase::new(&subject, inspected.envelope_fields(), body).ok_or(Error::NothingToSign)?;
    signed.with_lease(lease).sign(key).map_err(Error::Sign)
}

/// A handoff as it is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sealed {
    pub subject: Subject,
    /// Names and values. The id of the handoff is the message id, so that a copy is recognised.
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

/// Encodes a handoff, and signs it together with its lease if there is a key.
pub fn seal(
    handoff: &Handoff,
    key: Option<&KeyPair>,
    lease: Option<&str>,
    traceparent: Option<String>,
) -> Result<Sealed, Error> {
    let (subject, encoding) = (handoff.subject(), Encoding::Json);
    let body = handoff.encode(encoding)?;
    let mut sent = vec![
        (headers::CONTENT_TYPE, encoding.content_type().to_owned()),
        (headers::MSG_ID, handoff.id.to_string()),
    ];
    if let Some(key) = key {
        sent.push((headers::SIGNATURE, sign(key, &subject, encoding, &body, lease)?));
    }
    sent.extend(lease.map(|lease| (headers::LEASE, lease.to_owned())));
    sent.extend(traceparent.map(|traceparent| (headers::TRACEPARENT, traceparent)));
    Ok(Sealed { subject, headers: sent, body })
}

/// Publishes a handoff, and retries for up to five seconds while the outcome is unknown.
pub async fn publish(
    broker: &Broker,
    subject: &Subject,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<Stored, Error> {
    let published =
        broker::publish_within(&broker.client, subject, || headers.clone(), body, None, PUBLISH_TIMEOUT)
            .await;
    match published {
        Ok(acknowledged) => Ok(acknowledged),
        Err(PublishError::Full) => Err(Error::QueueFull),
        Err(PublishError::Unconfirmed(_)) => Err(Error::NoResponders(subject.to_string())),
        Err(error) => Err(Error::Publish(error)),
    }
}
