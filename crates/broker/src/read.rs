use std::time::Duration;

use async_nats::{
    StatusCode,
    jetstream::{
        self,
        message::StreamMessage,
        stream::{RawMessageError, RawMessageErrorKind},
    },
};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::json;
use subjects::{Pattern, Subject};
use tokio::time::{sleep, timeout};

const ONE_TRY: Duration = Duration::from_secs(5);
/// How many messages one request asks for.
const AT_ONCE: u32 = 512;
/// A replica that is behind gets so long to catch up before it is asked again.
const CATCH_UP: Duration = Duration::from_millis(20);
const SEQUENCE: &str = "Nats-Sequence";

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("the server did not answer in time")]
    TimedOut,
    #[error("addressing stream {0}")]
    Stream(String, #[source] jetstream::context::GetStreamError),
    #[error("reading a message")]
    Raw(#[source] RawMessageError),
    #[error("asking for messages")]
    Ask(#[source] Box<dyn std::error::Error + Send + Sync>),
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

/// The last message under a pattern, read from the stream's leader.
pub async fn last_under(
    jetstream: &jetstream::Context,
    stream: &str,
    pattern: &Pattern,
) -> Result<Option<StreamMessage>, ReadError> {
    let handle = handle(jetstream, stream).await?;
    let pattern = pattern.to_string();
    in_time(handle.get_last_raw_message_by_subject(&pattern)).await
}

/// Every message on a subject, in order, up to the sequence of the last one. Any replica may answer; one that has not
/// heard of the last yet is asked again.
pub async fn all_on(
    jetstream: &jetstream::Context,
    stream: &str,
    subject: &Subject,
    up_to: u64,
) -> Result<Vec<(u64, Bytes)>, ReadError> {
    let reading = async {
        let mut found: Vec<(u64, Bytes)> = Vec::new();
        loop {
            let from = found.last().map_or(1, |(sequence, _)| sequence + 1);
            if from > up_to {
                return Ok(found);
            }
            let before = found.len();
            ask_for(jetstream, stream, subject, from, &mut found).await?;
            if found.len() == before {
                sleep(CATCH_UP).await;
            }
        }
    };
    timeout(ONE_TRY, reading).await.unwrap_or(Err(ReadError::TimedOut))
}

/// The client has no words for asking for many messages at once, so this is the request itself.
async fn ask_for(
    jetstream: &jetstream::Context,
    stream: &str,
    subject: &Subject,
    from: u64,
    found: &mut Vec<(u64, Bytes)>,
) -> Result<(), ReadError> {
    let client = jetstream.client();
    let inbox = client.new_inbox();
    let mut replies =
        client.subscribe(inbox.clone()).await.map_err(|error| ReadError::Ask(Box::new(error)))?;
    let wanted = json!({ "seq": from, "batch": AT_ONCE, "next_by_subj": subject.to_string() }).to_string();
    let address = format!("$JS.API.DIRECT.GET.{stream}");
    client
        .publish_with_reply(address, inbox, wanted.into())
        .await
        .map_err(|error| ReadError::Ask(Box::new(error)))?;
    while let Some(reply) = replies.next().await {
        // The end, or nothing there (yet), or nobody there (yet).
        if reply.status.is_some_and(|status| status != StatusCode::OK) {
            break;
        }
        let sequence = reply.headers.as_ref().and_then(|headers| headers.get(SEQUENCE));
        if let Some(sequence) = sequence.and_then(|value| value.as_str().parse().ok()) {
            found.push((sequence, reply.payload));
        }
    }
    Ok(())
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
