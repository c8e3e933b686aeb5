//! The event log of workflows, shown to people.

use contract::workflow::{Event, NewEvent, Outcome};
use sea_orm::{
    ActiveValue::{NotSet, Set},
    ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
};
use store::{clock, entity::workflow_event};

use crate::{ToolError, arguments::check};

/// How many events of one workflow are kept.
const MAX_KEPT: u64 = 1_000;
const MAX_DETAIL_BYTES: usize = 1_000;
const MAX_NAME_BYTES: usize = 128;

/// The node of events about a runner as such.
pub(super) const RUNNER: &str = "runner";
/// The node of what people do with a workflow.
pub(super) const WORKFLOW: &str = "workflow";

/// Returns an event about a whole workflow.
pub(super) fn of(node: &str, outcome: Outcome, detail: Option<String>) -> NewEvent {
    NewEvent { node: node.to_owned(), step: None, outcome, detail }
}

pub(super) fn check(events: &[NewEvent]) -> Result<(), ToolError> {
    for event in events {
        check::non_blank("node of an event", &event.node, MAX_NAME_BYTES)?;
        check::text("step of an event", event.step.as_deref().unwrap_or_default(), MAX_NAME_BYTES)?;
    }
    Ok(())
}

/// Adds events, and deletes the oldest ones beyond what is kept.
pub(super) async fn add(
    db: &DatabaseExecutor<'_>,
    (task, epoch): (&str, i64),
    events: impl IntoIterator<Item = NewEvent>,
    now: i64,
) -> Result<(), ToolError> {
    let rows: Vec<workflow_event::ActiveModel> = events
        .into_iter()
        .map(|event| workflow_event::ActiveModel {
            id: NotSet,
            task_id: Set(task.to_owned()),
            epoch: Set(epoch),
            at: Set(now),
            node: Set(event.node),
            step: Set(event.step),
            outcome: Set(event.outcome.as_str().to_owned()),
            detail: Set(event.detail.map(|detail| shorten(&detail))),
        })
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    workflow_event::Entity::insert_many(rows).exec_without_returning(db).await?;
    let newest_deleted = workflow_event::Entity::find()
        .select_only()
        .column(workflow_event::Column::Id)
        .filter(workflow_event::Column::TaskId.eq(task))
        .order_by_desc(workflow_event::Column::Id)
        .offset(MAX_KEPT)
        .limit(1)
        .into_tuple::<i64>()
        .one(db)
        .await?;
    if let Some(id) = newest_deleted {
        workflow_event::Entity::delete_many()
            .filter(workflow_event::Column::TaskId.eq(task))
            .filter(workflow_event::Column::Id.lte(id))
            .exec(db)
            .await?;
    }
    Ok(())
}

/// Returns the latest events of a workflow, in order.
pub(super) async fn latest(
    db: &DatabaseExecutor<'_>,
    task: &str,
    limit: u64,
) -> Result<Vec<Event>, ToolError> {
    let rows = workflow_event::Entity::find()
        .filter(workflow_event::Column::TaskId.eq(task))
        .order_by_desc(workflow_event::Column::Id)
        .limit(limit)
        .all(db)
        .await?;
    let into_event = |row: workflow_event::Model| {
        Ok(Event {
            sequence: row.id,
            epoch: row.epoch,
            at: clock::text(row.at),
            node: row.node,
            step: row.step,
            outcome: check::parse_stored("outcome of an event", &row.outcome)?,
            detail: row.detail,
        })
    };
    rows.into_iter().rev().map(into_event).collect()
}

/// Returns a text without NUL and secrets, as short as an event has it.
fn shorten(text: &str) -> String {
    let text = secrets::redact_by_kind(text).replace('\0', "");
    match text.floor_char_boundary(MAX_DETAIL_BYTES) {
        all if all == text.len() => text,
        cut => format!("{}…", &text[..cut]),
    }
}
