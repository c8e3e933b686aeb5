//! Jobs in sandboxes: list, read, cancel.

use api::{Job, JobFilter, JobLog, JobLogPosition, JobSummary};
use contract::{
    artifact::Encoding,
    sandbox::{ListJobs, ReadLog},
};
use control::{JobBook, ToolError};
use sea_orm::DatabaseExecutor;
use serde_json::json;
use store::clock;

use super::convert_tool_error;
use crate::{Actor, Admin, Error, check};

const DEFAULT_LIMIT: u64 = 50;
const MAX_LIMIT: u64 = 200;

fn convert(error: ToolError) -> Error {
    convert_tool_error("job", error)
}

impl Admin {
    /// Lists jobs, the newest first.
    pub(crate) async fn list_jobs(
        &self,
        actor: &Actor,
        filter: &JobFilter,
    ) -> Result<Vec<JobSummary>, Error> {
        actor.ensure_admin()?;
        let wanted = ListJobs {
            task_id: check::scope_id("task_id", filter.task_id.as_deref())?,
            status: filter.status,
            node_id: filter.node_id.clone(),
            ..ListJobs::default()
        };
        let db = DatabaseExecutor::from(self.store.read());
        let limit = filter.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
        let offset = u64::from(filter.offset.unwrap_or_default());
        let book = JobBook::new(&db, &self.sandboxes, clock::now());
        book.list(&wanted, None, offset, limit).await.map_err(convert)
    }

    pub(crate) async fn get_job(&self, actor: &Actor, id: &str) -> Result<Job, Error> {
        actor.ensure_admin()?;
        let db = DatabaseExecutor::from(self.store.read());
        JobBook::new(&db, &self.sandboxes, clock::now()).get(id).await.map_err(convert)
    }

    /// Returns a piece of what a job wrote, in base64.
    pub(crate) async fn read_job_log(
        &self,
        actor: &Actor,
        id: &str,
        position: &JobLogPosition,
    ) -> Result<JobLog, Error> {
        // The job first: what it wrote before its end is stored by then.
        let job = self.get_job(actor, id).await?;
        let wanted = ReadLog {
            job_id: job.job_id.parse().map_err(|_| Error::not_found("job", id))?,
            task_id: None,
            after: position.after.clone(),
            limit: position.limit,
            encoding: Encoding::Base64,
        };
        let read = self.sandboxes.read_log(&wanted, job.status.is_final()).await;
        read.map_err(|error| convert_tool_error("after", error))
    }

    /// Asks that a job end.
    pub(crate) async fn cancel_job(&self, actor: &Actor, id: &str) -> Result<Job, Error> {
        const WHAT: &str = "admin.job.cancel";
        self.require_admin(actor, WHAT).await?;
        let open = self.begin(actor, WHAT, &json!({ "id": id })).await?;
        let db = DatabaseExecutor::Transaction(&open.write);
        let book = JobBook::new(&db, &self.sandboxes, clock::now());
        let job = book.cancel(id, &actor.author()).await.map_err(convert)?;
        self.commit(open).await?;
        Ok(job)
    }
}
