//! Finds out what became of handoffs that were published some time ago and have no recorded answer. Streams
//! that were restored from a backup have neither handoffs nor answers of later than that.

use broker::{Broker, Chain};
use contract::thread::TurnAnswer;
use operate::lost::HandoffQueue;
use subjects::{HandoffId, Kind, Role, Timestamp};
use time::OffsetDateTime;
use tracing::debug;

use super::{Turns, answers::AnswerUnknown, refused::Refused};

/// The state of a handoff.
#[derive(Debug)]
pub(crate) enum Fate {
    Answered(TurnAnswer),
    /// Workers refused it without an answer.
    Refused(TurnAnswer),
    /// The queue has its message no more, as far as is known.
    Lost,
    /// It is queued, or a worker has it.
    Queued,
}

impl Turns {
    /// Reads the state of the queue; `None` if it cannot be read. Call it before [`Self::fate`]: a message
    /// leaves the queue after its answer is stored.
    pub(crate) async fn look_at_queue(&self, broker: &Broker) -> Option<HandoffQueue> {
        if !self.resends_lost {
            return None;
        }
        let looked_at = HandoffQueue::look_at(broker, Role::ProjectManager).await;
        looked_at.inspect_err(|error| debug!(error = %Chain(error), "Handoff queue not read; retrying.")).ok()
    }

    /// Returns what became of a handoff that was first published at `begun_at` and last at `sent_at`.
    pub(crate) async fn fate(
        &self,
        (queue, refused): (Option<&HandoffQueue>, &Refused),
        (id, kind): (HandoffId, Kind),
        begun_at: &Timestamp,
        sent_at: &Timestamp,
    ) -> Fate {
        match self.find_answer(id).await {
            Ok(Some(answer)) => return Fate::Answered(answer),
            Ok(None) => {}
            Err(AnswerUnknown) => return Fate::Queued,
        }
        let (begun_at, sent_at, now) = (begun_at.at(), sent_at.at(), OffsetDateTime::now_utc());
        if let Some(answer) = refused.of(id, sent_at)
            // Another message of it may wait, and a worker that has claimed it answers it.
            && queue.is_none_or(|queue| queue.cannot_have(kind, sent_at))
            && self.is_unclaimed(id).await
        {
            return Fate::Refused(answer.clone());
        }
        let is_lost = queue.is_some_and(|queue| queue.has_lost(kind, begun_at, sent_at, now));
        if is_lost { Fate::Lost } else { Fate::Queued }
    }
}
