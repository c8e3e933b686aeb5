//! Applies the messages that nodes append to the chains of jobs to the rows of the jobs.
//!
//! A message is applied once and in order, however often and in whatever order gateways receive it: the row
//! knows the sequence of the newest message that it reflects.

use contract::sandbox::JobStatus;
use data_encoding::HEXLOWER;
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QuerySelect,
};
use sha2::{Digest, Sha256};
use store::{
    Store, clock,
    entity::{artifact, job, job_file},
};
use subjects::{
    JobId, NodeId, Subject,
    job::{End, Entry, JobResult, Record, StoredFile},
};
use uuid::Uuid;

use super::{Sandboxes, stage, view};
use crate::{LeaseIssuer, ToolError, arguments::path, tools::artifacts};

/// The author of what follows from the end of a job.
const GATEWAY: &str = "gateway";

/// Why a message of a chain is not applied.
#[derive(Debug, thiserror::Error)]
pub enum NotApplied {
    /// It never will be.
    #[error("the message cannot be read: {0}")]
    Unreadable(String),
    #[error(transparent)]
    Failed(#[from] ToolError),
}

impl From<sea_orm::DbErr> for NotApplied {
    fn from(error: sea_orm::DbErr) -> Self {
        Self::Failed(error.into())
    }
}

impl Sandboxes {
    /// Applies one message of a chain. Returns false if the row reflects it, or a newer one, already.
    pub async fn apply(
        &self,
        store: &Store,
        leases: &LeaseIssuer,
        subject: &str,
        sequence: u64,
        body: &[u8],
    ) -> Result<bool, NotApplied> {
        let unreadable = |error: &dyn std::error::Error| NotApplied::Unreadable(error.to_string());
        let sequence = i64::try_from(sequence).unwrap_or(i64::MAX);
        let is_changed = match subject.parse::<Subject>().map_err(|error| unreadable(&error))? {
            Subject::JobJournal(job, node) => {
                let entry = Entry::decode(body).map_err(|error| unreadable(&error))?;
                apply_entry(store, job, &node, sequence, entry).await?
            }
            Subject::JobResult(job, node) => {
                let result = JobResult::decode(body).map_err(|error| unreadable(&error))?;
                if result.job_id != job {
                    return Err(NotApplied::Unreadable("it is about another job".to_owned()));
                }
                let tail = self.read_tail(&node, &result).await?;
                apply_result(store, leases, &node, sequence, result, tail).await?
            }
            _ => false,
        };
        if is_changed {
            self.changed.notify_waiters();
        }
        Ok(is_changed)
    }
}

/// Locks the row of a job. `None` if it reflects this message already, or there is none. A result counts
/// whatever its sequence is: a stream that was made anew begins with 1 again.
async fn lock(
    db: &DatabaseExecutor<'_>,
    job: JobId,
    after: Option<i64>,
) -> Result<Option<job::Model>, ToolError> {
    let row = job::Entity::find_by_id(job.to_string()).lock_exclusive().one(db).await?;
    let is_new = |row: &job::Model| {
        row.queue.is_some()
            && after.is_none_or(|sequence| row.chain_sequence < sequence)
            && view::status_of(row).is_ok_and(|status| !status.is_final())
    };
    Ok(row.filter(is_new))
}

async fn apply_entry(
    store: &Store,
    job: JobId,
    node: &NodeId,
    sequence: i64,
    entry: Entry,
) -> Result<bool, NotApplied> {
    // Says nothing new.
    if entry.record == Record::Still {
        return Ok(false);
    }
    let write = store.write().await?;
    let db = DatabaseExecutor::from(&*write);
    let Some(row) = lock(&db, job, Some(sequence)).await? else {
        write.roll_back().await?;
        return Ok(false);
    };
    let version = row.version + 1;
    let mut change = job::ActiveModel::from(row);
    match entry.record {
        Record::Claimed(claimed) => {
            change.status = Set(JobStatus::Running.as_str().to_owned());
            // The subject is what NATS lets a node write to.
            change.node_id = Set(Some(node.to_string()));
            change.attempt = Set(i64::from(claimed.attempt));
            change.engine = Set(Some(claimed.engine.as_str().to_owned()));
            change.started_at = Set(None);
        }
        Record::Started => {
            change.status = Set(JobStatus::Running.as_str().to_owned());
            change.node_id = Set(Some(node.to_string()));
            change.started_at = Set(Some(clock::micros(entry.at.at())));
        }
        Record::Released { .. } => {
            change.status = Set(JobStatus::Queued.as_str().to_owned());
            change.node_id = Set(None);
            change.started_at = Set(None);
        }
        Record::Still => {}
    }
    change.chain_sequence = Set(sequence);
    change.version = Set(version);
    change.updated_at = Set(clock::now());
    change.update(&db).await?;
    drop(db);
    write.commit().await?;
    Ok(true)
}

async fn apply_result(
    store: &Store,
    leases: &LeaseIssuer,
    node: &NodeId,
    sequence: i64,
    mut result: JobResult,
    tail: Option<String>,
) -> Result<bool, NotApplied> {
    let write = store.write().await?;
    let db = DatabaseExecutor::from(&*write);
    let Some(row) = lock(&db, result.job_id, None).await? else {
        write.roll_back().await?;
        return Ok(false);
    };
    let now = clock::now();
    let mut problems = std::mem::take(&mut result.problems);
    let files = std::mem::take(&mut result.files);
    for file in files {
        match keep(&db, &row, &result, &file, now).await {
            Ok(()) => result.files.push(file),
            Err(ToolError::Store(error)) => return Err(error.into()),
            Err(why) => problems.push(format!("{} is not kept: {why}", file.path)),
        }
    }
    job_file::Entity::delete_many().filter(job_file::Column::JobId.eq(&row.id)).exec(&db).await?;
    if let Some(lease) = &row.lease_id {
        leases.revoke(&db, lease, now, GATEWAY).await?;
    }
    let status = match &result.end {
        end if end.is_success() => JobStatus::Completed,
        End::Cancelled => JobStatus::Canceled,
        _ => JobStatus::Failed,
    };
    let version = row.version + 1;
    let mut change = job::ActiveModel::from(row);
    change.status = Set(status.as_str().to_owned());
    if node.as_str() != NodeId::GATEWAY {
        change.node_id = Set(Some(node.to_string()));
        change.attempt = Set(i64::from(result.attempt));
    }
    if let Some(engine) = result.engine {
        change.engine = Set(Some(engine.as_str().to_owned()));
    }
    if let Some(at) = &result.started_at {
        change.started_at = Set(Some(clock::micros(at.at())));
    }
    change.ended_at = Set(Some(clock::micros(result.ended_at.at())));
    change.end_kind = Set(Some(result.end.kind().as_str().to_owned()));
    change.log_tail = Set(tail);
    change.problems = Set((!problems.is_empty()).then(|| subjects::encode_json_text(&problems)));
    change.result = Set(Some(subjects::encode_json_text(&result)));
    change.chain_sequence = Set(sequence);
    change.version = Set(version);
    change.updated_at = Set(now);
    change.update(&db).await?;
    drop(db);
    write.commit().await?;
    Ok(true)
}

/// Makes a stored file an artifact of the job's task.
async fn keep(
    db: &DatabaseExecutor<'_>,
    row: &job::Model,
    result: &JobResult,
    file: &StoredFile,
    now: i64,
) -> Result<(), ToolError> {
    path::check(&file.path)?;
    let content = stage::take(db, &row.id, i64::from(result.attempt), &file.path).await?;
    let content = content.ok_or_else(|| ToolError::Invalid("it was not stored".to_owned()))?;
    let sha256 = HEXLOWER.encode(&Sha256::digest(&content));
    if sha256 != file.sha256 {
        return Err(ToolError::Invalid("the stored file has another digest".to_owned()));
    }
    let is_text = std::str::from_utf8(&content).is_ok();
    let new = artifact::Model {
        id: Uuid::now_v7().to_string(),
        task_id: row.task_id.clone(),
        run_id: row.run_id.clone(),
        path: file.path.clone(),
        media_type: if is_text { "text/plain; charset=utf-8" } else { "application/octet-stream" }.to_owned(),
        size: i64::try_from(content.len()).unwrap_or(i64::MAX),
        sha256,
        content,
        version: 1,
        created_at: now,
        updated_at: now,
    };
    artifacts::keep(db, now, new).await
}
