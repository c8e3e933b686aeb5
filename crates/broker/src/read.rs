use std::time::Duration;

use async_nats::jetstream::{
    self,
    message::StreamMessage,
    stream::{RawMessageError, RawMessageErrorKind},
};
use subjects::Subject;
use tokio::time::timeout;

const ONE_TRY: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the server did not answer in time")]
    TimedOut,
    #[error("addressing stream {0}")]
    Stream(String, #[source] jetstream::context::GetStreamError),
    #[error("reading a message")]
    Raw(#[source] RawMessageError),
}

/// The last message on a subject, read from the stream's leader, so that what was written before is seen.
pub async fn last_on(
    jetstream: &jetstream::Context,
    stream: &str,
    subject: &Subject,
) -> Result<Option<StreamMessage>, ReadError> {
    let handle = handle(jetstream, stream).await?;
    let subject = subject.to_string();
    in_time(handle.get_last_raw_message_by_subject(&subject)).await
}

pub async fn message_at(
    jetstream: &jetstream::Context,
    stream: &str,
    sequence: u64,
) -> Result<Option<StreamMessage>, ReadError> {
    let handle = handle(jetstream, stream).await?;
    in_time(handle.get_raw_message(sequence)).await
}

/// The first message under `filter` at or after a sequence.
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

async fn in_time(
    read: impl Future<Output = Result<StreamMessage, RawMessageError>>,
) -> Result<Option<StreamMessage>, ReadError> {
    match timeout(ONE_TRY, read).await {
        Err(_) => Err(ReadError::TimedOut),
        Ok(Ok(message)) => Ok(Some(message)),
        Ok(Err(error)) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
        Ok(Err(error)) => Err(ReadError::Raw(error)),
    }
}
