//! Queues workflows again whose message the queue lost, such as with a restore of an older backup.

use std::collections::BTreeMap;

use broker::Chain;
use contract::workflow::{Outcome, Status, Trigger};
use operate::lost::ids_not_in;
use sea_orm::{
    ActiveValue::Set, ColumnTrait, Condition, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect,
};
use store::{
    Store, clock,
    entity::{outbox, workflow, workflow_checkpoint, workflow_event},
};
use subjects::{
    streams,
    workflow_run::{SUBJECT, WorkflowRun},
};
use tracing::debug;

use super::{events, message};
use crate::{Sandboxes, ToolError, resend};

const MAX_AT_ONCE: u64 = 500;

/// A workflow and the run that may have to be replaced.
type Run = (String, i64);

/// Queues workflows of lost runners again, and those that wait in the queue for the database and whose
/// message it does not have. Returns how many.
pub async fn requeue_lost_workflows(store: &Store, sandboxes: &Sandboxes) -> Result<u64, ToolError> {
    let before = clock::now().saturating_sub(resend::AFTER_US);
    // Whether the queue has its message or not: a runner that cannot reach a gateway may keep it.
    let left_by_runner = Condition::all()
        .add(workflow::Column::Status.eq(Status::Running.as_str()))
        .add(workflow::Column::LeaseExpiresAt.lt(before));
    let sent_long_ago = Condition::all()
        .add(workflow::Column::Status.eq(Status::Queued.as_str()))
        .add(workflow::Column::Sent.eq(true))
        .add(workflow::Column::UpdatedAt.lt(before));
    let left = runs_of(store, &left_by_runner).await?;
    let lost = lost_of(sandboxes, runs_of(store, &sent_long_ago).await?).await;
    let mut queued = 0;
    for (runs, is_lost) in [(left, left_by_runner), (lost, sent_long_ago)] {
        for run in runs {
            queued += u64::from(requeue(store, sandboxes, &run, &is_lost).await?);
        }
    }
    Ok(queued)
}

/// Returns workflows, the longest unchanged first. Of those that were sent, the queue has these first.
async fn runs_of(store: &Store, these: &Condition) -> Result<Vec<Run>, ToolError> {
    let found = workflow::Entity::find()
        .select_only()
        .columns([workflow::Column::TaskId, workflow::Column::Run])
        .filter(these.clone())
        .order_by_asc(workflow::Column::UpdatedAt)
        .order_by_asc(workflow::Column::TaskId)
        .limit(MAX_AT_ONCE)
        .into_tuple::<Run>();
    Ok(found.all(store.read()).await?)
}

/// Returns those of the runs whose message the queue does not have; none if that is not known.
async fn lost_of(sandboxes: &Sandboxes, waiting: Vec<Run>) -> Vec<Run> {
    if waiting.is_empty() {
        return waiting;
    }
    let Ok(broker) = sandboxes.broker().await else { return Vec::new() };
    let with_message = |(task, run): Run| {
        let message = WorkflowRun::new(task.parse().ok()?, run);
        Some((message.message_id(), (task, run)))
    };
    let runs: BTreeMap<String, Run> = waiting.into_iter().filter_map(with_message).collect();
    // Each run has a message of its own. That of an earlier one, which a runner only throws away, is not it.
    let lost = ids_not_in(&broker, streams::WORKFLOWS, SUBJECT, runs.keys().cloned().collect(), |message| {
        let run: WorkflowRun = serde_json::from_slice(&message.payload).ok()?;
        Some(run.message_id())
    });
    match lost.await {
        Ok(lost) => runs.into_iter().filter(|(id, _)| lost.contains(id)).map(|(_, run)| run).collect(),
        Err(error) => {
            debug!(error = %Chain(&error), "Queue of workflows not read; retrying.");
            Vec::new()
        }
    }
}

async fn requeue(
    store: &Store,
    sandboxes: &Sandboxes,
    (task, run): &Run,
    is_lost: &Condition,
) -> Result<bool, ToolError> {
    let write = store.write().await?;
    let db = DatabaseExecutor::from(&*write);
    let row = workflow::Entity::find_by_id(task)
        .filter(is_lost.clone())
        .filter(workflow::Column::Run.eq(*run))
        .lock_exclusive()
        .one(&db)
        .await?;
    // What is about to be published is not lost.
    let unsent = outbox::Entity::find().filter(outbox::Column::Ordering.eq(message::ordering(task)));
    let (Some(row), None) = (row, unsent.one(&db).await?) else {
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
