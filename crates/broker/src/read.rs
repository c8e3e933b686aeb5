//! Reads single messages from a stream.

use std::{fmt, time::Duration};

use async_nats::jetstream::{
    self,
    message::StreamMessage,
    stream::{RawMessageError, RawMessageErrorKind},
};
use tokio::time::timeout;

const READ_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the server did not respond in time")]
    TimedOut,
    #[error("addressing stream {0}")]
    Stream(String, #[source] jetstream::context::GetStreamError),
    #[error("reading a message")]
    Raw(#[source] RawMessageError),
    #[error("requesting messages")]
    Request(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Returns the last message on a subject or pattern, read from the stream's leader, so that earlier writes
/// are visible.
pub async fn last_on(
    jetstream: &jetstream::Context,
    stream: &str,
    filter: &impl fmt::Display,
) -> Result<Option<StreamMessage>, ReadError> {
    let handle = handle(jetstream, stream).await?;
    in_time(handle.get_last_raw_message_by_subject(&filter.to_string())).await
}

/// Returns the message with a sequence, read from the stream's leader.
pub async fn message_at(
    jetstream: &jetstream::Context,
    stream: &str,
    sequence: u64,
) -> Result<Option<StreamMessage>, ReadError> {
    let handle = handle(jetstream, stream).await?;
    in_time(handle.get_raw_message(sequence)).await
}

/// Returns the first message that matches `filter` at or after a sequence.
pub async fn next_on(
    jetstream: &jetstream::Context,
    stream: &str,
    filter: &str,
    sequence: u64,
) -> Result<Option<StreamMessage>, ReadError> {
    let handle = handle(jetstream, stream).await?;
    in_time(handle.get_first_raw_message_by_subject(filter, sequence)).await
}

async fn handle(
    jetstream: &jetstream::Context,
    stream: &str,
) -> Result<jetstream::stream::Stream<()>, ReadError> {
    jetstream.get_stream_no_info(stream).await.map_err(|source| ReadError::Stream(stream.to_owned(), source))
}

/// Bounds a read by [`READ_TIMEOUT`] and maps a missing message to `None`.
async fn in_time(
    read: impl Future<Output = Result<StreamMessage, RawMessageError>>,
) -> Result<Option<StreamMessage>, ReadError> {
    match timeout(READ_TIMEOUT, read).await {
        Err(_) => Err(ReadError::TimedOut),
        Ok(Ok(message)) => Ok(Some(message)),
        Ok(Err(error)) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
        Ok(Err(error)) => Err(ReadError::Raw(error)),
    }
}
