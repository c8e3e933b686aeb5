//! Finds out what became of handoffs that were published some time ago and have no recorded answer. Streams
//! that were restored from a backup have neither handoffs nor answers of later than that.

use std::time::Duration;

use broker::{Broker, Chain};
use contract::thread::TurnAnswer;
use subjects::{HandoffId, Role, Timestamp};
use time::OffsetDateTime;
use tokio::time::timeout;
use tracing::debug;

use super::Turns;

const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How much the clocks of gateways and NATS may differ.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);
/// After this time a handoff is published again although the queue may have it: another, older one may hide
/// that it does not. Not earlier: a copy of a handoff that a worker has takes up one more of its slots. By
/// default no worker has one for so long (`agent.max_turn`).
const MAX_WAIT: time::Duration = time::Duration::HOUR;

/// What became of a handoff.
#[derive(Debug)]
pub(crate) enum Fate {
    Answered(TurnAnswer),
    /// The queue has its message no more, as far as is known.
    Lost,
    /// It waits, or a worker has it.
    Queued,
}

/// The queue of handoffs, as it was a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    Empty,
    /// The time at which its oldest message was published.
    Since(OffsetDateTime),
    Unknown,
}

impl Queue {
    /// Returns whether a handoff that was first published at `begun_at` and last at `sent_at` is to be
    /// published again. Its message is in the queue until it is answered, so a queue with only later messages
    /// has lost it.
    fn has_lost(self, begun_at: OffsetDateTime, sent_at: OffsetDateTime, now: OffsetDateTime) -> bool {
        match self {
            Self::Unknown => false,
            Self::Empty => true,
            // The pauses double, so that a queue that is worked off slowly does not fill with copies.
            Self::Since(oldest) => {
                oldest > sent_at + CLOCK_TOLERANCE || now - sent_at >= (sent_at - begun_at).max(MAX_WAIT)
            }
        }
    }
}

impl Turns {
    /// Looks at the queue. To be called before [`Self::fate`]: a message leaves the queue after its answer is
    /// stored.
    pub(crate) async fn look_at_queue(&self, broker: &Broker) -> Queue {
        if !self.resends_lost {
            return Queue::Unknown;
        }
        let queue = broker.layout.handoffs(Role::ProjectManager);
        match timeout(READ_TIMEOUT, broker.jetstream.get_stream(queue)).await {
            Ok(Ok(queue)) => {
                let state = &queue.cached_info().state;
                if state.messages == 0 { Queue::Empty } else { Queue::Since(state.first_timestamp) }
            }
            Ok(Err(error)) => {
                debug!(error = %Chain(&error), "Queue not looked at; retrying.");
                Queue::Unknown
            }
            Err(_) => Queue::Unknown,
        }
    }

    /// Returns what became of a handoff that was first published at `begun_at` and last at `sent_at`.
    pub(crate) async fn fate(
        &self,
        queue: Queue,
        id: HandoffId,
        begun_at: &Timestamp,
        sent_at: &Timestamp,
    ) -> Fate {
        if let Some(answer) = self.find_answer(id).await {
            return Fate::Answered(answer);
        }
        let is_lost = queue.has_lost(begun_at.at(), sent_at.at(), OffsetDateTime::now_utc());
        if is_lost { Fate::Lost } else { Fate::Queued }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handoff_is_lost_if_the_queue_has_only_later_ones_or_after_an_hour() {
        let begun = OffsetDateTime::UNIX_EPOCH;
        let at = |minutes: u64| begun + Duration::from_secs(minutes * 60);
        assert!(Queue::Empty.has_lost(begun, begun, at(5)));
        assert!(Queue::Since(at(3)).has_lost(begun, begun, at(5)));
        for queue in [Queue::Since(begun), Queue::Since(at(1))] {
            assert!(!queue.has_lost(begun, begun, at(59)), "{queue:?}");
            assert!(queue.has_lost(begun, begun, at(60)), "{queue:?}");
            // Published again after two hours, it gets two more.
            assert!(!queue.has_lost(begun, at(120), at(239)) && queue.has_lost(begun, at(120), at(240)));
        }
        assert!(!Queue::Unknown.has_lost(begun, begun, at(10_000)), "nothing is known of it");
    }
}
