use std::{error::Error as _, time::Duration};

use async_nats::{
    HeaderMap,
    jetstream::{self, ErrorCode, context::PublishErrorKind, message::PublishMessage, publish::PublishAck},
};
use bytes::Bytes;
use subjects::{Pattern, Subject, headers};
use tracing::debug;

use crate::{Chain, retry::Waits};

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The compare-and-set: the last message under `over` has this sequence, 0 for none.
#[derive(Clone, Debug)]
pub struct Expect {
    pub over: Pattern,
    pub sequence: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// Someone else wrote first. After an attempt whose outcome was not heard, that someone may be we.
    #[error("the subject moved on under us")]
    Conflict { unheard_before: bool },
    #[error("the message is larger than the server takes")]
    TooLarge,
    /// The queue is at its limit: nothing was stored, and nothing that was stored is dropped for it.
    #[error("the stream is full")]
    Full,
    #[error("the outcome of the publish was not heard")]
    Unheard(#[source] jetstream::context::PublishError),
    #[error("the server refused the publish")]
    Refused(#[source] jetstream::context::PublishError),
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
    jetstream: &jetstream::Context,
    subject: &Subject,
    mut headers: HeaderMap,
    body: Bytes,
    expect: Option<&Expect>,
) -> Result<PublishAck, PublishError> {
    if let Some(Expect { over, sequence }) = expect {
        headers.insert(headers::EXPECTED_SEQUENCE, sequence.to_string());
        headers.insert(headers::EXPECTED_SUBJECT, over.to_string());
    }
    let message = PublishMessage::build().headers(headers).payload(body);
    // The client bounds both the sending and the wait for the server's word.
    let acknowledged = jetstream.send_publish(subject.to_string(), message).await.map_err(classify)?;
    acknowledged.await.map_err(classify)
}

/// Publishes, and again while the outcome is unknown, for at most `within`. Headers are made for each try, since a try
/// consumes them and most need only one.
pub async fn publish_within(
    jetstream: &jetstream::Context,
    subject: &Subject,
    headers: impl Fn() -> HeaderMap,
    body: &Bytes,
    expect: Option<&Expect>,
    within: Duration,
) -> Result<PublishAck, PublishError> {
    match publish(jetstream, subject, headers(), body.clone(), expect).await {
        // Seldom, so it should not make every publish larger.
        Err(error) if error.may_pass() => {
            Box::pin(publish_again(jetstream, subject, headers, body, expect, within, error)).await
        }
        other => other,
    }
}

async fn publish_again(
    jetstream: &jetstream::Context,
    subject: &Subject,
    headers: impl Fn() -> HeaderMap,
    body: &Bytes,
    expect: Option<&Expect>,
    within: Duration,
    mut error: PublishError,
) -> Result<PublishAck, PublishError> {
    let mut waits = Waits::within(FIRST_WAIT, LONGEST_WAIT, within);
    while let Some(wait) = waits.next_wait() {
        debug!(%subject, error = %Chain(&error), "Publish not confirmed; trying again.");
        tokio::time::sleep(wait).await;
        error = match publish(jetstream, subject, headers(), body.clone(), expect).await {
            Err(PublishError::Conflict { .. }) => {
                return Err(PublishError::Conflict { unheard_before: true });
            }
            Err(again) if again.may_pass() => again,
            other => return other,
        };
    }
    Err(error)
}

fn classify(error: jetstream::context::PublishError) -> PublishError {
    match error.kind() {
        PublishErrorKind::WrongLastSequence => PublishError::Conflict { unheard_before: false },
        PublishErrorKind::MaxPayloadExceeded => PublishError::TooLarge,
        // A missing stream and a server that is just starting look the same: nobody answers.
        PublishErrorKind::StreamNotFound
        | PublishErrorKind::TimedOut
        | PublishErrorKind::BrokenPipe
        | PublishErrorKind::MaxAckPending => PublishError::Unheard(error),
        PublishErrorKind::WrongLastMessageId => PublishError::Refused(error),
        PublishErrorKind::Other => {
            let answer = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
            match answer.map(|answer| (answer.error_code(), answer.code())) {
                // In a cluster a contended compare-and-set has a code of its own.
                Some((ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT, _)) => {
                    PublishError::Conflict { unheard_before: false }
                }
                Some((ErrorCode::STREAM_STORE_FAILED, _)) => PublishError::Full,
                Some((ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM, _)) => PublishError::TooLarge,
                Some((_, 400..=499)) => PublishError::Refused(error),
                // 5xx, or no answer of the server's at all.
                Some(_) | None => PublishError::Unheard(error),
            }
        }
    }
}
