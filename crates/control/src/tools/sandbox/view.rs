//! A job as callers see it.

use contract::sandbox::{Job, JobStatus, JobSummary};
use sea_orm::{DatabaseExecutor, DbErr};
use store::{clock, entity::job};
use subjects::{
    Subject,
    job::{End, JobResult, JobSpec, Limits},
};

use super::place::{self, Placement};
use crate::{ToolError, arguments::check};

const MAX_SUMMARY_CHARS: usize = 120;

pub(super) fn status_of(row: &job::Model) -> Result<JobStatus, ToolError> {
    check::parse_stored("status of a job", &row.status)
}

pub(super) fn placement_of(row: &job::Model) -> Option<Placement> {
    row.placement.as_deref().and_then(|placement| serde_json::from_str(placement).ok())
}

pub(super) fn spec_of(row: &job::Model) -> Result<JobSpec, ToolError> {
    let unreadable = |error| ToolError::Store(DbErr::Type(format!("the spec of job {}: {error}", row.id)));
    serde_json::from_str(&row.payload).map_err(unreadable)
}

fn result_of(row: &job::Model) -> Option<JobResult> {
    row.result.as_deref().and_then(|result| serde_json::from_str(result).ok())
}

/// Returns what people call the queue of a job.
fn queue_of(row: &job::Model) -> String {
    match row.queue.as_deref().map(str::parse) {
        Some(Ok(Subject::NodeJobs(node))) => format!("node {node}"),
        Some(Ok(Subject::ClassJobs(class))) => format!("pool {}", class.pool),
        _ => row.queue.clone().unwrap_or_default(),
    }
}

/// Returns a job with why it waits, if it does.
pub(crate) async fn describe(db: &DatabaseExecutor<'_>, row: job::Model, now: i64) -> Result<Job, ToolError> {
    let (status, spec, result) = (status_of(&row)?, spec_of(&row)?, result_of(&row));
    let waiting_because = match status.is_final() {
        true => None,
        false => place::why_waiting(db, &row, now).await?,
    };
    let end = result.as_ref().map(|result| result.end.clone());
    let problems = row.problems.as_deref().and_then(|problems| serde_json::from_str(problems).ok());
    let engine = row.engine.as_deref().and_then(|engine| engine.parse().ok());
    let engine = engine.or_else(|| placement_of(&row).map(|placement| placement.engine));
    let limits: Limits = spec.limits;
    Ok(Job {
        queue: queue_of(&row),
        job_id: row.id,
        task_id: row.task_id,
        status,
        waiting_because,
        exit_code: match end {
            Some(End::Exited { code }) => Some(code),
            _ => None,
        },
        end,
        log_tail: row.log_tail,
        log: result.as_ref().map(|result| result.log),
        usage: result.as_ref().map(|result| result.usage),
        files: result.map(|result| result.files).unwrap_or_default(),
        problems: problems.unwrap_or_default(),
        command: spec.command,
        image: spec.image,
        limits,
        network: spec.network,
        tools: spec.tools,
        engine,
        node_id: row.node_id,
        attempt: u32::try_from(row.attempt).unwrap_or_default(),
        cancel_requested_at: row.cancel_requested_at.map(clock::text),
        created_at: clock::text(row.created_at),
        started_at: row.started_at.map(clock::text),
        ended_at: row.ended_at.map(clock::text),
    })
}

/// Returns a job as it is listed.
pub(super) fn summarize(row: job::Model) -> Result<JobSummary, ToolError> {
    let command = spec_of(&row)?.command.join(" ");
    let is_long = command.chars().count() > MAX_SUMMARY_CHARS;
    let mut command: String = command.chars().take(MAX_SUMMARY_CHARS).collect();
    if is_long {
        command.push('…');
    }
    Ok(JobSummary {
        status: status_of(&row)?,
        end: result_of(&row).map(|result| result.end),
        queue: queue_of(&row),
        job_id: row.id,
        task_id: row.task_id,
        command,
        node_id: row.node_id,
        cancel_requested_at: row.cancel_requested_at.map(clock::text),
        created_at: clock::text(row.created_at),
        started_at: row.started_at.map(clock::text),
        ended_at: row.ended_at.map(clock::text),
    })
}
