//! The order of a workflow's checkpoints: that in which the gateway first stored them. The ids that runners
//! give them say nothing about it, since each has the time of its runner's clock.

use std::collections::BTreeMap;

use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use store::entity::{workflow_history, workflow_write};

use crate::ToolError;

/// Returns the number of the next checkpoint of a workflow, which is locked.
pub(super) async fn next(db: &DatabaseExecutor<'_>, task: &str) -> Result<i64, ToolError> {
    let newest = workflow_history::Entity::find()
        .select_only()
        .column_as(workflow_history::Column::Sequence.max(), "newest")
        .filter(workflow_history::Column::TaskId.eq(task))
        .into_tuple::<Option<i64>>()
        .one(db)
        .await?;
    Ok(newest.flatten().unwrap_or_default() + 1)
}

/// Returns whether a checkpoint is the newest of its namespace.
pub(super) async fn is_newest(
    db: &DatabaseExecutor<'_>,
    task: &str,
    namespace: &str,
    checkpoint: &str,
) -> Result<bool, ToolError> {
    let newest = workflow_history::Entity::find()
        .select_only()
        .column(workflow_history::Column::CheckpointId)
        .filter(workflow_history::Column::TaskId.eq(task))
        .filter(workflow_history::Column::Namespace.eq(namespace))
        .order_by_desc(workflow_history::Column::Sequence)
        .into_tuple::<String>()
        .one(db)
        .await?;
    Ok(newest.is_some_and(|newest| newest == checkpoint))
}

/// Returns the place of a checkpoint in the order. Fails if there is none with this id. Of several namespaces
/// that have it, the first one counts, so that reading page by page ends.
pub(super) async fn sequence_of(
    db: &DatabaseExecutor<'_>,
    task: &str,
    namespace: Option<&str>,
    checkpoint: &str,
) -> Result<i64, ToolError> {
    let mut query = workflow_history::Entity::find()
        .select_only()
        .column(workflow_history::Column::Sequence)
        .filter(workflow_history::Column::TaskId.eq(task))
        .filter(workflow_history::Column::CheckpointId.eq(checkpoint));
    if let Some(namespace) = namespace {
        query = query.filter(workflow_history::Column::Namespace.eq(namespace));
    }
    let query = query.order_by_asc(workflow_history::Column::Sequence).into_tuple::<i64>();
    query.one(db).await?.ok_or_else(|| ToolError::not_found("checkpoint", checkpoint))
}

/// Keeps the newest checkpoint of each namespace, from which a retry goes on.
pub(super) async fn prune(db: &DatabaseExecutor<'_>, task: &str) -> Result<(), ToolError> {
    let stored = workflow_history::Entity::find()
        .select_only()
        .columns([workflow_history::Column::Namespace, workflow_history::Column::CheckpointId])
        .filter(workflow_history::Column::TaskId.eq(task))
        .order_by_asc(workflow_history::Column::Sequence)
        .into_tuple::<(String, String)>();
    let newest: BTreeMap<String, String> = stored.all(db).await?.into_iter().collect();
    for (namespace, checkpoint) in newest {
        workflow_history::Entity::delete_many()
            .filter(workflow_history::Column::TaskId.eq(task))
            .filter(workflow_history::Column::Namespace.eq(&namespace))
            .filter(workflow_history::Column::CheckpointId.ne(&checkpoint))
            .exec(db)
            .await?;
        workflow_write::Entity::delete_many()
            .filter(workflow_write::Column::TaskId.eq(task))
            .filter(workflow_write::Column::Namespace.eq(&namespace))
            .filter(workflow_write::Column::CheckpointId.ne(&checkpoint))
            .exec(db)
            .await?;
    }
    Ok(())
}
