//! A node as it last reported, and whether it takes jobs now.

use std::collections::BTreeMap;

use contract::node::{Condition, Node};
use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, PaginatorTrait, QueryFilter, QueryOrder};
use store::{
    clock,
    entity::{job, node},
};
use subjects::{
    NodeId, Subject,
    job::Engine,
    node::{AWAY_SECONDS, NodeState, NodeStatus},
};

use crate::ToolError;

/// A node whose last report is older counts as away. In microseconds since 1970.
pub(crate) fn away_before(now: i64) -> i64 {
    now.saturating_sub(i64::try_from(AWAY_SECONDS * 1_000_000).unwrap_or(i64::MAX))
}

/// A row with its last report.
#[derive(Clone, Debug)]
pub(crate) struct KnownNode {
    pub(crate) row: node::Model,
    pub(crate) report: Option<NodeStatus>,
    pub(crate) labels: BTreeMap<String, String>,
}

/// Returns the nodes that have reported, by id.
pub(crate) async fn present(db: &DatabaseExecutor<'_>, now: i64) -> Result<Vec<KnownNode>, ToolError> {
    let query = node::Entity::find().filter(node::Column::SeenAt.gte(away_before(now)));
    let rows = query.order_by_asc(node::Column::Id).all(db).await?;
    Ok(rows.into_iter().map(KnownNode::new).collect())
}

impl KnownNode {
    pub(crate) fn new(row: node::Model) -> Self {
        let report = row.report.as_deref().and_then(|report| serde_json::from_str(report).ok());
        let labels = serde_json::from_str(&row.labels).unwrap_or_default();
        Self { row, report, labels }
    }

    pub(crate) fn condition(&self, now: i64) -> Condition {
        let state = self.report.as_ref().map_or(NodeState::NotReady, |report| report.state);
        match state {
            _ if self.row.seen_at < away_before(now) => Condition::Away,
            NodeState::Stopping => Condition::Stopping,
            _ if self.row.cordoned => Condition::Cordoned,
            NodeState::Ready => Condition::Ready,
            NodeState::NotReady => Condition::NotReady,
            NodeState::Cordoned => Condition::Cordoned,
        }
    }

    pub(crate) fn has_labels(&self, wanted: &BTreeMap<String, String>) -> bool {
        wanted.iter().all(|(name, value)| self.labels.get(name) == Some(value))
    }

    pub(crate) fn offers(&self, engine: Engine) -> bool {
        let engines = self.report.iter().flat_map(|report| &report.engines);
        engines.into_iter().any(|status| status.engine == engine && status.offered)
    }

    pub(crate) fn has_image(&self, digest: &str) -> bool {
        self.report.as_ref().is_some_and(|report| report.images.iter().any(|image| image.ends_with(digest)))
    }

    /// Returns how many more jobs the node can run.
    pub(crate) fn free_slots(&self) -> usize {
        let report = self.report.as_ref();
        report.map_or(0, |report| {
            usize::try_from(report.slots).unwrap_or(usize::MAX).saturating_sub(report.running.len())
        })
    }

    pub(crate) async fn describe(self, db: &DatabaseExecutor<'_>, now: i64) -> Result<Node, ToolError> {
        let state = self.condition(now);
        let waiting = match self.row.id.parse::<NodeId>() {
            Ok(id) => waiting_for(db, &id).await?,
            Err(_) => 0,
        };
        let Self { row, report, labels } = self;
        let started_at = row.started_at.map(clock::text);
        let (reasons, engines, images, slots, running, version): (_, _, _, _, Vec<String>, _) = match report {
            Some(report) => (
                report.reasons,
                report.engines,
                report.images,
                report.slots,
                report.running.iter().map(ToString::to_string).collect(),
                Some(report.version),
            ),
            None => Default::default(),
        };
        Ok(Node {
            node_id: row.id,
            state,
            reasons,
            pool: row.pool,
            labels,
            engines,
            images,
            slots,
            busy: running.len(),
            running,
            waiting,
            cordoned: row.cordoned,
            drain_by: row.drain_by.map(clock::text),
            version,
            started_at,
            seen_at: clock::text(row.seen_at),
        })
    }
}

/// Returns how many jobs wait for one node alone.
async fn waiting_for(db: &DatabaseExecutor<'_>, node: &NodeId) -> Result<u64, ToolError> {
    let queue = Subject::NodeJobs(node.clone()).to_string();
    let waiting = job::Entity::find()
        .filter(job::Column::Queue.eq(queue))
        .filter(job::Column::Status.eq("queued"))
        .count(db)
        .await?;
    Ok(waiting)
}
