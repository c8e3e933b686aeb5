//! `cynodectl cancel`.

use std::time::Duration;

use broker::Broker;
use subjects::{CancelReply, CancelState, Subject};

use crate::{
    answer, cli,
    error::{Error, Exit},
    print,
};

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Requests the cancellation, then polls until the handoff is answered or the timeout has passed.
pub(crate) async fn run(broker: &Broker, command: &cli::Cancel, json: bool) -> Result<Exit, Error> {
    let id = command.handoff;
    if let Some(answer) = answer::stored(broker, &answer::ANY_KIND, id).await? {
        print::note("the handoff is already answered; nothing to cancel:");
        answer::show(&answer, json);
        return Ok(Exit::Failed);
    }
    let reply = match broker.client.request(Subject::Cancel(id).to_string(), "".into()).await {
        Ok(reply) => reply,
        Err(error) if error.kind() == async_nats::RequestErrorKind::NoResponders => {
            return Err(Error::NoInstance);
        }
        Err(error) => return Err(Error::nats(error)),
    };
    let reply: CancelReply = serde_json::from_slice(&reply.payload).map_err(Error::nats)?;
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
    if json {
        print::json(&reply);
    } else {
        print::line(match reply.state {
            CancelState::Stopping => "cancellation requested; the handoff has not ended yet",
            CancelState::Remembered => {
                "cancellation recorded; the handoff is cancelled when an instance claims it"
            }
        });
    }
    Ok(Exit::Done)
}
