//! Finds out what queues have lost, such as those of streams that were restored from an older backup or
//! created again. A queue has a message until what it asks for is done.

use std::{collections::BTreeSet, time::Duration};

use async_nats::jetstream::message::StreamMessage;
use broker::Broker;
use futures_util::TryStreamExt;
use subjects::{Kind, Role, Subject};
use time::OffsetDateTime;
use tokio::time::timeout;

use crate::Error;

const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// How much the clocks of gateways and NATS may differ.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);
/// After this time a handoff is published again although the queue may have it: another, older one may hide
/// that it does not. Not earlier: a copy of a handoff that a worker has takes up one more of its slots. By
/// default no worker has one for so long (`agent.max_turn`).
const MAX_WAIT: time::Duration = time::Duration::HOUR;
/// How much of a queue is read.
const READS: usize = 8;
const BATCH: u64 = 512;

/// The queue of handoffs of a role, as it was a moment ago. It is not read: only workers may do that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoffQueue {
    /// The time at which its oldest message was published.
    oldest_at: OffsetDateTime,
    /// The subjects of its messages.
    subjects: BTreeSet<String>,
}

impl HandoffQueue {
    /// Looks at the queue. To be called before answers are read: a message leaves the queue after its answer
    /// is stored.
    pub async fn look_at(broker: &Broker, role: Role) -> Result<Self, Error> {
        let name = broker.layout.handoffs(role);
        let looking = async {
            let stream = broker.jetstream.get_stream_no_info(name).await.map_err(Error::nats)?;
            let mut found = stream.info_with_subjects(">").await.map_err(Error::nats)?;
            let oldest_at = found.info.state.first_timestamp;
            let mut subjects = BTreeSet::new();
            while let Some((subject, _)) = found.try_next().await.map_err(Error::nats)? {
                subjects.insert(subject);
            }
            Ok(Self { oldest_at, subjects })
        };
        timeout(READ_TIMEOUT, looking).await.map_err(Error::nats)?
    }

    /// Returns whether the queue has only messages that are not a handoff which was last published at
    /// `sent_at`.
    pub fn cannot_have(&self, kind: Kind, sent_at: OffsetDateTime) -> bool {
        !self.subjects.contains(&Subject::Handoff(kind).to_string())
            || self.oldest_at > sent_at + CLOCK_TOLERANCE
    }

    /// Returns whether a handoff that was first published at `begun_at` and last at `sent_at`, and has no
    /// answer, is to be published again. A queue without a message of its kind has lost it, and so has one
    /// with only later messages.
    pub fn has_lost(
        &self,
        kind: Kind,
        begun_at: OffsetDateTime,
        sent_at: OffsetDateTime,
        now: OffsetDateTime,
    ) -> bool {
        self.cannot_have(kind, sent_at)
            // The pauses double, so that a queue that is worked off slowly does not fill with copies.
            || now - sent_at >= (sent_at - begun_at).max(MAX_WAIT)
    }
}

/// Returns those of the ids that no message of a queue on a subject has; none if the queue is too long to be
/// read. The oldest messages are read first: with the oldest ids, those of a long queue are found soon.
pub async fn ids_not_in(
    broker: &Broker,
    stream: &str,
    subject: &str,
    mut ids: BTreeSet<String>,
    id_of: impl Fn(&StreamMessage) -> Option<String>,
) -> Result<BTreeSet<String>, Error> {
    // A stream that is not there, or not yet again, looks like an empty one to those who read it.
    let found = timeout(READ_TIMEOUT, broker.jetstream.get_stream(stream)).await;
    let found = found.map_err(Error::nats)?.map_err(Error::nats)?;
    if found.cached_info().state.messages == 0 {
        return Ok(ids);
    }
    let has_messages = has_messages_on(broker, stream, subject).await?;
    let (mut from, mut has_read) = (1, false);
    for _ in 0..READS {
        let batch = broker::read_batch(&broker.jetstream, stream, subject, from, BATCH).await?;
        let Some(last) = batch.last() else {
            // There are messages: no server answered, or only a replica that does not have them yet.
            let is_unknown = has_messages && !has_read;
            return Ok(if is_unknown { BTreeSet::new() } else { ids });
        };
        (from, has_read) = (last.sequence + 1, true);
        for id in batch.iter().filter_map(&id_of) {
            ids.remove(&id);
        }
        if ids.is_empty() {
            return Ok(ids);
        }
    }
    Ok(BTreeSet::new())
}

/// Returns whether a stream has messages on a subject.
async fn has_messages_on(broker: &Broker, stream: &str, subject: &str) -> Result<bool, Error> {
    let looking = async {
        let stream = broker.jetstream.get_stream_no_info(stream).await.map_err(Error::nats)?;
        let mut found = stream.info_with_subjects(subject).await.map_err(Error::nats)?;
        Ok(found.try_next().await.map_err(Error::nats)?.is_some())
    };
    timeout(READ_TIMEOUT, looking).await.map_err(Error::nats)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun() -> OffsetDateTime {
        OffsetDateTime::UNIX_EPOCH
    }

    fn at(minutes: u64) -> OffsetDateTime {
        begun() + Duration::from_secs(minutes * 60)
    }

    fn queue(oldest_at: OffsetDateTime, kinds: &[Kind]) -> HandoffQueue {
        let subjects = kinds.iter().map(|kind| Subject::Handoff(*kind).to_string()).collect();
        HandoffQueue { oldest_at, subjects }
    }

    #[test]
    fn handoff_is_lost_if_the_queue_has_only_later_ones_or_after_an_hour() {
        let lost = |queue: &HandoffQueue, sent, now| queue.has_lost(Kind::Chat, begun(), sent, now);
        assert!(lost(&queue(begun(), &[]), begun(), at(5)), "the queue is empty");
        assert!(lost(&queue(at(3), &[Kind::Chat]), begun(), at(5)));
        for oldest in [begun(), at(1)] {
            let queue = queue(oldest, &[Kind::Plan, Kind::Chat]);
            assert!(!lost(&queue, begun(), at(59)), "{queue:?}");
            assert!(lost(&queue, begun(), at(60)), "{queue:?}");
            // Published again after two hours, it gets two more.
            assert!(!lost(&queue, at(120), at(239)) && lost(&queue, at(120), at(240)));
        }
    }

    #[test]
    fn older_handoffs_of_other_kinds_do_not_hide_a_loss() {
        let queue = queue(begun(), &[Kind::Plan, Kind::Review]);
        assert!(queue.has_lost(Kind::Chat, at(1), at(1), at(6)));
        assert!(!queue.has_lost(Kind::Review, at(1), at(1), at(6)));
    }
}
