//! `db.job.*`: the jobs that nodes run for tasks.

use contract::tool;
use schemars::JsonSchema;
use sea_orm::{ActiveModelTrait, ActiveValue::Set, EntityTrait, QuerySelect};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subjects::ScopeId;
use uuid::Uuid;

use crate::{BuiltInTool, Context, Does, Entry, ToolError, arguments::check, tools::tasks};
use policy::{Scope, ScopedId};

use store::{clock, entity::job};

pub(crate) const MAX_KIND_BYTES: usize = 64;
pub(crate) const MAX_PAYLOAD_BYTES: usize = 8 * 1024;
/// The kind of jobs that nodes run in sandboxes.
pub(crate) const SANDBOX: &str = "sandbox";
const MAX_RESULT_BYTES: usize = 16 * 1024;

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<Create>(), Entry::of::<Get>(), Entry::of::<UpdateStatus>()]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    Queued,
    Running,
    Completed,
    Failed,
    Canceled,
}

impl Status {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }

    pub(crate) fn is_final(self) -> bool {
        self.next().is_empty()
    }

    /// Returns the statuses that may follow.
    fn next(self) -> &'static [Self] {
        match self {
            Self::Queued => &[Self::Running, Self::Failed, Self::Canceled],
            // Back to queued: the node that ran the job is gone.
            Self::Running => &[Self::Queued, Self::Completed, Self::Failed, Self::Canceled],
            Self::Completed | Self::Failed | Self::Canceled => &[],
        }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct Job {
    job_id: String,
    task_id: String,
    kind: String,
    status: Status,
    payload: Value,
    result: Option<Value>,
    node_id: Option<String>,
    run_id: Option<String>,
    version: i64,
    created_at: String,
    updated_at: String,
}

pub(crate) fn status_of(row: &job::Model) -> Result<Status, ToolError> {
    check::parse_stored("status of a job", &row.status)
}

impl TryFrom<job::Model> for Job {
    type Error = ToolError;

    fn try_from(row: job::Model) -> Result<Self, ToolError> {
        Ok(Self {
            status: status_of(&row)?,
            job_id: row.id,
            task_id: row.task_id,
            kind: row.kind,
            payload: serde_json::from_str(&row.payload).unwrap_or_default(),
            result: row.result.and_then(|result| serde_json::from_str(&result).ok()),
            node_id: row.node_id,
            run_id: row.run_id,
            version: row.version,
            created_at: clock::text(row.created_at),
            updated_at: clock::text(row.updated_at),
        })
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Create {
    task_id: ScopeId,
    /// What has to be done, in a word: `build`, `test`, `shell`.
    #[schemars(length(max = MAX_KIND_BYTES))]
    kind: String,
    /// What the node that runs it has to know.
    #[serde(default)]
    payload: Map<String, Value>,
    /// The node that shall run it, if that is decided.
    node_id: Option<ScopeId>,
    run_id: Option<ScopeId>,
}

tool!("db.job.create": Create => Job);

impl BuiltInTool for Create {
    const TITLE: &'static str = "Create a job";
    const DESCRIPTION: &'static str =
        "Creates a job of a task, queued, and gives it back with its job_id. The task must not be finished.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Job, ToolError> {
        check_kind(&input.kind)?;
        let payload = check::to_json("payload", &Value::Object(input.payload), MAX_PAYLOAD_BYTES)?;
        let task = tasks::find_open(context, &input.task_id).await?;
        let id = Uuid::now_v7().to_string();
        let row = job::Model {
            node_id: input.node_id.map(String::from),
            run_id: input.run_id.map(String::from),
            ..job::Model::queued(id, task.id, input.kind, payload, context.now)
        };
        job::Entity::insert(job::ActiveModel::from(row.clone())).exec_without_returning(&context.db).await?;
        row.try_into()
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Get {
    job_id: ScopeId,
    /// The task that the job belongs to, when known.
    task_id: Option<ScopeId>,
}

tool!("db.job.get": Get => Job);

impl BuiltInTool for Get {
    const TITLE: &'static str = "Get a job";
    const DESCRIPTION: &'static str =
        "Gives one job: its task, status, payload and, when it has one, its result.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Job];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Job, ToolError> {
        let found = job::Entity::find_by_id(input.job_id.as_str()).one(&context.db).await?;
        require_of_task(found, &input.job_id, input.task_id.as_ref())?.try_into()
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UpdateStatus {
    job_id: ScopeId,
    /// The task that the job belongs to, when known.
    task_id: Option<ScopeId>,
    status: Status,
    /// What came of it. Unchanged when not given.
    result: Option<Value>,
    /// The node that runs it.
    node_id: Option<ScopeId>,
    /// The version that was read. When the job has another one by now, nothing is changed.
    expected_version: Option<i64>,
}

tool!("db.job.update_status": UpdateStatus => Job);

impl BuiltInTool for UpdateStatus {
    const TITLE: &'static str = "Change a job's status";
    const DESCRIPTION: &'static str = "Changes the status of a job and records what came of it. completed, \
        failed and canceled are final.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Job];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Job, ToolError> {
        let found = job::Entity::find_by_id(input.job_id.as_str()).lock_exclusive().one(&context.db).await?;
        let row = require_of_task(found, &input.job_id, input.task_id.as_ref())?;
        if row.queue.is_some() {
            let why = "a node decides what becomes of a job in a sandbox; sandbox.job.cancel ends it";
            return Err(ToolError::Conflict(why.to_owned()));
        }
        check::version("the job", input.expected_version, row.version)?;
        let status = status_of(&row)?;
        if !status.next().contains(&input.status) && (status != input.status || status.is_final()) {
            let why = format!("the job is {} and cannot become {}", status.as_str(), input.status.as_str());
            return Err(ToolError::Conflict(why));
        }
        let version = row.version + 1;
        let mut change = job::ActiveModel::from(row);
        change.status = Set(input.status.as_str().to_owned());
        if let Some(result) = &input.result {
            change.result = Set(Some(check::to_json("result", result, MAX_RESULT_BYTES)?));
        }
        if let Some(node) = input.node_id {
            change.node_id = Set(Some(node.into()));
        }
        change.version = Set(version);
        change.updated_at = Set(context.now);
        change.update(&context.db).await?.try_into()
    }
}

/// Checks the kind of a job that no sandbox runs.
pub(crate) fn check_kind(kind: &str) -> Result<(), ToolError> {
    check::non_blank("kind", kind, MAX_KIND_BYTES)?;
    if kind == SANDBOX {
        let why =
            format!("`{SANDBOX}` is the kind of jobs that sandbox.run creates: call it, or name another");
        return Err(ToolError::Invalid(why));
    }
    Ok(())
}

/// M106: reports a job of another task as not found.
fn require_of_task(
    found: Option<job::Model>,
    id: &ScopeId,
    task: Option<&ScopeId>,
) -> Result<job::Model, ToolError> {
    let is_of_task = |row: &job::Model| task.is_none_or(|task| row.task_id == task.as_str());
    found.filter(is_of_task).ok_or_else(|| ToolError::not_found("job", id.as_str()))
}
