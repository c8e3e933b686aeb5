//! Reads and cancels jobs, for tools and for administrators.

use contract::sandbox::{Job, JobStatus, JobSummary, ListJobs};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, Condition, DatabaseExecutor, EntityTrait, QueryFilter,
    QueryOrder, QuerySelect, sea_query::SimpleExpr,
};
use store::{
    SendIf,
    entity::{job, node},
};

use super::{Sandboxes, cancel, view};
use crate::{ToolError, known_node::away_before};

/// The jobs in sandboxes.
#[derive(Debug)]
pub struct JobBook<'b> {
    db: &'b DatabaseExecutor<'b>,
    sandboxes: &'b Sandboxes,
    /// Microseconds since 1970.
    now: i64,
}

impl<'b> JobBook<'b> {
    pub fn new(db: &'b DatabaseExecutor<'b>, sandboxes: &'b Sandboxes, now: i64) -> Self {
        Self { db, sandboxes, now }
    }

    pub async fn get(&self, id: &str) -> Result<Job, ToolError> {
        let found = job::Entity::find_by_id(id).one(self.db).await?;
        view::describe(self.db, require(found, id)?, self.now).await
    }

    /// Lists jobs, the newest first.
    pub async fn list(
        &self,
        wanted: &ListJobs,
        within: Option<Condition>,
        offset: u64,
        limit: u64,
    ) -> Result<Vec<JobSummary>, ToolError> {
        let mut query = job::Entity::find().filter(job::Column::Queue.is_not_null());
        if let Some(task) = &wanted.task_id {
            query = query.filter(job::Column::TaskId.eq(task.as_str()));
        }
        if let Some(status) = wanted.status {
            query = query.filter(job::Column::Status.eq(status.as_str()));
        }
        if let Some(node) = &wanted.node_id {
            query = query.filter(job::Column::NodeId.eq(node));
        }
        if let Some(within) = within {
            query = query.filter(within);
        }
        let query = query.order_by_desc(job::Column::CreatedAt).order_by_desc(job::Column::Id);
        let rows = query.offset(offset).limit(limit).all(self.db).await?;
        rows.into_iter().map(view::summarize).collect()
    }

    /// Asks that a job end. It becomes final when its result is in its chain.
    pub async fn cancel(&self, id: &str, by: &str) -> Result<Job, ToolError> {
        let found = job::Entity::find_by_id(id).lock_exclusive().one(self.db).await?;
        let mut row = require(found, id)?;
        // Asked again, the request is sent again: the node that had the job may have handed it back, or may
        // be away by now, and then the job is ended without it.
        let is_away = self.is_node_away(&row).await?;
        if !view::status_of(&row)?.is_final() {
            let only_if = if is_away { SendIf::Unended } else { SendIf::Unclaimed };
            cancel::request(self.db, self.sandboxes, &row, by, only_if, self.now).await?;
            let version = row.version + 1;
            let is_first = row.cancel_requested_at.is_none();
            let mut change = job::ActiveModel::from(row);
            if is_first {
                change.cancel_requested_at = Set(Some(self.now));
                change.cancel_requested_by = Set(Some(by.to_owned()));
            }
            change.version = Set(version);
            change.updated_at = Set(self.now);
            row = change.update(self.db).await?;
        }
        view::describe(self.db, row, self.now).await
    }

    /// Asks that the jobs end which were begun under the leases of a handoff. These have to be revoked, so
    /// that none is begun any more.
    pub async fn cancel_of_handoff(&self, handoff: &str, by: &str) -> Result<(), ToolError> {
        self.cancel_where(job::Column::HandoffId.eq(handoff), by).await
    }

    /// Asks that those of some jobs end that have not ended.
    pub(crate) async fn cancel_where(&self, these: SimpleExpr, by: &str) -> Result<(), ToolError> {
        let unfinished = Condition::all().add(these).add(job::Column::EndedAt.is_null());
        let found = job::Entity::find().select_only().column(job::Column::Id).filter(unfinished);
        let ids: Vec<String> = found.order_by_asc(job::Column::Id).into_tuple().all(self.db).await?;
        for id in ids {
            self.cancel(&id, by).await?;
        }
        Ok(())
    }

    /// Asks again that a job end whose node is away since it was asked: it may never come back, and nobody
    /// else asks once the workflow of the job has ended.
    pub(super) async fn cancel_again(&self, id: &str) -> Result<(), ToolError> {
        let found = job::Entity::find_by_id(id).one(self.db).await?;
        let row = require(found, id)?;
        let by = row.cancel_requested_by.clone().unwrap_or_default();
        if self.is_node_away(&row).await? {
            self.cancel(id, &by).await?;
        }
        Ok(())
    }

    /// Returns whether the node that has the job is away, or was removed. A job that waits has no node.
    async fn is_node_away(&self, row: &job::Model) -> Result<bool, ToolError> {
        let Some(id) = row.node_id.as_deref().filter(|_| row.status == JobStatus::Running.as_str()) else {
            return Ok(false);
        };
        let found = node::Entity::find_by_id(id).one(self.db).await?;
        Ok(found.is_none_or(|node| node.seen_at < away_before(self.now)))
    }
}

/// Returns a job in a sandbox; any other is not found here.
pub(super) fn require(found: Option<job::Model>, id: &str) -> Result<job::Model, ToolError> {
    found.filter(|row| row.queue.is_some()).ok_or_else(|| ToolError::not_found("job", id))
}
