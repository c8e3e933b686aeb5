//! Stores the reports of nodes and replies with their orders.

use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, DatabaseExecutor, EntityTrait, PaginatorTrait,
    QueryFilter, QuerySelect,
};
use store::{Store, clock, entity::node};
use subjects::{
    InstanceId, Timestamp,
    node::{NodeOrders, NodeState, NodeStatus},
};

use super::NodeBook;
use crate::{ToolError, arguments::check, known_node::away_before};

impl NodeBook {
    /// Stores what a node reports, and returns its orders. Of two processes with one id, the one that started
    /// later is the node: a node that was killed and started again is at work at once.
    pub async fn report(store: &Store, status: &NodeStatus) -> Result<NodeOrders, ToolError> {
        let write = store.write().await?;
        let orders = take(&DatabaseExecutor::from(&*write), status, clock::now()).await?;
        write.commit().await?;
        Ok(orders)
    }
}

async fn take(db: &DatabaseExecutor<'_>, status: &NodeStatus, now: i64) -> Result<NodeOrders, ToolError> {
    let id = status.node.as_str();
    let started_at = clock::micros(status.started_at.at());
    let new = row(status, started_at, now);
    let insert = node::Entity::insert(node::ActiveModel::from(new.clone())).on_conflict_do_nothing();
    let others = count_others(db, status, now).await?;
    if check::was_inserted(&insert.exec_without_returning(db).await?) {
        return Ok(NodeOrders { others, ..NodeOrders::default() });
    }
    let known = node::Entity::find_by_id(id).lock_exclusive().one(db).await?;
    // A row that was written by hand under another id can have this one as its name.
    let known = known.ok_or_else(|| ToolError::Conflict(format!("another node is named {id}")))?;
    let orders = orders(&known, others);
    if is_taken(&known, &status.instance, started_at, now) {
        return Ok(NodeOrders { duplicate: true, ..orders });
    }
    let mut change = node::ActiveModel::from(known);
    change.status = Set(new.status);
    change.seen_at = Set(now);
    change.pool = Set(new.pool);
    change.labels = Set(new.labels);
    change.instance = Set(new.instance);
    change.started_at = Set(new.started_at);
    change.report = Set(new.report);
    change.update(db).await?;
    Ok(orders)
}

/// Returns whether another process is the node: it reported lately, and started later.
fn is_taken(known: &node::Model, instance: &InstanceId, started_at: i64, now: i64) -> bool {
    let is_other = known.instance.as_deref().is_some_and(|known| known != instance.as_str());
    let is_gone = known.seen_at < away_before(now) || known.status == state_name(NodeState::Stopping);
    let is_later =
        (known.started_at, known.instance.as_deref()) > (Some(started_at), Some(instance.as_str()));
    is_other && !is_gone && is_later
}

/// Counts the other nodes of the same pool that take jobs.
async fn count_others(db: &DatabaseExecutor<'_>, status: &NodeStatus, now: i64) -> Result<u32, ToolError> {
    let others = node::Entity::find()
        .filter(node::Column::Pool.eq(status.pool.as_str()))
        .filter(node::Column::Id.ne(status.node.as_str()))
        .filter(node::Column::Status.eq(state_name(NodeState::Ready)))
        .filter(node::Column::Cordoned.eq(false))
        .filter(node::Column::SeenAt.gte(away_before(now)));
    Ok(u32::try_from(others.count(db).await?).unwrap_or(u32::MAX))
}

fn orders(row: &node::Model, others: u32) -> NodeOrders {
    let drain_by = row.drain_by.and_then(|at| Timestamp::new(clock::from_micros(at)).ok());
    NodeOrders { cordoned: row.cordoned, drain_by, duplicate: false, others }
}

fn state_name(state: NodeState) -> &'static str {
    match state {
        NodeState::Ready => "ready",
        NodeState::NotReady => "not_ready",
        NodeState::Cordoned => "cordoned",
        NodeState::Stopping => "stopping",
    }
}

fn row(status: &NodeStatus, started_at: i64, now: i64) -> node::Model {
    node::Model {
        id: status.node.to_string(),
        name: status.node.to_string(),
        status: state_name(status.state).to_owned(),
        capabilities: "{}".to_owned(),
        seen_at: now,
        pool: status.pool.to_string(),
        labels: subjects::encode_json_text(&status.labels),
        instance: Some(status.instance.to_string()),
        started_at: Some(started_at),
        report: Some(subjects::encode_json_text(status)),
        cordoned: false,
        drain_by: None,
    }
}
