//! How many workflows there are, and what happened to them, for metrics.

use contract::workflow::{Outcome, Status};
use sea_orm::{
    ColumnTrait, Condition, DbErr, EntityTrait, FromQueryResult, PaginatorTrait, QueryFilter, QuerySelect,
};
use store::{
    Store,
    entity::{workflow, workflow_event},
};

use super::events;

/// The statuses of workflows that have not ended.
pub const ACTIVE_STATUSES: [Status; 3] = [Status::Queued, Status::Running, Status::Waiting];

/// Outcomes that concern a whole workflow, not one step.
pub const COUNTED_OUTCOMES: [Outcome; 10] = [
    Outcome::Started,
    Outcome::Ended,
    Outcome::Failed,
    Outcome::Cancelled,
    Outcome::Waiting,
    Outcome::Answered,
    Outcome::Paused,
    Outcome::Resumed,
    Outcome::Retried,
    Outcome::LeaseLost,
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkflowCounts {
    /// How many workflows have each of [`ACTIVE_STATUSES`].
    pub active: Vec<(Status, u64)>,
    /// Since when the workflow that waits longest for a runner waits, in microseconds since 1970.
    pub oldest_wait: Option<i64>,
    /// How often each of [`COUNTED_OUTCOMES`] happened after the event that was given.
    pub happened: Vec<(Outcome, u64)>,
    /// The newest event that was counted.
    pub newest_event: i64,
}

#[derive(FromQueryResult)]
struct OutcomeCount {
    outcome: String,
    events: i64,
    newest: i64,
}

/// Counts workflows, and what happened to them after an event.
pub async fn count_workflows(store: &Store, after: i64) -> Result<WorkflowCounts, DbErr> {
    let db = store.read();
    let mut active = Vec::new();
    for status in ACTIVE_STATUSES {
        let of_status = workflow::Entity::find().filter(workflow::Column::Status.eq(status.as_str()));
        active.push((status, of_status.count(db).await?));
    }
    let oldest_wait = workflow::Entity::find()
        .select_only()
        .column_as(workflow::Column::UpdatedAt.min(), "oldest")
        .filter(workflow::Column::Status.eq(Status::Queued.as_str()))
        .filter(workflow::Column::Sent.eq(true))
        .into_tuple::<Option<i64>>()
        .one(db)
        .await?;
    let (happened, newest_event) = count_events_after(store, after).await?;
    Ok(WorkflowCounts { active, oldest_wait: oldest_wait.flatten(), happened, newest_event })
}

/// Returns the newest event of all workflows; 0 if there is none.
pub async fn newest_workflow_event(store: &Store) -> Result<i64, DbErr> {
    let newest = workflow_event::Entity::find()
        .select_only()
        .column_as(workflow_event::Column::Id.max(), "newest")
        .into_tuple::<Option<i64>>()
        .one(store.read())
        .await?;
    Ok(newest.flatten().unwrap_or_default())
}

async fn count_events_after(store: &Store, after: i64) -> Result<(Vec<(Outcome, u64)>, i64), DbErr> {
    // A runner that takes a workflow is no start of it.
    let of_whole = Condition::any().add(workflow_event::Column::Node.eq(events::WORKFLOW)).add(
        Condition::all()
            .add(workflow_event::Column::Node.eq(events::RUNNER))
            .add(workflow_event::Column::Outcome.eq(Outcome::LeaseLost.as_str())),
    );
    let rows = workflow_event::Entity::find()
        .select_only()
        .column(workflow_event::Column::Outcome)
        .column_as(workflow_event::Column::Id.count(), "events")
        .column_as(workflow_event::Column::Id.max(), "newest")
        .filter(workflow_event::Column::Id.gt(after))
        .filter(of_whole)
        .group_by(workflow_event::Column::Outcome)
        .into_model::<OutcomeCount>()
        .all(store.read())
        .await?;
    let newest = rows.iter().map(|row| row.newest).max().unwrap_or(after);
    let counted = COUNTED_OUTCOMES.into_iter().filter_map(|outcome| {
        let row = rows.iter().find(|row| row.outcome == outcome.as_str())?;
        Some((outcome, u64::try_from(row.events).unwrap_or_default()))
    });
    Ok((counted.collect(), newest))
}
