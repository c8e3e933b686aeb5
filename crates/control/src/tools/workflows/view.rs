//! A workflow as callers see it.

use std::collections::BTreeMap;

use contract::{
    task,
    workflow::{Policy, Status, WaitingFor, Workflow},
};
use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QuerySelect};
use store::{
    clock,
    entity::{task as task_row, workflow, workflow_checkpoint},
};

use super::rows::status_of;
use crate::{ToolError, arguments::check, task_rows::graph};

/// Limit of a workflow with its texts, or a job with its command and files. Independent of the limit that a
/// gateway has for other results: a caller that gets an error would assume that its change was not made.
pub(super) const MAX_RESULT_BYTES: usize = 4 * 1024 * 1024;
/// How many of the tasks that a task waits for are named.
const MAX_NAMED: usize = 10;

/// Returns whether all tasks that a task depends on are completed.
pub(super) fn is_ready(dependencies: &[task_row::Model]) -> bool {
    dependencies.iter().all(|task| task.status == task::Status::Completed.as_str())
}

pub(super) fn waiting_for(row: &workflow::Model) -> Result<Option<WaitingFor>, ToolError> {
    let parse = |text: &String| check::parse_stored("reason to wait", text);
    row.waiting_for.as_ref().map(parse).transpose()
}

pub(super) fn policy_of(row: &workflow::Model) -> Policy {
    // The gateway writes this JSON; if it was damaged, the defaults hold.
    serde_json::from_str(&row.policy).unwrap_or_default()
}

/// Returns a workflow with its task.
pub(super) async fn describe(db: &DatabaseExecutor<'_>, row: workflow::Model) -> Result<Workflow, ToolError> {
    let described = describe_all(db, vec![row]).await?;
    described.into_iter().next().ok_or_else(|| ToolError::not_found("workflow", ""))
}

/// Returns workflows with their tasks.
pub(super) async fn describe_all(
    db: &DatabaseExecutor<'_>,
    rows: Vec<workflow::Model>,
) -> Result<Vec<Workflow>, ToolError> {
    let ids: Vec<&str> = rows.iter().map(|row| row.task_id.as_str()).collect();
    let tasks = task_row::Entity::find().filter(task_row::Column::Id.is_in(ids.clone())).all(db).await?;
    let mut tasks: BTreeMap<String, task_row::Model> =
        tasks.into_iter().map(|task| (task.id.clone(), task)).collect();
    let nodes = workflow_checkpoint::Entity::find()
        .select_only()
        .columns([workflow_checkpoint::Column::TaskId, workflow_checkpoint::Column::LastNodeId])
        .filter(workflow_checkpoint::Column::TaskId.is_in(ids))
        .into_tuple::<(String, Option<String>)>();
    let mut nodes: BTreeMap<String, Option<String>> = nodes.all(db).await?.into_iter().collect();
    let mut described = Vec::with_capacity(rows.len());
    for row in rows {
        let waiting_because = why_waiting(db, &row).await?;
        let task = tasks.remove(&row.task_id);
        let (task_name, task_title) = task.map(|task| (task.name, task.title)).unwrap_or_default();
        let last_node = nodes.remove(&row.task_id).flatten();
        described.push(Workflow {
            task_name,
            task_title,
            status: status_of(&row)?,
            already_active: false,
            canceled_with: Vec::new(),
            run: row.run,
            trigger: check::parse_stored("trigger of a workflow", &row.trigger)?,
            epoch: row.epoch,
            last_node,
            lease_expires_at: row.lease_expires_at.map(clock::text),
            waiting_for: waiting_for(&row)?,
            waiting_because,
            policy: policy_of(&row),
            task_id: row.task_id,
            holder: row.holder,
            question_id: row.interrupt_id.filter(|_| row.question.is_some()),
            question: row.question,
            error: row.error,
            summary: row.summary,
            user_id: row.user_id,
            project_id: row.project_id,
            started_by: row.started_by,
            created_at: clock::text(row.created_at),
            updated_at: clock::text(row.updated_at),
            ended_at: row.ended_at.map(clock::text),
        });
    }
    Ok(described)
}

async fn why_waiting(db: &DatabaseExecutor<'_>, row: &workflow::Model) -> Result<Option<String>, ToolError> {
    match (status_of(row)?, waiting_for(row)?) {
        (Status::Queued, _) if row.sent => Ok(Some("waits for a runner".to_owned())),
        (Status::Queued, _) => Ok(Some(why_dependencies(&graph::dependencies(db, &row.task_id).await?))),
        (Status::Waiting, Some(WaitingFor::Pause)) => {
            Ok(Some("is paused; workflow.resume goes on with it".to_owned()))
        }
        (Status::Waiting, Some(WaitingFor::Question)) => {
            Ok(Some("waits for a person's answer; workflow.resume gives it".to_owned()))
        }
        (Status::Waiting, Some(WaitingFor::Approval)) => {
            Ok(Some("waits for a person's approval; workflow.resume gives it".to_owned()))
        }
        _ => Ok(None),
    }
}

/// Says for which tasks a task waits, and which of them will never be completed.
fn why_dependencies(dependencies: &[task_row::Model]) -> String {
    let with = |statuses: &[task::Status]| -> Vec<&str> {
        let found = dependencies.iter().filter(|task| statuses.iter().any(|it| it.as_str() == task.status));
        found.map(|task| task.name.as_str()).take(MAX_NAMED).collect()
    };
    let failed = with(&[task::Status::Failed]);
    let canceled = with(&[task::Status::Canceled]);
    let mut reasons = Vec::new();
    for (names, what) in [(failed, "failed"), (canceled, "was cancelled")] {
        reasons.extend(names.iter().map(|name| format!("{name} {what}")));
    }
    if !reasons.is_empty() {
        return format!(
            "cannot begin: {}; retry what it depends on with workflow.retry, or remove the dependency",
            reasons.join(", ")
        );
    }
    let open = dependencies.iter().filter(|task| task.status != task::Status::Completed.as_str());
    let open: Vec<&str> = open.map(|task| task.name.as_str()).take(MAX_NAMED).collect();
    format!("waits for {}", open.join(", "))
}
