//! Queues workflows again whose message the queue lost.

use contract::workflow::{Outcome, Status, Trigger};
use sea_orm::{
    ActiveValue::Set, ColumnTrait, Condition, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect,
};
use store::{
    Store, clock,
    entity::{workflow, workflow_checkpoint, workflow_event},
};

use super::{events, message};
use crate::{Sandboxes, ToolError};

/// How long after the end of its lease, or after it was sent, a workflow is queued again. The server has
/// delivered its message long before, if it has it and a runner is there.
const LOST_AFTER_US: i64 = 5 * 60 * 1_000_000;
const MAX_AT_ONCE: u64 = 100;

/// Queues workflows of lost runners again, and if the queue is empty, also those that wait in it for the
/// database. Returns how many.
pub async fn requeue_lost_workflows(
    store: &Store,
    sandboxes: &Sandboxes,
    queue_is_empty: bool,
) -> Result<u64, ToolError> {
    let before = clock::now().saturating_sub(LOST_AFTER_US);
    let left_by_runner = Condition::all()
        .add(workflow::Column::Status.eq(Status::Running.as_str()))
        .add(workflow::Column::LeaseExpiresAt.lt(before));
    let sent_long_ago = Condition::all()
        .add(workflow::Column::Status.eq(Status::Queued.as_str()))
        .add(workflow::Column::Sent.eq(true))
        .add(workflow::Column::UpdatedAt.lt(before));
    let is_lost = Condition::any().add(left_by_runner).add_option(queue_is_empty.then_some(sent_long_ago));
    let lost = workflow::Entity::find()
        .select_only()
        .column(workflow::Column::TaskId)
        .filter(is_lost.clone())
        .order_by_asc(workflow::Column::TaskId)
        .limit(MAX_AT_ONCE)
        .into_tuple::<String>()
        .all(store.read())
        .await?;
    let mut queued = 0;
    for task in lost {
        queued += u64::from(requeue(store, sandboxes, &task, &is_lost).await?);
    }
    Ok(queued)
}

async fn requeue(
    store: &Store,
    sandboxes: &Sandboxes,
    task: &str,
    is_lost: &Condition,
) -> Result<bool, ToolError> {
    let write = store.write().await?;
    let db = DatabaseExecutor::from(&*write);
    let row = workflow::Entity::find_by_id(task).filter(is_lost.clone()).lock_exclusive().one(&db).await?;
    let Some(row) = row else {
        drop(db);
        write.roll_back().await?;
        return Ok(false);
    };
    let trigger = trigger_after(&db, &row).await?;
    let (now, run, epoch) = (clock::now(), row.run + 1, row.epoch + 1);
    let event = match &row.holder {
        Some(holder) => {
            events::of(events::RUNNER, Outcome::LeaseLost, Some(format!("held by {holder}; queued again")))
        }
        None => events::of(events::WORKFLOW, Outcome::Resumed, Some("the queue lost its message".to_owned())),
    };
    let mut change = workflow::ActiveModel::from(row);
    change.status = Set(Status::Queued.as_str().to_owned());
    change.epoch = Set(epoch);
    change.holder = Set(None);
    change.lease_expires_at = Set(None);
    change.updated_at = Set(now);
    // It was taken, so it waits for no other task.
    message::queue(&db, sandboxes, change, (task, run), trigger, &[]).await?;
    events::add(&db, (task, epoch), [event], now).await?;
    drop(db);
    write.commit().await?;
    Ok(true)
}

/// Returns why the run that follows a lost or a paused one begins. A retry of which nothing is stored is
/// still one: what failed or was cancelled before it is yet to be begun anew. A retry of which a checkpoint
/// is stored is resumed: if it failed too, no person asked for another one.
pub(super) async fn trigger_after(
    db: &DatabaseExecutor<'_>,
    lost: &workflow::Model,
) -> Result<Trigger, ToolError> {
    if lost.trigger != Trigger::Retry.as_str() {
        return Ok(Trigger::Resume);
    }
    let retried = workflow_event::Entity::find()
        .filter(workflow_event::Column::TaskId.eq(&lost.task_id))
        .filter(workflow_event::Column::Node.eq(events::WORKFLOW))
        .filter(workflow_event::Column::Outcome.eq(Outcome::Retried.as_str()))
        .order_by_desc(workflow_event::Column::Id)
        .one(db)
        .await?;
    // If so much happened since that its event is not kept, something of it is stored.
    let Some(retried) = retried else { return Ok(Trigger::Resume) };
    let stored = workflow_checkpoint::Entity::find_by_id(&lost.task_id).one(db).await?;
    // Whoever takes the workflow after the retry has a higher epoch than it.
    let is_stored = stored.is_some_and(|stored| stored.epoch > retried.epoch);
    Ok(if is_stored { Trigger::Resume } else { Trigger::Retry })
}
