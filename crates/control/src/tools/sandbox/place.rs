//! Placement of jobs: the queue a job waits in, why it waits, and where it goes when its node is removed.

use std::collections::BTreeMap;

use contract::node::{Condition, Removed};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, DatabaseExecutor, EntityTrait, ExprTrait, QueryFilter,
    QueryOrder, QuerySelect, sea_query::Expr,
};
use serde::{Deserialize, Serialize};
use store::{
    SendIf,
    entity::{job, node, round_robin},
};
use subjects::{
    NodeId, PoolName, Subject,
    job::{Class, End, Engine},
};

use super::{Sandboxes, cancel, run, view};
use crate::{
    LeaseIssuer, ToolError,
    known_node::{KnownNode, present},
};

/// Which nodes may run a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Placement {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) pool: Option<PoolName>,
    /// Only this node may run it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) node_id: Option<NodeId>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) labels: BTreeMap<String, String>,
    pub(super) engine: Engine,
    /// The digest of its image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) digest: Option<String>,
}

impl Placement {
    /// Returns whether a node can run the job when it is ready.
    fn fits(&self, node: &KnownNode) -> bool {
        self.pool.as_ref().is_none_or(|pool| pool.as_str() == node.row.pool)
            && node.has_labels(&self.labels)
            && node.offers(self.engine)
            && self.digest.as_ref().is_none_or(|digest| node.has_image(digest))
    }

    /// Returns what a node needs to run the job, as people say it.
    fn describe(&self) -> String {
        let mut needs = Vec::new();
        if let Some(pool) = &self.pool {
            needs.push(format!("of the pool `{pool}`"));
        } else if self.labels.is_empty() {
            needs.push(format!("of the pool `{}`", PoolName::DEFAULT));
        }
        if !self.labels.is_empty() {
            let labels: Vec<String> =
                self.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            needs.push(format!("with the labels {}", labels.join(", ")));
        }
        needs.push(format!("with the engine `{}`", self.engine));
        if self.digest.is_some() {
            needs.push("with the image".to_owned());
        }
        needs.join(" ")
    }

    fn class(&self, pool: PoolName) -> Result<Subject, ToolError> {
        let class = match &self.digest {
            Some(digest) => Class::with_image(pool, self.engine, digest),
            None => Some(Class::new(pool, self.engine)),
        };
        let class = class.ok_or_else(|| ToolError::Invalid("`image` has an invalid digest".to_owned()))?;
        Ok(Subject::ClassJobs(class))
    }

    /// Returns what all nodes among which one is chosen in turn have in common.
    fn round_robin_key(&self) -> String {
        subjects::encode_json_text(&Self { node_id: None, ..self.clone() })
    }
}

/// Chooses the queue of a new job.
pub(super) async fn choose(
    db: &DatabaseExecutor<'_>,
    placement: &Placement,
    now: i64,
) -> Result<Subject, ToolError> {
    if let Some(id) = &placement.node_id {
        let found = node::Entity::find_by_id(id.as_str()).one(db).await?;
        found.ok_or_else(|| ToolError::not_found("node", id.as_str()))?;
        return Ok(Subject::NodeJobs(id.clone()));
    }
    if placement.labels.is_empty() {
        return placement.class(placement.pool.clone().unwrap_or_default());
    }
    let chosen = choose_in_turn(db, placement, now).await?;
    chosen.map(Subject::NodeJobs).ok_or_else(|| {
        ToolError::Conflict(format!(
            "no node {} is present and ready, so nothing was queued; node.list shows the nodes",
            placement.describe()
        ))
    })
}

/// Chooses one of the nodes that can run a job, in turn (G10). The counter is locked until the transaction
/// ends, so concurrent calls choose one after the other.
async fn choose_in_turn(
    db: &DatabaseExecutor<'_>,
    placement: &Placement,
    now: i64,
) -> Result<Option<NodeId>, ToolError> {
    let can_run = |node: &KnownNode| node.condition(now) == Condition::Ready && placement.fits(node);
    let nodes = present(db, now).await?.into_iter().filter(can_run);
    let ids: Vec<NodeId> = nodes.filter_map(|node| node.row.id.parse().ok()).collect();
    if ids.is_empty() {
        return Ok(None);
    }
    let key = placement.round_robin_key();
    let first = round_robin::ActiveModel { key: Set(key.clone()), next: Set(0) };
    let insert = round_robin::Entity::insert(first).on_conflict_do_nothing();
    insert.exec_without_returning(db).await?;
    round_robin::Entity::update_many()
        .col_expr(round_robin::Column::Next, Expr::col(round_robin::Column::Next).add(1))
        .filter(round_robin::Column::Key.eq(&key))
        .exec(db)
        .await?;
    let counter = round_robin::Entity::find_by_id(&key).one(db).await?;
    let turn = counter.map_or(0, |counter| counter.next.saturating_sub(1));
    let index = usize::try_from(turn).unwrap_or_default() % ids.len();
    Ok(ids.into_iter().nth(index))
}

