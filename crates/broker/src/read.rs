//! Reads single messages, and all messages of one subject, from a stream.

use std::{fmt, time::Duration};

use async_nats::jetstream::{
    self,
    message::StreamMessage,
    stream::{RawMessageError, RawMessageErrorKind},
};
use bytes::Bytes;
use subjects::Subject;
use tokio::time::{sleep, timeout};

use crate::read_batch;

const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a lagging replica gets to catch up before it is asked again.
const REPLICA_CATCH_UP_DELAY: Duration = Duration::from_millis(20);

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

/// Returns the sequence and body of every message on a subject, in order, up to the sequence `up_to` of the
/// last one. Any replica may answer; one that does not have the last message yet is asked again.
pub async fn all_on(
    jetstream: &jetstream::Context,
    stream: &str,
    subject: &Subject,
    up_to: u64,
) -> Result<Vec<(u64, Bytes)>, ReadError> {
    let filter = subject.to_string();
    let reading = async {
        let mut found: Vec<(u64, Bytes)> = Vec::new();
        loop {
            let from = found.last().map_or(1, |(sequence, _)| sequence + 1);
            if from > up_to {
                return Ok(found);
            }
            let batch = read_batch(jetstream, stream, &filter, from, u64::MAX).await?;
            if batch.is_empty() {
                sleep(REPLICA_CATCH_UP_DELAY).await;
            }
            found.extend(batch.into_iter().map(|message| (message.sequence, message.payload)));
        }
    };
    timeout(READ_TIMEOUT, reading).await.unwrap_or(Err(ReadError::TimedOut))
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
