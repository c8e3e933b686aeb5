mod life; // a run as one looks at it; pure

use std::time::Duration;

use broker::Broker;
pub use life::{Answered, Attempt, AttemptEnd, Did, DidWhat, Life, LifeState, Outcome, Torn};
use operate::run::Run;
use subjects::{HandoffId, Subject, journal::Record};

use super::work::in_time;
use crate::{
    admin::{Actor, Admin, Error},
    clock,
};

const PATIENCE: Duration = Duration::from_secs(5);
/// So many letters are looked through for the one of a handoff.
const LETTERS: usize = 500;

impl Admin {
    /// What was done on a handoff.
    pub async fn get_handoff(&self, actor: &Actor, id: HandoffId) -> Result<Life, Error> {
        actor.sees_everything()?;
        let broker = self.broker().await?;
        let read = async {
            let Some(run) = Run::read(&broker, id).await? else { return Ok(None) };
            let mut life = Life::of(&run, clock::now());
            if life.kind.is_none() {
                life.kind = kind(&broker, &run).await?;
            }
            // Who has an answer that is none, or none at all, may have been given up.
            if life.answer.as_ref().is_some_and(|answer| answer.error.is_some()) {
                let found = operate::dead::of(&broker, run.role, id, queued(&run), LETTERS).await?;
                life.dead_letter = found.map(|letter| letter.number);
            }
            Ok(Some(life))
        };
        in_time(PATIENCE, read).await?.ok_or_else(|| Error::not_found("handoff", id.to_string()))
    }

    /// Where its run ends now, so that one who follows it need not read all of it to see that nothing happened.
    pub(crate) async fn end_of_handoff(&self, actor: &Actor, id: HandoffId) -> Result<Option<u64>, Error> {
        actor.sees_everything()?;
        let broker = self.broker().await?;
        in_time(PATIENCE, operate::run::end(&broker, id)).await
    }
}

/// Which messages of the queue it was.
fn queued(run: &Run) -> Vec<u64> {
    let records = run.entries().flat_map(|entry| &entry.records);
    records
        .filter_map(|record| match record {
            Record::Claimed(claimed) => Some(claimed.queued),
            _ => None,
        })
        .collect()
}

/// Journals do not tell the kind; the queue does, as long as it holds the handoff.
async fn kind(broker: &Broker, run: &Run) -> Result<Option<&'static str>, operate::Error> {
    let Some(last) = queued(run).pop() else { return Ok(None) };
    let message = broker::message_at(&broker.jetstream, broker.layout.handoffs(run.role), last).await?;
    Ok(message.and_then(|message| match message.subject.parse() {
        Ok(Subject::Handoff(kind)) if kind.role() == run.role => Some(kind.as_str()),
        _ => None,
    }))
}