/// Returns why a queued job waits, or what is uncertain about a running one.
pub(super) async fn why_waiting(
    db: &DatabaseExecutor<'_>,
    row: &job::Model,
    now: i64,
) -> Result<Option<String>, ToolError> {
    let Some(placement) = view::placement_of(row) else { return Ok(None) };
    if let Some(id) = row.node_id.as_deref().filter(|_| row.status == "running") {
        return why_uncertain(db, id, now).await;
    }
    if row.status != "queued" {
        return Ok(None);
    }
    if let Some(Ok(Subject::NodeJobs(id))) = row.queue.as_deref().map(str::parse) {
        return why_node_waits(db, &placement, &id, now).await;
    }
    let of_pool = Placement { pool: Some(placement.pool.clone().unwrap_or_default()), ..placement.clone() };
    let nodes: Vec<KnownNode> =
        present(db, now).await?.into_iter().filter(|node| of_pool.fits(node)).collect();
    if nodes.is_empty() {
        return Ok(Some(format!("no node {} is present; the job waits for one", placement.describe())));
    }
    let ready: Vec<&KnownNode> =
        nodes.iter().filter(|node| node.condition(now) == Condition::Ready).collect();
    if ready.is_empty() {
        let states: Vec<String> =
            nodes.iter().map(|node| format!("{} is {}", node.row.id, node.condition(now).as_str())).collect();
        return Ok(Some(format!("no node {} takes jobs: {}", placement.describe(), states.join(", "))));
    }
    let is_busy = ready.iter().all(|node| node.free_slots() == 0);
    Ok(is_busy.then(|| "all slots of the nodes that can run it are in use; the job waits for one".to_owned()))
}

async fn why_uncertain(db: &DatabaseExecutor<'_>, id: &str, now: i64) -> Result<Option<String>, ToolError> {
    let node = node::Entity::find_by_id(id).one(db).await?.map(KnownNode::new);
    let is_away = node.is_none_or(|node| node.condition(now) == Condition::Away);
    Ok(is_away.then(|| {
        format!("node {id}, which has the job, has stopped reporting; if it is lost, the next node decides")
    }))
}

async fn why_node_waits(
    db: &DatabaseExecutor<'_>,
    placement: &Placement,
    id: &NodeId,
    now: i64,
) -> Result<Option<String>, ToolError> {
    let Some(row) = node::Entity::find_by_id(id.as_str()).one(db).await? else {
        return Ok(Some(format!("node {id}, for which the job waits, was removed")));
    };
    let node = KnownNode::new(row);
    let why = match node.condition(now) {
        Condition::Away => "is away; the job waits until it is back".to_owned(),
        Condition::Cordoned => "is cordoned; the job waits until it is uncordoned".to_owned(),
        Condition::Stopping => "is stopping; the job waits until it is back".to_owned(),
        Condition::NotReady => {
            let reasons = node.report.map(|report| report.reasons.join("; ")).unwrap_or_default();
            format!("takes no jobs now: {reasons}")
        }
        Condition::Ready if !node.offers(placement.engine) => {
            format!("does not offer the engine `{}`; the job waits until it does", placement.engine)
        }
        Condition::Ready if node.free_slots() == 0 => "has no free slot; the job waits for one".to_owned(),
        Condition::Ready => return Ok(None),
    };
    Ok(Some(format!("node {id} {why}")))
}

/// Moves the jobs that wait for a node which was removed: to another node with the same labels, else to the
/// queue of the pool. A job that cannot be moved ends: one that named the node, and one whose lease was
/// revoked.
pub(crate) async fn reroute(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    leases: &LeaseIssuer,
    removed: &NodeId,
    pool: &str,
    now: i64,
) -> Result<Removed, ToolError> {
    let queue = Subject::NodeJobs(removed.clone()).to_string();
    let waiting = job::Entity::find()
        .filter(job::Column::Queue.eq(queue))
        .filter(job::Column::EndedAt.is_null())
        .order_by_asc(job::Column::Id)
        .lock_exclusive()
        .all(db)
        .await?;
    let mut outcome = Removed { node_id: removed.to_string(), ..Removed::default() };
    for row in waiting {
        let id = row.id.clone();
        match move_elsewhere(db, sandboxes, leases, &row, pool, now).await? {
            Ok(()) => outcome.moved.push(id),
            Err(why) => {
                let end = End::NodeLost { why: Some(format!("node {removed} was removed, and {why}")) };
                cancel::end(db, sandboxes, &row, end, SendIf::Unended).await?;
                outcome.lost.push(id);
            }
        }
    }
    Ok(outcome)
}

/// Queues a job of a removed node elsewhere. Returns why, if no other node may run it.
async fn move_elsewhere(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    leases: &LeaseIssuer,
    row: &job::Model,
    pool: &str,
    now: i64,
) -> Result<Result<(), &'static str>, ToolError> {
    let Some(placement) = view::placement_of(row) else { return Ok(Err("where the job may run is unknown")) };
    if placement.node_id.is_some() {
        return Ok(Err("the job named it"));
    }
    let queue = match choose_in_turn(db, &placement, now).await? {
        Some(node) => Subject::NodeJobs(node),
        None => placement.class(pool.parse().unwrap_or_default())?,
    };
    let version = row.version + 1;
    if !run::send_again(db, sandboxes, leases, row, &queue, version).await? {
        return Ok(Err("the job's lease was revoked, without which no other node can run it"));
    }
    let mut change = job::ActiveModel::from(row.clone());
    change.queue = Set(Some(queue.to_string()));
    change.version = Set(version);
    change.updated_at = Set(now);
    change.update(db).await?;
    Ok(Ok(()))
}
