//! Results that the gateway writes to the chain of a job, only if no node has the job or none ended it.

use broker::{Broker, Expect, PublishError};
use store::{SendIf, entity::outbox};
use subjects::{
    JobId, Pattern, Subject,
    job::{Entry, Record},
    streams,
};
use tracing::debug;

use super::{Failure, send};

/// Maximum number of reads of a chain that changes meanwhile.
const MAX_LOOKS: usize = 8;

/// Publishes the result of a job if the condition holds. If it does not, the message is done too: a node
/// decides what becomes of the job.
pub(super) async fn publish(
    broker: &Broker,
    message: outbox::Model,
    condition: SendIf,
) -> Result<(), Failure> {
    // Only results have conditions.
    let Ok(Subject::JobResult(job, _)) = message.subject.parse() else { return Ok(()) };
    let mut looks = 0;
    loop {
        let Some(sequence) = end_of_chain(broker, job, condition).await? else {
            debug!(%job, "Job left to its node.");
            return Ok(());
        };
        let expect = Expect { over: Pattern::JobRun(job), sequence };
        match send(broker, &message, Some(&expect)).await {
            Err(Failure::Publish(_, PublishError::Conflict { .. })) if looks < MAX_LOOKS => looks += 1,
            other => return other,
        }
    }
}

/// Returns the sequence of the last message of a chain, 0 if it has none. `None` if the condition does not
/// hold.
async fn end_of_chain(broker: &Broker, job: JobId, condition: SendIf) -> Result<Option<u64>, Failure> {
    let chain = Pattern::JobRun(job);
    let last = broker::last_on(&broker.jetstream, streams::JOB_RUNS, &chain).await;
    let last = last.map_err(|error| Failure::Look(chain.to_string(), error))?;
    let Some(last) = last else { return Ok(Some(0)) };
    let is_journal = matches!(last.subject.parse(), Ok(Subject::JobJournal(..)));
    let is_free = || Entry::decode(&last.payload).is_ok_and(|entry| is_release(&entry.record));
    let holds = is_journal && (condition == SendIf::Unended || is_free());
    Ok(holds.then_some(last.sequence))
}

fn is_release(record: &Record) -> bool {
    matches!(record, Record::Released { .. })
}
