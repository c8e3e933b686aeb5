//! The history of one handoff, read from its journal, its answer and the dead letters.

mod history;

use std::time::Duration;

use broker::Broker;
pub(crate) use history::{
    Attempt, AttemptEnd, HandoffHistory, HandoffState, HandoffStep, OfferedTool, Outcome, StepKind,
};
use operate::run::Run;
use subjects::{HandoffId, Subject, journal::Record};

use super::work::with_timeout;
use store::clock;

use crate::{Actor, Admin, Error};

const NATS_TIMEOUT: Duration = Duration::from_secs(5);
/// Dead letters searched for the one of a handoff.
const MAX_LETTERS_SEARCHED: usize = 500;

impl Admin {
    /// Returns the history of a handoff. Fails with [`Error::NotFound`] if no worker has claimed it, or if
    /// its run has expired.
    pub(crate) async fn get_handoff(&self, actor: &Actor, id: HandoffId) -> Result<HandoffHistory, Error> {
        actor.ensure_admin()?;
        let broker = self.broker().await?;
        let read = async {
            let Some(run) = Run::read(&broker, id).await? else { return Ok(None) };
            let mut history = HandoffHistory::new(&run, clock::now());
            if history.kind.is_none() {
                history.kind = find_kind(&broker, &run).await?;
            }
            // Only a handoff whose answer is an error can have been dead-lettered.
            if history.answer.as_ref().is_some_and(|answer| answer.error.is_some()) {
                let found =
                    operate::dead::find(&broker, run.role, id, queue_sequences(&run), MAX_LETTERS_SEARCHED)
                        .await?;
                history.dead_letter = found.map(|letter| letter.number);
            }
            Ok(Some(history))
        };
        with_timeout(NATS_TIMEOUT, read).await?.ok_or_else(|| Error::not_found("handoff", id.to_string()))
    }

    /// Returns the last sequence of a run, so that a live page can see that nothing changed without reading
    /// the run.
    pub(crate) async fn handoff_end(&self, actor: &Actor, id: HandoffId) -> Result<Option<u64>, Error> {
        actor.ensure_admin()?;
        let broker = self.broker().await?;
        with_timeout(NATS_TIMEOUT, operate::run::last_sequence(&broker, id)).await
    }
}

/// Returns the sequences of the handoff's copies in the queue.
fn queue_sequences(run: &Run) -> Vec<u64> {
    let records = run.entries().flat_map(|entry| &entry.records);
    records
        .filter_map(|record| match record {
            Record::Claimed(claimed) => Some(claimed.queued),
            _ => None,
        })
        .collect()
}

/// Returns the kind from the queue, if the handoff is still there: the journal does not contain it.
async fn find_kind(broker: &Broker, run: &Run) -> Result<Option<&'static str>, operate::Error> {
    let Some(last) = queue_sequences(run).pop() else { return Ok(None) };
    let message = broker::message_at(&broker.jetstream, broker.layout.handoffs(run.role), last).await?;
    Ok(message.and_then(|message| match message.subject.parse() {
        Ok(Subject::Handoff(kind)) if kind.role() == run.role => Some(kind.as_str()),
        _ => None,
    }))
}
