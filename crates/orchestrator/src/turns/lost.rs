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
/// After this time a handoff is published again, whatever is in the queue. Not earlier: a copy of a handoff
/// that a worker has takes up one more of its slots. By default no worker has one for so long
/// (`agent.max_turn`).
const MAX_WAIT: Duration = Duration::from_secs(60 * 60);

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
    /// Returns whether a handoff that was published at `sent_at` is to be published again. Its message is in
    /// the queue until it is answered, so a queue with only later messages has lost it.
    fn has_lost(self, sent_at: OffsetDateTime, now: OffsetDateTime) -> bool {
        let is_not_there = match self {
            Self::Empty => true,
            Self::Since(oldest) => oldest > sent_at + CLOCK_TOLERANCE,
            Self::Unknown => false,
        };
        is_not_there || now - sent_at >= MAX_WAIT
    }
}

impl Turns {
    /// Looks at the queue. To be called before [`Self::fate`]: a message leaves the queue after its answer is
    /// stored.
    pub(crate) async fn look_at_queue(&self, broker: &Broker) -> Queue {
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

    /// Returns what became of a handoff that was published at `sent_at`.
    pub(crate) async fn fate(&self, queue: Queue, id: HandoffId, sent_at: &Timestamp) -> Fate {
        if let Some(answer) = self.find_answer(id).await {
            return Fate::Answered(answer);
        }
        let is_lost = queue.has_lost(sent_at.at(), OffsetDateTime::now_utc());
        if is_lost { Fate::Lost } else { Fate::Queued }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handoff_is_lost_if_the_queue_has_only_later_ones_or_after_an_hour() {
        let sent_at = OffsetDateTime::UNIX_EPOCH;
        let at = |minutes: u64| sent_at + Duration::from_secs(minutes * 60);
        assert!(Queue::Empty.has_lost(sent_at, at(5)));
        assert!(Queue::Since(at(3)).has_lost(sent_at, at(5)));
        for queue in [Queue::Since(sent_at), Queue::Since(at(1)), Queue::Unknown] {
            assert!(!queue.has_lost(sent_at, at(59)), "{queue:?}");
            assert!(queue.has_lost(sent_at, at(60)), "{queue:?}");
        }
    }
}
