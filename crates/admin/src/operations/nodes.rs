//! Nodes: list, read, cordon, drain, remove.

use std::time::Duration;

use api::{Drain, Node, RemovedNode};
use control::{NodeBook, ToolError};
use sea_orm::DatabaseExecutor;
use serde_json::json;
use store::clock;

use super::convert_tool_error;
use crate::{Actor, Admin, Error};

const DEFAULT_DRAIN: Duration = Duration::from_secs(300);
const MAX_DRAIN: Duration = Duration::from_secs(24 * 60 * 60);

fn convert(error: ToolError) -> Error {
    convert_tool_error("node", error)
}

impl Admin {
    /// Lists nodes by id.
    pub(crate) async fn list_nodes(&self, actor: &Actor) -> Result<Vec<Node>, Error> {
        actor.ensure_admin()?;
        NodeBook::list(&DatabaseExecutor::from(self.store.read()), clock::now()).await.map_err(convert)
    }

    pub(crate) async fn get_node(&self, actor: &Actor, id: &str) -> Result<Node, Error> {
        actor.ensure_admin()?;
        NodeBook::get(&DatabaseExecutor::from(self.store.read()), id, clock::now()).await.map_err(convert)
    }

    /// Lets a node take no more jobs. What it runs goes on.
    pub(crate) async fn cordon_node(&self, actor: &Actor, id: &str) -> Result<Node, Error> {
        self.set_cordoned(actor, "admin.node.cordon", id, true, None).await
    }

    /// Lets a node take jobs again.
    pub(crate) async fn uncordon_node(&self, actor: &Actor, id: &str) -> Result<Node, Error> {
        self.set_cordoned(actor, "admin.node.uncordon", id, false, None).await
    }

    /// Lets a node take no more jobs, and hand back what it still runs after a while.
    pub(crate) async fn drain_node(&self, actor: &Actor, id: &str, drain: Drain) -> Result<Node, Error> {
        let after = drain.seconds.map_or(DEFAULT_DRAIN, Duration::from_secs);
        if after > MAX_DRAIN {
            return Err(Error::invalid("seconds", format!("must be 0 to {}", MAX_DRAIN.as_secs())));
        }
        let after = i64::try_from(after.as_micros()).unwrap_or(i64::MAX);
        let by = clock::now().saturating_add(after);
        self.set_cordoned(actor, "admin.node.drain", id, true, Some(by)).await
    }

    async fn set_cordoned(
        &self,
        actor: &Actor,
        what: &'static str,
        id: &str,
        is_cordoned: bool,
        drain_by: Option<i64>,
    ) -> Result<Node, Error> {
        self.require_admin(actor, what).await?;
        let open = self.begin(actor, what, &json!({ "id": id, "drain_by": drain_by })).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let changed = NodeBook::set_cordoned(&db, id, is_cordoned, drain_by, clock::now()).await;
        let node = changed.map_err(convert)?;
        self.commit(open).await?;
        Ok(node)
    }

    /// Removes a node that is away. What waited for it alone waits for other nodes, or ends.
    pub(crate) async fn remove_node(&self, actor: &Actor, id: &str) -> Result<RemovedNode, Error> {
        const WHAT: &str = "admin.node.remove";
        self.require_admin(actor, WHAT).await?;
        let open = self.begin(actor, WHAT, &json!({ "id": id })).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let removed = NodeBook::remove(&db, &self.sandboxes, &self.leases, id, clock::now()).await;
        let removed = removed.map_err(convert)?;
        self.commit(open).await?;
        self.sandboxes.forget_queued(&removed).await;
        Ok(removed)
    }
}
