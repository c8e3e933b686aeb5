//! Rows of schedules and runs, and what is shown of them.

use contract::schedule::{
    Concurrency, Payload, Run, RunState, Schedule, ScheduleDetails, SkippedSlots, Trigger,
};
use sea_orm::DbErr;
use serde::de::DeserializeOwned;
use store::{
    clock,
    entity::{job, schedule, schedule_run},
};
use subjects::HandoffId;
use timing::{Policies, Timing};

use crate::{ToolError, arguments::check, tools::jobs};

/// Parses stored JSON.
fn stored<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, ToolError> {
    serde_json::from_str(text).map_err(|error| damaged(&format!("{what}: {error}")))
}

fn damaged(what: &str) -> ToolError {
    ToolError::Store(DbErr::Type(format!("the store holds an invalid {what}")))
}

pub(super) fn payload_of(row: &schedule::Model) -> Result<Payload, ToolError> {
    stored("payload of a schedule", &row.payload)
}

/// Returns the timing of a schedule. Fails with [`ToolError::Invalid`] if it can no longer be used, for
/// example since its time zone is not in the database any more.
pub(super) fn timing_of(row: &schedule::Model) -> Result<Timing, ToolError> {
    let stored: contract::schedule::Timing =
        serde_json::from_str(&row.timing).map_err(|error| ToolError::Invalid(error.to_string()))?;
    Timing::parse(&stored, row.created_at).map_err(|error| ToolError::Invalid(error.to_string()))
}

pub(super) fn policies_of(row: &schedule::Model) -> Result<Policies, ToolError> {
    Ok(Policies {
        missed: check::parse_stored("missed-run policy", &row.missed)?,
        missed_limit: u32::try_from(row.missed_limit).unwrap_or(1),
        concurrency: concurrency_of(row)?,
    })
}

pub(super) fn concurrency_of(row: &schedule::Model) -> Result<Concurrency, ToolError> {
    check::parse_stored("concurrency policy", &row.concurrency)
}

pub(super) fn summarize(row: schedule::Model) -> Result<Schedule, ToolError> {
    Ok(describe(row)?.schedule)
}

pub(super) fn describe(row: schedule::Model) -> Result<ScheduleDetails, ToolError> {
    let payload = payload_of(&row)?;
    let Policies { missed, missed_limit, concurrency } = policies_of(&row)?;
    let schedule = Schedule {
        timing: stored("timing of a schedule", &row.timing)?,
        payload_type: payload.kind(),
        missed,
        missed_limit,
        concurrency,
        schedule_id: row.id,
        user_id: row.user_id,
        project_id: row.project_id,
        name: row.name,
        enabled: row.enabled,
        timeout_seconds: u64::try_from(row.timeout_seconds).unwrap_or_default(),
        next_at: row.next_at.map(clock::text),
        last_slot: row.last_slot.map(clock::text),
        version: row.version,
        created_at: clock::text(row.created_at),
        updated_at: clock::text(row.updated_at),
        updated_by: row.updated_by,
    };
    Ok(ScheduleDetails { schedule, payload })
}

pub(super) fn run_id_of(row: &schedule_run::Model) -> Result<HandoffId, ToolError> {
    row.id.parse().map_err(|_| damaged("id of a run"))
}

pub(super) fn state_of(row: &schedule_run::Model) -> Result<RunState, ToolError> {
    check::parse_stored("state of a run", &row.state)
}

/// Returns the state of a run whose job has ended; `None` if the job is open.
pub(super) fn state_of_job(job: &job::Model) -> Result<Option<RunState>, ToolError> {
    Ok(match jobs::status_of(job)? {
        jobs::Status::Queued | jobs::Status::Running => None,
        jobs::Status::Completed => Some(RunState::Completed),
        jobs::Status::Failed => Some(RunState::Failed),
        jobs::Status::Canceled => Some(RunState::Cancelled),
    })
}

/// Returns what is shown of a run. `job` is the job that it queued; of an open run, the job tells the state.
pub(super) fn describe_run(row: schedule_run::Model, job: Option<&job::Model>) -> Result<Run, ToolError> {
    let stored_state = state_of(&row)?;
    let ended_job = job.filter(|_| stored_state.is_open());
    let of_job = ended_job.map(state_of_job).transpose()?.flatten();
    let ended_at = match (&of_job, job) {
        (Some(_), Some(job)) => Some(job.updated_at),
        _ => row.ended_at,
    };
    let trigger: Trigger = check::parse_stored("trigger of a run", &row.trigger)?;
    let skipped = match &row.skip_reason {
        Some(reason) => Some(SkippedSlots {
            reason: check::parse_stored("reason", reason)?,
            first_slot: clock::text(row.first_slot.unwrap_or(row.slot)),
            slots: u64::try_from(row.slots.unwrap_or(1)).unwrap_or(1),
        }),
        None => None,
    };
    Ok(Run {
        run_id: run_id_of(&row)?,
        schedule_id: row.schedule_id,
        user_id: row.user_id,
        slot: clock::text(row.slot),
        trigger,
        state: of_job.unwrap_or(stored_state),
        skipped,
        fired_at: clock::text(row.fired_at),
        sent_at: row.sent_at.map(clock::text),
        ended_at: ended_at.map(clock::text),
        job_id: row.job_id,
        text: row.answer,
        error_code: row.error_code,
    })
}
