//! Queues workflows for runners.

use contract::workflow::Trigger;
use sea_orm::{ActiveModelTrait, ActiveValue::Set, DatabaseExecutor, EntityTrait};
use store::{
    NewMessage,
    entity::{task, workflow},
};
use subjects::{
    ScopeId, streams,
    workflow_run::{SUBJECT, WorkflowRun},
};

use super::view;
use crate::{Sandboxes, ToolError};

/// Returns the ordering key of the messages of a workflow.
pub(super) fn ordering(task_id: &str) -> String {
    format!("workflow/{task_id}")
}

/// Adds the message of a run to the transaction.
async fn send(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    task_id: &str,
    run: i64,
) -> Result<(), ToolError> {
    let task_id: ScopeId = task_id.parse().map_err(|_| ToolError::not_found("task", task_id))?;
    let message = WorkflowRun::new(task_id, run);
    let body = subjects::encode_json_text(&message);
    let message = NewMessage {
        ordering: Some(ordering(message.task_id.as_str())),
        ..NewMessage::new(streams::WORKFLOWS, SUBJECT.to_owned(), message.message_id(), body)
    };
    Ok(sandboxes.outbox.add(db, message).await?)
}

/// Queues another run of a workflow, and sends it unless the task waits for others. What else changes is in
/// `change`.
pub(super) async fn queue(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    mut change: workflow::ActiveModel,
    (task_id, run): (&str, i64),
    trigger: Trigger,
    dependencies: &[task::Model],
) -> Result<workflow::Model, ToolError> {
    let is_ready = view::is_ready(dependencies);
    change.run = Set(run);
    change.trigger = Set(trigger.as_str().to_owned());
    change.sent = Set(is_ready);
    if is_ready {
        send(db, sandboxes, task_id, run).await?;
    }
    Ok(change.update(db).await?)
}

/// Sends the run of a queued workflow whose task waits for nothing any more.
pub(super) async fn send_waiting(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    row: workflow::Model,
    now: i64,
) -> Result<(), ToolError> {
    send(db, sandboxes, &row.task_id, row.run).await?;
    let mut change = workflow::ActiveModel::from(row);
    change.sent = Set(true);
    change.updated_at = Set(now);
    change.update(db).await?;
    Ok(())
}

/// Stores a new workflow, and sends it unless the task waits for others.
pub(super) async fn insert(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    row: workflow::Model,
) -> Result<workflow::Model, ToolError> {
    if row.sent {
        send(db, sandboxes, &row.task_id, row.run).await?;
    }
    let insert = workflow::Entity::insert(workflow::ActiveModel::from(row.clone()));
    insert.exec_without_returning(db).await?;
    Ok(row)
}
