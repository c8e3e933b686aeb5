//! Tasks with their neighbours, locked together; and how they are cancelled together.

use std::collections::BTreeSet;

use contract::task::Status;
use policy::Bounds;
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, DatabaseExecutor, EntityTrait, ExprTrait, QueryFilter,
    sea_query::Expr,
};
use store::entity::task;

use super::{
    FINAL,
    graph::{self, Direction, MAX_IDS_PER_STATEMENT},
};
use crate::ToolError;

/// A task and others that belong to it, as they are stored, locked until the transaction ends.
pub(crate) struct Locked {
    pub(crate) task: task::Model,
    pub(crate) others: Vec<task::Model>,
}

/// Locks a task and whatever depends on it, directly or not.
pub(crate) async fn lock_with_all_dependents(
    db: &DatabaseExecutor<'_>,
    id: &str,
) -> Result<Locked, ToolError> {
    let mut locked = graph::lock_reachable(db, &[id.to_owned()], Direction::Dependents).await?;
    let task = locked.remove(id).ok_or_else(|| ToolError::not_found("task", id))?;
    Ok(Locked { task, others: locked.into_values().collect() })
}

/// Locks a task and those that are one step away. Adding a dependency locks both of its tasks, so they do not
/// change any more.
pub(crate) async fn lock_with_neighbours(
    db: &DatabaseExecutor<'_>,
    id: &str,
    direction: Direction,
) -> Result<Locked, ToolError> {
    let own = [id.to_owned()];
    let mut known: Option<BTreeSet<String>> = None;
    loop {
        let mut wanted = graph::neighbours(db, &own, direction).await?;
        wanted.insert(id.to_owned());
        let is_known = known.as_ref() == Some(&wanted);
        let ids: Vec<String> = wanted.iter().cloned().collect();
        let rows = graph::lock(db, &ids).await?;
        if is_known {
            let (task, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.id == id);
            let task = task.into_iter().next().ok_or_else(|| ToolError::not_found("task", id))?;
            return Ok(Locked { task, others });
        }
        known = Some(wanted);
    }
}

/// Sets the status of a locked task.
pub(crate) async fn set_status(
    db: &DatabaseExecutor<'_>,
    task: task::Model,
    status: Status,
    now: i64,
) -> Result<task::Model, ToolError> {
    if task.status == status.as_str() {
        return Ok(task);
    }
    let version = task.version + 1;
    let mut change = task::ActiveModel::from(task);
    change.status = Set(status.as_str().to_owned());
    change.version = Set(version);
    change.updated_at = Set(now);
    Ok(change.update(db).await?)
}

/// Gives a locked task that belongs to no user an owner.
pub(crate) async fn give_owner(
    db: &DatabaseExecutor<'_>,
    task: &task::Model,
    user: &str,
    now: i64,
) -> Result<(), ToolError> {
    let mut change = task::ActiveModel::from(task.clone());
    change.user_id = Set(Some(user.to_owned()));
    change.version = Set(task.version + 1);
    change.updated_at = Set(now);
    change.update(db).await?;
    Ok(())
}

/// Cancels the tasks whose status is not final, and returns them as they are afterwards. Fails if one of them
/// belongs to a user for whom the caller does not act.
pub(crate) async fn cancel(
    db: &DatabaseExecutor<'_>,
    tasks: Vec<task::Model>,
    within: Option<&Bounds>,
    now: i64,
) -> Result<Vec<task::Model>, ToolError> {
    let canceled = Status::Canceled.as_str();
    let is_open = |row: &task::Model| FINAL.iter().all(|status| status.as_str() != row.status);
    let mut open: Vec<task::Model> = tasks.into_iter().filter(is_open).collect();
    let is_within = |row: &task::Model| within.is_none_or(|it| it.includes_owner(row.user_id.as_deref()));
    let others = open.iter().filter(|row| !is_within(row)).count();
    if others > 0 {
        return Err(ToolError::Conflict(format!(
            "tasks of other users depend on this one and would be cancelled with it ({others}); only an \
             administrator can cancel it"
        )));
    }
    for chunk in open.chunks(MAX_IDS_PER_STATEMENT) {
        task::Entity::update_many()
            .col_expr(task::Column::Status, Expr::value(canceled))
            .col_expr(task::Column::Version, Expr::col(task::Column::Version).add(1))
            .col_expr(task::Column::UpdatedAt, Expr::value(now))
            .filter(task::Column::Id.is_in(chunk.iter().map(|row| row.id.as_str())))
            .exec(db)
            .await?;
    }
    for row in &mut open {
        row.status = canceled.to_owned();
        row.version += 1;
    }
    open.sort_by(|one, other| (one.position, &one.name).cmp(&(other.position, &other.name)));
    Ok(open)
}
