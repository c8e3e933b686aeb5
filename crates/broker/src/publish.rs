use std::time::Duration;

use async_nats::{
    Client, HeaderMap, Request, RequestErrorKind,
    jetstream::{self, ErrorCode},
};
use bytes::Bytes;
use serde::Deserialize;
use subjects::{Pattern, Subject, headers};
use tracing::debug;

use crate::{
    Chain,
    request::{self, Silence},
    retry::Waits,
};

const HEARD_WITHIN: Duration = Duration::from_secs(5);
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The compare-and-set: the last message under `over` has this sequence, 0 for none.
#[derive(Clone, Debug)]
pub struct Expect {
    pub over: Pattern,
    pub sequence: u64,
}

/// The server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    pub sequence: u64,
    /// It had it before, under the same message id.
    pub duplicate: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// Someone else wrote first. After an attempt whose outcome was not heard, that someone may be we.
    #[error("the subject has a newer message than expected")]
    Conflict { unheard_before: bool },
    #[error("the message exceeds the server's max_payload")]
    TooLarge,
    /// The queue is at its limit: nothing was stored, and nothing that was stored is dropped for it.
    #[error("the stream is full")]
    Full,
    #[error("the publish was not acknowledged")]
    Unheard(#[source] Unheard),
    #[error("the server refused the publish")]
    Refused(#[source] jetstream::Error),
}

/// Why nobody knows what became of a publish.
#[derive(Debug, thiserror::Error)]
pub enum Unheard {
    #[error(transparent)]
    Silence(#[from] Silence),
    /// A missing stream and a server that is just starting look the same: nobody answers.
    #[error("no stream is bound to this subject, or JetStream is not enabled")]
    NobodyThere,
    #[error("the server returned an error")]
    Trouble(#[source] jetstream::Error),
    #[error("the publish acknowledgement holds neither a sequence nor an error")]
    Unreadable,
}

impl PublishError {
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unheard(_) => true,
            Self::Conflict { .. } | Self::TooLarge | Self::Full | Self::Refused(_) => false,
        }
    }
}

/// Publishes once and waits for the server's word.
pub async fn publish(
    client: &Client,
    subject: &Subject,
    mut headers: HeaderMap,
    body: Bytes,
    expect: Option<&Expect>,
) -> Result<Stored, PublishError> {
    if let Some(Expect { over, sequence }) = expect {
        headers.insert(headers::EXPECTED_SEQUENCE, sequence.to_string());
        headers.insert(headers::EXPECTED_SUBJECT, String::from(over));
    }
    let request = Request::new().headers(headers).payload(body);
    let reply = request::send(client, subject, request, HEARD_WITHIN).await.map_err(not_sent)?;
    match serde_json::from_slice(&reply.payload) {
        Ok(Word { error: Some(error), .. }) => Err(classify(error)),
        Ok(Word { seq: Some(sequence), duplicate, error: None }) => Ok(Stored { sequence, duplicate }),
        Ok(Word { seq: None, error: None, .. }) | Err(_) => Err(PublishError::Unheard(Unheard::Unreadable)),
    }
}

/// What the server says to a publish. The client's own way to read it tries it as an error first, which costs more than
/// all the rest of it.
#[derive(Debug, Deserialize)]
struct Word {
    seq: Option<u64>,
    #[serde(default)]
    duplicate: bool,
    error: Option<jetstream::Error>,
}

/// Publishes, and again while the outcome is unknown, for at most `within`. Headers are made for each try, since a try
/// consumes them and most need only one.
pub async fn publish_within(
    client: &Client,
    subject: &Subject,
    headers: impl Fn() -> HeaderMap,
    body: &Bytes,
    expect: Option<&Expect>,
    within: Duration,
) -> Result<Stored, PublishError> {
    match publish(client, subject, headers(), body.clone(), expect).await {
        // Seldom, so it should not make every publish larger.
        Err(error) if error.may_pass() => {
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
    let mut waits = Waits::within(FIRST_WAIT, LONGEST_WAIT, within);
    while let Some(wait) = waits.next_wait() {
        debug!(%subject, error = %Chain(&error), "Publish not confirmed; retrying.");
        tokio::time::sleep(wait).await;
        error = match publish(client, subject, headers(), body.clone(), expect).await {
            Err(PublishError::Conflict { .. }) => {
                return Err(PublishError::Conflict { unheard_before: true });
            }
            Err(again) if again.may_pass() => again,
            other => return other,
        };
    }
    Err(error)
}

fn not_sent(silence: Silence) -> PublishError {
    match silence {
        Silence::Broken(error) if error.kind() == RequestErrorKind::MaxPayloadExceeded => {
            PublishError::TooLarge
        }
        Silence::Broken(error) if error.kind() == RequestErrorKind::NoResponders => {
            PublishError::Unheard(Unheard::NobodyThere)
        }
        silence => PublishError::Unheard(silence.into()),
    }
}

fn classify(error: jetstream::Error) -> PublishError {
    match (error.error_code(), error.code()) {
        // In a cluster a contended compare-and-set has a code of its own.
        (ErrorCode::STREAM_WRONG_LAST_SEQUENCE | ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT, _) => {
            PublishError::Conflict { unheard_before: false }
        }
        (ErrorCode::STREAM_STORE_FAILED, _) => PublishError::Full,
        (ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, _) => PublishError::TooLarge,
        (_, 400..=499) => PublishError::Refused(error),
        _ => PublishError::Unheard(Unheard::Trouble(error)),
    }
}
