use broker::Broker;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use subjects::{Answer, HandoffId, Pattern, Status, Subject, Timestamp, streams};
use time::OffsetDateTime;

use super::Letter;
use crate::{Error, answer};

/// Lookups at once.
const AT_ONCE: usize = 16;

/// What became of a letter's handoff since. Only an open one is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It failed, or was never worked on.
    Open,
    /// It has no answer yet: its message is still in the queue, and a worker has it or will have it.
    InWork,
    /// It was completed after all: its worker died between the letter and the answer, and another went on.
    Completed,
    Cancelled,
    /// It was replayed, as this handoff.
    Replayed(HandoffId),
    /// It was issued longer ago than journals and idempotency keys are kept, so a replay could repeat what it did.
    Expired,
}

impl Fate {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::InWork => "in work",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Replayed(_) => "replayed",
            Self::Expired => "expired",
        }
    }

    /// Why it is not replayed; `None` when it is.
    pub fn refusal(self) -> Option<String> {
        match self {
            Self::Open => None,
            Self::InWork => {
                Some("its handoff is still being worked on; replay it when it has been answered".to_owned())
            }
            Self::Completed => Some("its handoff was completed after the letter was written".to_owned()),
            Self::Cancelled => Some("its handoff was cancelled".to_owned()),
            Self::Replayed(id) => Some(format!("its handoff was replayed before, as {id}")),
            Self::Expired => Some(
                "its journal has expired, so a replay could repeat its effects; publish a new handoff"
                    .to_owned(),
            ),
        }
    }

    pub async fn of(broker: &Broker, letter: &Letter) -> Result<Self, Error> {
        // Of a body that is kept elsewhere the header tells the id; when it was issued, the queue tells about as well.
        Self::of_body(broker, letter, &letter.stored).await
    }

    pub(super) async fn of_body(broker: &Broker, letter: &Letter, body: &Bytes) -> Result<Self, Error> {
        let Some(id) = letter.handoff_id_in(body) else { return Ok(Self::Open) };
        let role = letter.about.kind.role();
        let (jetstream, runs) = (&broker.jetstream, broker.layout.runs(role));
        let answered = broker::last_on(jetstream, runs, &Subject::answer(letter.about.kind, id)).await?;
        let answered = answered
            .and_then(|message| answer::read(&message.subject, Some(&message.headers), &message.payload));
        match answered {
            Some(Ok(Answer::Completion(completion))) => match completion.status {
                Status::Completed | Status::NeedsClarification => return Ok(Self::Completed),
                Status::Cancelled => return Ok(Self::Cancelled),
                Status::Failed => {}
            },
            Some(Ok(Answer::Findings(findings))) if findings.error.is_none() => return Ok(Self::Completed),
            Some(Ok(Answer::Findings(_)) | Err(_)) => {}
            None => {
                let queue = broker.layout.handoffs(role);
                let queued = broker::message_at(jetstream, queue, letter.about.sequence).await?;
                if queued.is_some_and(|message| message.payload == *body) {
                    return Ok(Self::InWork);
                }
            }
        }
        let replay = id.replayed();
        if broker::last_under(jetstream, runs, &Pattern::Run(role, replay)).await?.is_some() {
            return Ok(Self::Replayed(replay));
        }
        let issued_at =
            letter.readable(body).and_then(|body| body["issued_at"].as_str()?.parse::<Timestamp>().ok());
        let issued_at = issued_at.unwrap_or_else(|| letter.about.published_at.clone());
        let is_expired = OffsetDateTime::now_utc() - issued_at.at() >= answers_kept(broker, runs).await;
        Ok(if is_expired { Self::Expired } else { Self::Open })
    }

    /// Those of several letters, in their order.
    pub async fn of_all(broker: &Broker, letters: &[Letter]) -> Result<Vec<Self>, Error> {
        let looking: Vec<_> = letters.iter().map(|letter| Self::of(broker, letter).boxed()).collect();
        let found: Vec<Result<Self, Error>> = stream::iter(looking).buffered(AT_ONCE).collect().await;
        found.into_iter().collect()
    }
}

/// How long the stream keeps answers; what the contract says where it cannot be looked at.
async fn answers_kept(broker: &Broker, runs: &str) -> std::time::Duration {
    match broker.jetstream.get_stream(runs).await {
        Ok(stream) if stream.cached_info().config.max_age.is_zero() => std::time::Duration::MAX,
        Ok(stream) => stream.cached_info().config.max_age,
        Err(_) => streams::ANSWERS_KEPT,
    }
}
