//! Starts runs: stores them and queues jobs.

use contract::schedule::{Payload, RunState, Trigger};
use sea_orm::{ActiveModelTrait, ActiveValue::Set, DatabaseExecutor, EntityTrait};
use store::entity::{job, schedule, schedule_run, task};
use subjects::HandoffId;

use super::rows::payload_of;
use crate::{ToolError, arguments::check, tools::tasks};

const SECOND_US: i64 = 1_000_000;
/// How long after its deadline a run may still be answered.
const ANSWER_GRACE_US: i64 = 60 * SECOND_US;

/// A slot or a moment at which a run starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) slot: i64,
    pub(super) trigger: Trigger,
    pub(super) now: i64,
    /// Whether the caller is going to publish the run.
    pub(super) is_claimed: bool,
}

/// Stores a run and, if it is one, queues its job. Returns `None` if the slot has its run already.
pub(super) async fn start(
    db: &DatabaseExecutor<'_>,
    schedule: &schedule::Model,
    start: Start,
) -> Result<Option<schedule_run::Model>, ToolError> {
    let Start { slot, trigger, now, is_claimed } = start;
    let payload = payload_of(schedule)?;
    let deadline = now.saturating_add(schedule.timeout_seconds.saturating_mul(SECOND_US));
    let is_job = matches!(payload, Payload::JobSpec { .. });
    let state = if is_job { RunState::Running } else { RunState::Pending };
    let id = HandoffId::for_scheduled_run(&schedule.id, trigger.as_str(), slot).to_string();
    let mut row = schedule_run::Model {
        state: state.as_str().to_owned(),
        payload: (!is_job).then(|| schedule.payload.clone()),
        claimed_at: is_claimed.then_some(now),
        deadline_at: deadline,
        timeout_at: Some(deadline.saturating_add(ANSWER_GRACE_US)),
        job_id: is_job.then(|| id.clone()),
        ..blank_run(schedule, id, trigger, slot, now)
    };
    if !insert(db, row.clone()).await? {
        return Ok(None);
    }
    if let Payload::JobSpec { kind, payload, task_id, node_id } = payload {
        match find_task(db, schedule, task_id.map(String::from), now).await? {
            Ok(task_id) => {
                let payload = serde_json::Value::Object(payload).to_string();
                let job = job::Model {
                    node_id: node_id.map(String::from),
                    run_id: Some(row.id.clone()),
                    ..job::Model::queued(row.id.clone(), task_id, kind, payload, now)
                };
                job::Entity::insert(job::ActiveModel::from(job)).exec_without_returning(db).await?;
            }
            Err(why) => row = fail(db, row, now, "task_closed", why).await?,
        }
    }
    Ok(Some(row))
}

/// Returns a row with what all runs and skipped slots have.
pub(super) fn blank_run(
    schedule: &schedule::Model,
    id: String,
    trigger: Trigger,
    slot: i64,
    now: i64,
) -> schedule_run::Model {
    schedule_run::Model {
        id,
        schedule_id: schedule.id.clone(),
        user_id: schedule.user_id.clone(),
        project_id: schedule.project_id.clone(),
        slot,
        trigger: trigger.as_str().to_owned(),
        state: RunState::Skipped.as_str().to_owned(),
        skip_reason: None,
        first_slot: None,
        slots: None,
        payload: None,
        fired_at: now,
        claimed_at: None,
        sent_at: None,
        ended_at: None,
        deadline_at: now,
        timeout_at: None,
        cancel_due_at: None,
        job_id: None,
        answer: None,
        error_code: None,
    }
}

/// Inserts a run. Returns false if there is one with its id.
pub(super) async fn insert(db: &DatabaseExecutor<'_>, row: schedule_run::Model) -> Result<bool, ToolError> {
    let insert = schedule_run::Entity::insert(schedule_run::ActiveModel::from(row))
        .on_conflict_do_nothing_on([schedule_run::Column::Id]);
    Ok(check::was_inserted(&insert.exec_without_returning(db).await?))
}

/// Ends a run that cannot start.
pub(super) async fn fail(
    db: &DatabaseExecutor<'_>,
    row: schedule_run::Model,
    now: i64,
    code: &str,
    why: String,
) -> Result<schedule_run::Model, ToolError> {
    let mut change = schedule_run::ActiveModel::from(row);
    change.state = Set(RunState::Failed.as_str().to_owned());
    change.ended_at = Set(Some(now));
    change.timeout_at = Set(None);
    change.payload = Set(None);
    change.job_id = Set(None);
    change.error_code = Set(Some(code.to_owned()));
    change.answer = Set(Some(why));
    Ok(change.update(db).await?)
}

/// Returns the task of a job: the named one, or the schedule's own. The inner error says why there is none.
async fn find_task(
    db: &DatabaseExecutor<'_>,
    schedule: &schedule::Model,
    named: Option<String>,
    now: i64,
) -> Result<Result<String, String>, ToolError> {
    let Some(id) = named else { return own_task(db, schedule, now).await.map(Ok) };
    let found = task::Entity::find_by_id(&id).one(db).await?;
    let Some(row) = found.filter(|row| is_of_user(row, schedule)) else {
        return Ok(Err(format!("task {id} not found")));
    };
    let status = tasks::status_of(&row)?;
    Ok(match tasks::is_final(status) {
        true => Err(format!("the task {} is {}", row.name, status.as_str())),
        false => Ok(row.id),
    })
}

fn is_of_user(row: &task::Model, schedule: &schedule::Model) -> bool {
    row.user_id.as_ref().is_none_or(|user| *user == schedule.user_id)
}

/// Returns the task for all jobs of a schedule that names none. It is created with the first job, and the
/// next one with the first job after its end.
async fn own_task(
    db: &DatabaseExecutor<'_>,
    schedule: &schedule::Model,
    now: i64,
) -> Result<String, ToolError> {
    let id = |number: i64| HandoffId::for_scheduled_run(&schedule.id, "task", number).to_string();
    // Those before `first` have ended. They may be many, so they are not looked at one by one.
    let (mut first, mut open) = (0, None);
    while open != Some(first) {
        let number = open.map_or(first * 2, |open: i64| first + (open - first) / 2);
        match has_ended(db, schedule, &id(number)).await? {
            true => first = number + 1,
            false => open = Some(number),
        }
    }
    let id = id(first);
    if task::Entity::find_by_id(&id).one(db).await?.is_some() {
        return Ok(id);
    }
    let row = task::Model {
        id,
        name: schedule.name.clone(),
        title: schedule.name.clone(),
        description: format!("The jobs of the schedule {}.", schedule.name),
        acceptance_criteria: "[]".to_owned(),
        status: contract::task::Status::Pending.as_str().to_owned(),
        scope_key: tasks::name::scope_key(schedule.project_id.as_deref(), Some(&schedule.user_id)),
        project_id: schedule.project_id.clone(),
        user_id: Some(schedule.user_id.clone()),
        parent_task_id: None,
        schedule_id: Some(schedule.id.clone()),
        run_id: None,
        position: 0,
        version: 1,
        created_at: now,
        updated_at: now,
    };
    Ok(tasks::name::insert(db, row).await?.id)
}

/// Returns whether there is a task with this id that takes no more jobs of the schedule.
async fn has_ended(
    db: &DatabaseExecutor<'_>,
    schedule: &schedule::Model,
    id: &str,
) -> Result<bool, ToolError> {
    match task::Entity::find_by_id(id).one(db).await? {
        Some(row) => Ok(!is_of_user(&row, schedule) || tasks::is_final(tasks::status_of(&row)?)),
        None => Ok(false),
    }
}
