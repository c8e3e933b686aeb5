//! Reads many messages of a stream with few requests.

use std::{ops::ControlFlow, time::Duration};

use async_nats::{
    StatusCode,
    jetstream::{self, message::StreamMessage},
};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::json;
use subjects::Subject;
use tokio::time::{sleep, timeout};

use crate::ReadError;

const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a lagging replica gets to catch up before it is asked again.
const REPLICA_CATCH_UP_DELAY: Duration = Duration::from_millis(20);
/// Limits of one request.
const MAX_BATCH_MESSAGES: u64 = 512;
const MAX_BATCH_BYTES: usize = 8 << 20;
/// Sequences in the first window of a backward scan. Each further window is larger, for filters that rarely
/// match.
const FIRST_WINDOW: u64 = 256;
const MAX_WINDOW: u64 = 1 << 16;

/// Returns messages that match a filter, in order, starting at sequence `from`: as many as one request
/// returns, at most `limit`. Any replica may answer, so the newest may be missing.
pub async fn read_batch(
    jetstream: &jetstream::Context,
    stream: &str,
    filter: &str,
    from: u64,
    limit: u64,
) -> Result<Vec<StreamMessage>, ReadError> {
    let wanted = json!({
        "seq": from,
        "batch": limit.min(MAX_BATCH_MESSAGES),
        "max_bytes": MAX_BATCH_BYTES,
        "next_by_subj": filter,
    });
    let reading = request_batch(jetstream, stream, wanted.to_string());
    timeout(READ_TIMEOUT, reading).await.unwrap_or(Err(ReadError::TimedOut))
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

/// Visits the messages that match a filter, newest first, until `visit` breaks.
pub async fn scan_newest_first(
    jetstream: &jetstream::Context,
    stream: &str,
    filter: &str,
    mut visit: impl FnMut(&StreamMessage) -> ControlFlow<()>,
) -> Result<(), ReadError> {
    let found = timeout(READ_TIMEOUT, jetstream.get_stream(stream)).await.map_err(|_| ReadError::TimedOut)?;
    let found = found.map_err(|source| ReadError::Stream(stream.to_owned(), source))?;
    let state = &found.cached_info().state;
    let (first, mut upper, mut window) = (state.first_sequence, state.last_sequence + 1, FIRST_WINDOW);
    while upper > first {
        let lower = upper.saturating_sub(window).max(first);
        for message in between(jetstream, stream, filter, lower, upper).await?.iter().rev() {
            if visit(message).is_break() {
                return Ok(());
            }
        }
        upper = lower;
        window = window.saturating_mul(4).min(MAX_WINDOW);
    }
    Ok(())
}

/// Returns the matching messages from sequence `lower` up to, but excluding, `upper`.
async fn between(
    jetstream: &jetstream::Context,
    stream: &str,
    filter: &str,
    lower: u64,
    upper: u64,
) -> Result<Vec<StreamMessage>, ReadError> {
    let (mut found, mut from) = (Vec::new(), lower);
    while from < upper {
        let batch = read_batch(jetstream, stream, filter, from, upper - from).await?;
        let Some(last) = batch.last() else { break };
        from = last.sequence + 1;
        found.extend(batch.into_iter().filter(|message| message.sequence < upper));
    }
    Ok(found)
}

/// Sends a batched direct get, for which the client has no API.
async fn request_batch(
    jetstream: &jetstream::Context,
    stream: &str,
    wanted: String,
) -> Result<Vec<StreamMessage>, ReadError> {
    let client = jetstream.client();
    let inbox = client.new_inbox();
    let mut replies =
        client.subscribe(inbox.clone()).await.map_err(|error| ReadError::Request(Box::new(error)))?;
    let address = format!("$JS.API.DIRECT.GET.{stream}");
    client
        .publish_with_reply(address, inbox, wanted.into())
        .await
        .map_err(|error| ReadError::Request(Box::new(error)))?;
    let mut found = Vec::new();
    while let Some(reply) = replies.next().await {
        // End of the batch, no matching message (yet), or no responders (yet).
        if reply.status.is_some_and(|status| status != StatusCode::OK) {
            break;
        }
        found.push(StreamMessage::try_from(reply).map_err(|error| ReadError::Request(Box::new(error)))?);
    }
    Ok(found)
}
