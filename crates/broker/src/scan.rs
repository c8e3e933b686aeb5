//! Many messages of a stream at a time.

use std::{ops::ControlFlow, time::Duration};

use async_nats::{
    StatusCode,
    jetstream::{self, message::StreamMessage},
};
use futures_util::StreamExt;
use serde_json::json;
use tokio::time::timeout;

use crate::ReadError;

const ONE_TRY: Duration = Duration::from_secs(5);
/// How many messages one request asks for, and how many bytes.
const AT_ONCE: u64 = 512;
const BYTES_AT_ONCE: usize = 8 << 20;
/// How far back the first look goes. Each look after it goes further, for filters that seldom match.
const FIRST_LOOK: u64 = 256;
const LONGEST_LOOK: u64 = 1 << 16;

/// Messages under a filter from a sequence on, in order: as many as one answer brings, at most `most`. Any replica may
/// answer, so the newest may be missing.
pub async fn some_under(
    jetstream: &jetstream::Context,
    stream: &str,
    filter: &str,
    from: u64,
    most: u64,
) -> Result<Vec<StreamMessage>, ReadError> {
    let wanted = json!({
        "seq": from, "batch": most.min(AT_ONCE), "max_bytes": BYTES_AT_ONCE, "next_by_subj": filter,
    });
    let asking = ask(jetstream, stream, wanted.to_string());
    timeout(ONE_TRY, asking).await.unwrap_or(Err(ReadError::TimedOut))
}

/// Goes through the messages under a filter, the newest first, until `visit` has seen enough.
pub async fn newest_under(
    jetstream: &jetstream::Context,
    stream: &str,
    filter: &str,
    mut visit: impl FnMut(&StreamMessage) -> ControlFlow<()>,
) -> Result<(), ReadError> {
    let looked = timeout(ONE_TRY, jetstream.get_stream(stream)).await.map_err(|_| ReadError::TimedOut)?;
    let looked = looked.map_err(|source| ReadError::Stream(stream.to_owned(), source))?;
    let state = &looked.cached_info().state;
    let (first, mut upper, mut look) = (state.first_sequence, state.last_sequence + 1, FIRST_LOOK);
    while upper > first {
        let lower = upper.saturating_sub(look).max(first);
        for message in between(jetstream, stream, filter, lower, upper).await?.iter().rev() {
            if visit(message).is_break() {
                return Ok(());
            }
        }
        upper = lower;
        look = look.saturating_mul(4).min(LONGEST_LOOK);
    }
    Ok(())
}

/// From `lower` up to, and without, `upper`.
async fn between(
    jetstream: &jetstream::Context,
    stream: &str,
    filter: &str,
    lower: u64,
    upper: u64,
) -> Result<Vec<StreamMessage>, ReadError> {
    let (mut found, mut from) = (Vec::new(), lower);
    while from < upper {
        let some = some_under(jetstream, stream, filter, from, upper - from).await?;
        let Some(last) = some.last() else { break };
        from = last.sequence + 1;
        found.extend(some.into_iter().filter(|message| message.sequence < upper));
    }
    Ok(found)
}

/// The client has no words for asking for many messages at once, so this is the request itself.
async fn ask(
    jetstream: &jetstream::Context,
    stream: &str,
    wanted: String,
) -> Result<Vec<StreamMessage>, ReadError> {
    let client = jetstream.client();
    let inbox = client.new_inbox();
    let mut replies =
        client.subscribe(inbox.clone()).await.map_err(|error| ReadError::Ask(Box::new(error)))?;
    let address = format!("$JS.API.DIRECT.GET.{stream}");
    client
        .publish_with_reply(address, inbox, wanted.into())
        .await
        .map_err(|error| ReadError::Ask(Box::new(error)))?;
    let mut found = Vec::new();
    while let Some(reply) = replies.next().await {
        // The end, or nothing there (yet), or nobody there (yet).
        if reply.status.is_some_and(|status| status != StatusCode::OK) {
            break;
        }
        found.push(StreamMessage::try_from(reply).map_err(|error| ReadError::Ask(Box::new(error)))?);
    }
    Ok(found)
}
