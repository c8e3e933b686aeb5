//! Node operations for administrators: cordon, drain, remove.

use contract::node::{Condition, Node, Removed};
use sea_orm::{ActiveModelTrait, ActiveValue::Set, DatabaseExecutor, EntityTrait, QueryOrder, QuerySelect};
use store::entity::node;
use subjects::NodeId;

use crate::{LeaseIssuer, Sandboxes, ToolError, known_node::KnownNode, tools::sandbox};

/// Reads and changes nodes, for administrators.
#[derive(Debug)]
pub struct NodeBook;

impl NodeBook {
    /// Lists nodes by id.
    pub async fn list(db: &DatabaseExecutor<'_>, now: i64) -> Result<Vec<Node>, ToolError> {
        let mut nodes = Vec::new();
        for row in node::Entity::find().order_by_asc(node::Column::Id).all(db).await? {
            nodes.push(KnownNode::new(row).describe(db, now).await?);
        }
        Ok(nodes)
    }

    pub async fn get(db: &DatabaseExecutor<'_>, id: &str, now: i64) -> Result<Node, ToolError> {
        KnownNode::new(find(db, id).await?).describe(db, now).await
    }

    /// Lets a node take no more jobs, or take jobs again. With `drain_by` it hands back what it still runs
    /// then, in microseconds since 1970. The node learns of it with its next report.
    pub async fn set_cordoned(
        db: &DatabaseExecutor<'_>,
        id: &str,
        is_cordoned: bool,
        drain_by: Option<i64>,
        now: i64,
    ) -> Result<Node, ToolError> {
        let mut change = node::ActiveModel::from(find(db, id).await?);
        change.cordoned = Set(is_cordoned);
        change.drain_by = Set(drain_by);
        KnownNode::new(change.update(db).await?).describe(db, now).await
    }

    /// Removes a node that is away or has stopped. What waited for it alone waits for others then, or ends.
    pub async fn remove(
        db: &DatabaseExecutor<'_>,
        sandboxes: &Sandboxes,
        leases: &LeaseIssuer,
        id: &str,
        now: i64,
    ) -> Result<Removed, ToolError> {
        let row = find(db, id).await?;
        let pool = row.pool.clone();
        check_gone(&KnownNode::new(row), now)?;
        node::Entity::delete_by_id(id).exec(db).await?;
        let Ok(node_id) = id.parse::<NodeId>() else {
            return Ok(Removed { node_id: id.to_owned(), ..Removed::default() });
        };
        sandbox::reroute(db, sandboxes, leases, &node_id, &pool, now).await
    }
}

/// Refuses the removal of a node that would report again, or end its jobs after they were moved.
fn check_gone(node: &KnownNode, now: i64) -> Result<(), ToolError> {
    let id = &node.row.id;
    let running = node.report.as_ref().map_or(0, |report| report.running.len());
    match node.condition(now) {
        Condition::Away => Ok(()),
        Condition::Stopping if running == 0 => Ok(()),
        Condition::Stopping => Err(ToolError::Conflict(format!(
            "node {id} is stopping and still runs {running} {}: wait until it has ended them, or drain it to \
             have them handed back at once (cynodectl nodes drain {id} --within 0s)",
            if running == 1 { "job" } else { "jobs" }
        ))),
        state => Err(ToolError::Conflict(format!(
            "node {id} is present ({}) and would report again; stop its program first",
            state.as_str()
        ))),
    }
}

async fn find(db: &DatabaseExecutor<'_>, id: &str) -> Result<node::Model, ToolError> {
    let found = node::Entity::find_by_id(id).lock_exclusive().one(db).await?;
    found.ok_or_else(|| ToolError::not_found("node", id))
}
