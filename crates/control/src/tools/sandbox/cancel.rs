//! `sandbox.job.cancel`: asks that a job end.

use contract::sandbox::{CancelJob, Job};
use policy::{Scope, ScopedId};
use sea_orm::DatabaseExecutor;
use store::{NewMessage, SendIf, clock, entity::job};
use subjects::{
    JobId, NodeId, Subject, Timestamp,
    job::{End, JobCancel, JobResult, JobUsage, LogExtent, VERSION},
    streams,
};

use super::{JobBook, Sandboxes, read};
use crate::{BuiltInTool, Context, Does, ToolError};

impl BuiltInTool for CancelJob {
    const TITLE: &'static str = "Cancel a job";
    const DESCRIPTION: &'static str = "Asks that a job end, and gives it back as it is now. A job that waits \
        ends at once, one that runs when its node hears of it: sandbox.job.get shows it. One that has ended \
        stays as it is.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Job];
    const SCOPE: Scope = Scope::Pm;
    const NEEDS_NATS: bool = true;

    async fn run(context: &Context<'_>, input: Self) -> Result<Job, ToolError> {
        read::find(context, &input.job_id, input.task_id.as_ref()).await?;
        let book = JobBook::new(&context.db, context.sandboxes, context.now);
        book.cancel(input.job_id.as_str(), &context.author()).await
    }
}

/// Adds the request that a job end to the transaction, and its result in case no node has it, or the one that
/// has it is away. The request comes first: a node that takes the job in between finds it.
pub(super) async fn request(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    row: &job::Model,
    by: &str,
    only_if: SendIf,
    now: i64,
) -> Result<(), ToolError> {
    let job_id = id_of(row)?;
    let at = Timestamp::new(clock::from_micros(now)).unwrap_or_else(|_| Timestamp::now());
    let cancel = JobCancel { job_id, at, by: by.to_owned() };
    let message = NewMessage {
        ordering: Some(row.id.clone()),
        ..NewMessage::new(
            streams::JOB_RUNS,
            Subject::JobCancel(job_id).to_string(),
            format!("{job_id}/cancel"),
            subjects::encode_json_text(&cancel),
        )
    };
    sandboxes.outbox.add(db, message).await?;
    end(db, sandboxes, row, End::Cancelled, only_if).await
}

/// Adds a result of the gateway to the transaction. The row follows when the result is in the chain.
pub(super) async fn end(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    row: &job::Model,
    end: End,
    only_if: SendIf,
) -> Result<(), ToolError> {
    let job_id = id_of(row)?;
    let message_id = format!("{job_id}/{}", end.kind().as_str());
    let result = JobResult {
        v: VERSION,
        job_id,
        node: None,
        engine: None,
        attempt: u32::try_from(row.attempt).unwrap_or_default(),
        end,
        started_at: None,
        ended_at: Timestamp::now(),
        usage: JobUsage::default(),
        log: LogExtent::default(),
        files: Vec::new(),
        problems: Vec::new(),
    };
    let subject = Subject::JobResult(job_id, NodeId::gateway()).to_string();
    let message = NewMessage {
        ordering: Some(row.id.clone()),
        only_if: Some(only_if),
        ..NewMessage::new(streams::JOB_RUNS, subject, message_id, subjects::encode_json_text(&result))
    };
    Ok(sandboxes.outbox.add(db, message).await?)
}

fn id_of(row: &job::Model) -> Result<JobId, ToolError> {
    row.id.parse().map_err(|_| ToolError::not_found("job", &row.id))
}
