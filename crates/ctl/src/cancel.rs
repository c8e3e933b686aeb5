//! `cynodectl cancel`.

use std::time::Duration;

use async_nats::StatusCode;
use broker::Broker;
use futures_util::StreamExt;
use operate::label;
use subjects::{Answer, CancelReply, CancelState, HandoffId, Subject};

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
        print::note(&format!(
            "nothing to cancel: the {} was already answered as {}",
            named(&answer),
            state(&answer)
        ));
        answer::show(&answer, json);
        return Ok(Exit::Failed);
    }
    let replies = request(broker, id).await?;
    let is_running = replies.iter().any(|reply| reply.state == CancelState::Stopping);
    // In this order: a handoff leaves its queue after its answer is stored.
    let is_gone = !is_running && count_open(broker).await? == 0;
    if is_gone && answer::stored(broker, &answer::ANY_KIND, id).await?.is_none() {
        if json {
            replies.first().into_iter().for_each(print::json);
        }
        print::note(&format!(
            "nothing to cancel: no worker works on {id}, and no handoff waits. Is the id right? If it is \
             published later, {} will cancel it",
            names(&replies)
        ));
        return Ok(Exit::Failed);
    }
    let until = tokio::time::Instant::now() + command.timeout;
    loop {
        if let Some(answer) = answer::stored(broker, &answer::ANY_KIND, id).await? {
            let cancelled = answer.error().is_some_and(|error| error.code == subjects::ErrorCode::Cancelled);
            if json {
                answer::show(&answer, true);
            } else if cancelled {
                print::line(&format!("the {} is cancelled{}", named(&answer), after(&answer)));
            } else {
                print::note(&format!(
                    "not cancelled: the {} was answered as {} before",
                    named(&answer),
                    state(&answer)
                ));
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
        Some(reply) if is_running => print::line(&format!(
            "{} was asked to cancel {id} and has not ended it yet; `cynodectl watch {id}` waits",
            reply.instance
        )),
        _ => print::line(&format!(
            "{id} is not running. If it waits in a queue, it is cancelled when one of these takes it: {}. An \
             instance that starts later does not know of it, and an analyst takes verifications only",
            names(&replies)
        )),
    }
    Ok(Exit::Done)
}

/// Counts the handoffs that wait or are worked on.
async fn count_open(broker: &Broker) -> Result<u64, Error> {
    let queues = operate::status::read(broker).await?.queues;
    Ok(queues.iter().map(|queue| queue.waiting + queue.in_flight as u64).sum())
}

/// Names the handoff of an answer.
fn named(answer: &Answer) -> String {
    let kind = match answer {
        Answer::Completion(completion) => completion.kind,
        Answer::Findings(findings) => findings.kind,
    };
    format!("{kind} handoff {}", answer.handoff_id())
}

fn state(answer: &Answer) -> String {
    match answer {
        Answer::Completion(completion) => label(&completion.status),
        Answer::Findings(findings) => label(&findings.status),
    }
}

/// Says what was done before a cancelled handoff ended.
fn after(answer: &Answer) -> String {
    let Answer::Completion(completion) = answer else { return String::new() };
    let usage = &completion.usage;
    let calls = [(usage.model_calls, "model call"), (usage.tool_calls, "tool call")];
    let made = calls.into_iter().filter(|(number, _)| *number > 0);
    let made: Vec<String> = made.map(|(number, noun)| answer::count(number, noun)).collect();
    if made.is_empty() { " before it began".to_owned() } else { format!(", after {}", made.join(" and ")) }
}

fn names(replies: &[CancelReply]) -> String {
    let names: Vec<String> = replies.iter().map(|reply| reply.instance.to_string()).collect();
    names.join(", ")
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
