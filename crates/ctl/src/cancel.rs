//! `cynodectl cancel`.

use std::time::Duration;

use async_nats::StatusCode;
use broker::Broker;
use futures_util::StreamExt;
use subjects::{CancelReply, CancelState, HandoffId, Subject};

use crate::{
    answer, cli,
    error::{Error, Exit},
    print,
};

const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long another instance may take to reply.
const REPLY_TIMEOUT: Duration = Duration::from_millis(500);

/// Requests the cancellation, then polls until the handoff is answered or the timeout has passed.
pub(crate) async fn run(broker: &Broker, command: &cli::Cancel, json: bool) -> Result<Exit, Error> {
    let id = command.handoff;
    if let Some(answer) = answer::stored(broker, &answer::ANY_KIND, id).await? {
        print::note("the handoff is already answered; nothing to cancel:");
        answer::show(&answer, json);
        return Ok(Exit::Failed);
    }
    let replies = request(broker, id).await?;
    let until = tokio::time::Instant::now() + command.timeout;
    loop {
        if let Some(answer) = answer::stored(broker, &answer::ANY_KIND, id).await? {
            let cancelled = answer.error().is_some_and(|error| error.code == subjects::ErrorCode::Cancelled);
            if json {
                answer::show(&answer, true);
            } else if cancelled {
                print::line(&format!("{id} is cancelled"));
            } else {
                print::note("the handoff was answered before it could be cancelled:");
                answer::show(&answer, false);
            }
            return Ok(if cancelled { Exit::Done } else { Exit::Failed });
        }
        if tokio::time::Instant::now() >= until {
            break;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    // The instance that works on it tells most.
    let running = replies.iter().find(|reply| reply.state == CancelState::Stopping);
    match running.or(replies.first()) {
        Some(reply) if json => print::json(reply),
        _ if running.is_some() => print::line("cancellation requested; the handoff has not ended yet"),
        _ => {
            let names: Vec<String> = replies.iter().map(|reply| reply.instance.to_string()).collect();
            print::line(&format!(
                "cancellation recorded by {}: the handoff is cancelled when one of them claims it. An \
                 instance that starts later does not know of it, and an analyst claims verifications only",
                names.join(", ")
            ));
        }
    }
    Ok(Exit::Done)
}

/// Sends the request to all instances and returns their replies.
async fn request(broker: &Broker, id: HandoffId) -> Result<Vec<CancelReply>, Error> {
    let inbox = broker.client.new_inbox();
    let mut messages = broker.client.subscribe(inbox.clone()).await.map_err(Error::nats)?;
    let subject = Subject::Cancel(id).to_string();
    broker.client.publish_with_reply(subject, inbox, "".into()).await.map_err(Error::nats)?;
    let mut replies = Vec::new();
    while let Ok(Some(message)) = tokio::time::timeout(REPLY_TIMEOUT, messages.next()).await {
        if message.status == Some(StatusCode::NO_RESPONDERS) {
            return Err(Error::NoInstance);
        }
        replies.push(serde_json::from_slice(&message.payload).map_err(Error::nats)?);
    }
    if replies.is_empty() { Err(Error::NoInstance) } else { Ok(replies) }
}
