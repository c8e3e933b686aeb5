//! The graph of dependencies between tasks.

use std::collections::{BTreeMap, BTreeSet};

use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

use store::entity::{task, task_dependency};

use crate::ToolError;

/// Ids per statement: databases limit the number of parameters.
pub(crate) const MAX_IDS_PER_STATEMENT: usize = 500;

/// The direction in which dependencies are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From a task to the tasks it depends on.
    Dependencies,
    /// From a task to the tasks that depend on it.
    Dependents,
}

/// Returns the tasks that a task waits for directly.
pub(crate) async fn dependencies(db: &DatabaseExecutor<'_>, id: &str) -> Result<Vec<task::Model>, ToolError> {
    let next = neighbours(db, &[id.to_owned()], Direction::Dependencies).await?;
    load(db, &next.into_iter().collect::<Vec<_>>()).await
}

/// Returns the ids of all tasks that can be reached, including the given ones.
pub(crate) async fn reachable(
    db: &DatabaseExecutor<'_>,
    from: &[String],
    direction: Direction,
) -> Result<BTreeSet<String>, ToolError> {
    let mut reached: BTreeSet<String> = from.iter().cloned().collect();
    let mut frontier: Vec<String> = from.to_vec();
    while !frontier.is_empty() {
        let next = neighbours(db, &frontier, direction).await?;
        frontier = next.into_iter().filter(|id| reached.insert(id.clone())).collect();
    }
    Ok(reached)
}

/// Returns the tasks that can be reached, locked until the transaction ends.
///
/// Dependencies may be added while this call waits for a lock, so it searches again until it finds no new
/// task. Adding a dependency locks both tasks, so once all are locked here the set no longer changes. Rows
/// are locked in the order of ids, so that two calls for the same tasks do not deadlock.
pub(crate) async fn lock_reachable(
    db: &DatabaseExecutor<'_>,
    from: &[String],
    direction: Direction,
) -> Result<BTreeMap<String, task::Model>, ToolError> {
    let (mut requested, mut locked) = (BTreeSet::new(), BTreeMap::new());
    loop {
        let reached = reachable(db, from, direction).await?;
        let new: Vec<String> = reached.difference(&requested).cloned().collect();
        if new.is_empty() {
            return Ok(locked);
        }
        for row in lock(db, &new).await? {
            locked.insert(row.id.clone(), row);
        }
        requested.extend(new);
    }
}

/// Returns the ids of the tasks that are one step away.
pub(crate) async fn neighbours(
    db: &DatabaseExecutor<'_>,
    from: &[String],
    direction: Direction,
) -> Result<BTreeSet<String>, ToolError> {
    let (from_column, to_column) = match direction {
        Direction::Dependencies => (task_dependency::Column::TaskId, task_dependency::Column::DependsOn),
        Direction::Dependents => (task_dependency::Column::DependsOn, task_dependency::Column::TaskId),
    };
    let mut found = BTreeSet::new();
    for chunk in from.chunks(MAX_IDS_PER_STATEMENT) {
        let query =
            task_dependency::Entity::find().select_only().column(to_column).filter(from_column.is_in(chunk));
        found.extend(query.into_tuple::<String>().all(db).await?);
    }
    Ok(found)
}

async fn load(db: &DatabaseExecutor<'_>, ids: &[String]) -> Result<Vec<task::Model>, ToolError> {
    let mut found = Vec::new();
    for chunk in ids.chunks(MAX_IDS_PER_STATEMENT) {
        let query = task::Entity::find().filter(task::Column::Id.is_in(chunk));
        found.extend(query.order_by_asc(task::Column::Id).all(db).await?);
    }
    Ok(found)
}

/// Returns tasks, locked until the transaction ends, in the order of their ids: whatever locks several does
/// so in this order, so that no two calls wait for each other.
pub(crate) async fn lock(db: &DatabaseExecutor<'_>, ids: &[String]) -> Result<Vec<task::Model>, ToolError> {
    let mut found = Vec::new();
    for chunk in ids.chunks(MAX_IDS_PER_STATEMENT) {
        let query = task::Entity::find().filter(task::Column::Id.is_in(chunk));
        found.extend(query.order_by_asc(task::Column::Id).lock_exclusive().all(db).await?);
    }
    Ok(found)
}
