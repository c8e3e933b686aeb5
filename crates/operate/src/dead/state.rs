//! What has happened to the handoff of a dead letter since, and whether it may be replayed.

use broker::Broker;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use subjects::{Answer, HandoffId, Pattern, Status, Subject, Timestamp, streams};
use time::OffsetDateTime;

use super::Letter;
use crate::{Error, answer};

const MAX_CONCURRENT_LOOKUPS: usize = 16;

/// State of a dead letter's handoff. Only an open one can be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterState {
    /// The handoff failed, or was never worked on.
    Open,
    /// It has no answer yet and its message is still in the queue, so a worker has it or will claim it.
    InWork,
    /// It was completed: its worker died between the dead letter and the answer, and another worker resumed.
    Completed,
    Cancelled,
    /// It was replayed under this id.
    Replayed(HandoffId),
    /// Its journal and idempotency keys have expired, so a replay could repeat its effects.
    Expired,
}

impl LetterState {
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

    /// Returns why the letter cannot be replayed; `None` if it can.
    pub fn replay_refusal(self) -> Option<String> {
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

    /// Looks up the state without fetching a spilled body.
    pub async fn read(broker: &Broker, letter: &Letter) -> Result<Self, Error> {
        // For a spilled body the header has the id, and the time of publication stands in for the time of
        // issue.
        Self::read_with_body(broker, letter, &letter.stored).await
    }

    /// Looks up the state from the given body of the handoff.
    pub(super) async fn read_with_body(
        broker: &Broker,
        letter: &Letter,
        body: &Bytes,
    ) -> Result<Self, Error> {
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
        let replay = id.replay_id();
        if broker::last_on(jetstream, runs, &Pattern::Run(role, replay)).await?.is_some() {
            return Ok(Self::Replayed(replay));
        }
        let issued_at =
            letter.readable(body).and_then(|body| body["issued_at"].as_str()?.parse::<Timestamp>().ok());
        let issued_at = issued_at.unwrap_or_else(|| letter.about.published_at.clone());
        let is_expired = OffsetDateTime::now_utc() - issued_at.at() >= answers_kept(broker, runs).await;
        Ok(if is_expired { Self::Expired } else { Self::Open })
    }

    /// Looks up the states of several letters, in their order.
    pub async fn read_all(broker: &Broker, letters: &[Letter]) -> Result<Vec<Self>, Error> {
        let lookups: Vec<_> = letters.iter().map(|letter| Self::read(broker, letter).boxed()).collect();
        let found: Vec<Result<Self, Error>> =
            stream::iter(lookups).buffered(MAX_CONCURRENT_LOOKUPS).collect().await;
        found.into_iter().collect()
    }
}

/// Returns how long the stream keeps answers; the default of the contract if the stream cannot be read.
async fn answers_kept(broker: &Broker, runs: &str) -> std::time::Duration {
    match broker.jetstream.get_stream(runs).await {
        Ok(stream) if stream.cached_info().config.max_age.is_zero() => std::time::Duration::MAX,
        Ok(stream) => stream.cached_info().config.max_age,
        Err(_) => streams::ANSWER_RETENTION,
    }
}
