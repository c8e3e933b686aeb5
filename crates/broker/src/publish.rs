//! Publishes with a known outcome: stored, refused, or explicitly unconfirmed.

use std::time::Duration;

use async_nats::{
    Client, HeaderMap, Request, RequestErrorKind, ToSubject,
    jetstream::{self, ErrorCode},
};
use bytes::Bytes;
use serde::Deserialize;
use subjects::{Pattern, Subject, headers};
use tracing::debug;

use crate::{
    Chain,
    request::{self, NoResponse},
    retry::RetryDelays,
};

const ACK_TIMEOUT: Duration = Duration::from_secs(5);
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

/// Compare-and-set condition: the last message under `over` must have this sequence, 0 for none.
#[derive(Clone, Debug)]
pub struct Expect {
    pub over: Pattern,
    pub sequence: u64,
}

/// The acknowledgement of a stored message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    pub sequence: u64,
    /// The stream already had a message with the same message id.
    pub duplicate: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// Another writer stored a message first. If an earlier attempt was unconfirmed, that writer may be this
    /// one.
    #[error("the subject has a newer message than expected")]
    Conflict { after_unconfirmed: bool },
    #[error("the message exceeds the server's max_payload")]
    TooLarge,
    /// The stream is at its limit: the message was not stored, and no older message was dropped for it.
    #[error("the stream is full")]
    Full,
    #[error("the publish was not acknowledged")]
    Unconfirmed(#[source] Unconfirmed),
    #[error("the server refused the publish")]
    Refused(#[source] jetstream::Error),
}

/// Why the outcome of a publish is unknown.
#[derive(Debug, thiserror::Error)]
pub enum Unconfirmed {
    #[error(transparent)]
    NoResponse(#[from] NoResponse),
    /// A missing stream and a server that is still starting look the same: there are no responders.
    #[error("no stream is bound to this subject, or JetStream is not enabled")]
    NoResponders,
    #[error("the server returned an error")]
    Server(#[source] jetstream::Error),
    #[error("the publish acknowledgement holds neither a sequence nor an error")]
    Unreadable,
}

impl PublishError {
    /// Returns whether the publish may be tried again: its outcome is unknown.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unconfirmed(_))
    }
}

/// Publishes once and waits for the server's acknowledgement.
pub async fn publish(
    client: &Client,
    subject: impl ToSubject,
    mut headers: HeaderMap,
    body: Bytes,
    expect: Option<&Expect>,
) -> Result<Stored, PublishError> {
    if let Some(Expect { over, sequence }) = expect {
        headers.insert(headers::EXPECTED_SEQUENCE, sequence.to_string());
        headers.insert(headers::EXPECTED_SUBJECT, String::from(over));
    }
    let request = Request::new().headers(headers).payload(body);
    let reply = request::send(client, subject, request, ACK_TIMEOUT).await.map_err(not_sent)?;
    match serde_json::from_slice(&reply.payload) {
        Ok(PublishReply { error: Some(error), .. }) => Err(classify(error)),
        Ok(PublishReply { seq: Some(sequence), duplicate, error: None }) => {
            Ok(Stored { sequence, duplicate })
        }
        Ok(PublishReply { seq: None, error: None, .. }) | Err(_) => {
            Err(PublishError::Unconfirmed(Unconfirmed::Unreadable))
        }
    }
}

/// The server's reply to a publish. The client's own decoding tries the reply as an error first, which costs
/// more than the rest of the publish.
#[derive(Debug, Deserialize)]
struct PublishReply {
    seq: Option<u64>,
    #[serde(default)]
    duplicate: bool,
    error: Option<jetstream::Error>,
}

/// Publishes, and retries while the outcome is unknown, for at most `within`. `headers` is called for each
/// attempt, since an attempt consumes them and most publishes need only one.
pub async fn publish_within(
    client: &Client,
    subject: &Subject,
    headers: impl Fn() -> HeaderMap,
    body: &Bytes,
    expect: Option<&Expect>,
    within: Duration,
) -> Result<Stored, PublishError> {
    match publish(client, subject, headers(), body.clone(), expect).await {
        // Rare; boxed so that it does not enlarge the future of every publish.
        Err(error) if error.is_transient() => {
            Box::pin(publish_again(client, subject, headers, body, expect, within, error)).await
        }
        other => other,
    }
}

async fn publish_again(
    client: &Client,
    subject: &Subject,
    headers: impl Fn() -> HeaderMap,
    body: &Bytes,
    expect: Option<&Expect>,
    within: Duration,
    mut error: PublishError,
) -> Result<Stored, PublishError> {
    let mut delays = RetryDelays::within(MIN_RETRY_DELAY, MAX_RETRY_DELAY, within);
    while let Some(delay) = delays.next_delay() {
        debug!(%subject, error = %Chain(&error), "Publish not confirmed; retrying.");
        tokio::time::sleep(delay).await;
        error = match publish(client, subject, headers(), body.clone(), expect).await {
            Err(PublishError::Conflict { .. }) => {
                return Err(PublishError::Conflict { after_unconfirmed: true });
            }
            Err(again) if again.is_transient() => again,
            other => return other,
        };
    }
    Err(error)
}

fn not_sent(error: NoResponse) -> PublishError {
    match error {
        NoResponse::Request(error) if error.kind() == RequestErrorKind::MaxPayloadExceeded => {
            PublishError::TooLarge
        }
        NoResponse::Request(error) if error.kind() == RequestErrorKind::NoResponders => {
            PublishError::Unconfirmed(Unconfirmed::NoResponders)
        }
        error => PublishError::Unconfirmed(error.into()),
    }
}

fn classify(error: jetstream::Error) -> PublishError {
    match (error.error_code(), error.code()) {
        // A cluster reports a contended compare-and-set with a different code.
        (ErrorCode::STREAM_WRONG_LAST_SEQUENCE | ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT, _) => {
            PublishError::Conflict { after_unconfirmed: false }
        }
        (ErrorCode::STREAM_STORE_FAILED, _) => PublishError::Full,
        (ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, _) => PublishError::TooLarge,
        (_, 400..=499) => PublishError::Refused(error),
        _ => PublishError::Unconfirmed(Unconfirmed::Server(error)),
    }
}
