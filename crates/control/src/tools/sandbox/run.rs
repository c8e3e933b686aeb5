//! `sandbox.run`: creates a job, and may wait for its end.

use std::{collections::BTreeSet, time::Duration};

use contract::sandbox::{Job, Run, RunFile};
use policy::{MemoryProfile, Scope, ScopedId};
use sea_orm::{
    ColumnTrait, DatabaseExecutor, EntityTrait, FromQueryResult, QueryFilter, QueryOrder, QuerySelect,
};
use serde_json::Value;
use store::{
    NewMessage, Store, clock,
    entity::{allowed_image, artifact, job, task},
};
use subjects::{
    JobId, ScopeId, Subject, Timestamp,
    job::{self as wire, FileContent, InputFile, JobSpec, Repeat},
    streams,
};
use tokio::time::Instant;

use super::{
    Sandboxes, arguments,
    job_lease::{self, ActingFor},
    limits, place,
    place::Placement,
    view,
};
use crate::{
    BuiltInTool, Context, Does, LeaseIssuer, ToolError, profiles,
    tools::{jobs, tasks},
};

/// The body of a job's message. A server takes 1 MiB by default.
const MAX_MESSAGE_BYTES: usize = 900 * 1024;
/// Files of a job with those that `artifacts` adds.
const MAX_JOB_FILES: usize = 512;

impl BuiltInTool for Run {
    const TITLE: &'static str = "Run a command in a sandbox";
    const DESCRIPTION: &'static str = "Runs a command or a script in a sandbox on a node, for a task, with \
        files, limits and, if named, hosts that it may reach; internal hosts only if the node's settings \
        name them too. Gives the job back: with `wait_seconds` once it has ended, with how it ended, its \
        exit code, the end of its output and the files that it left, which are artifacts of the task. \
        `waiting_because` says why a job waits.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    const NEEDS_NATS: bool = true;
    const WAITS: bool = true;

    async fn run(context: &Context<'_>, input: Self) -> Result<Job, ToolError> {
        let row = create(context, input, None).await?;
        view::describe(&context.db, row, context.now).await
    }

    /// Waits for the end of the job and returns it as it is then.
    async fn complete(
        store: &Store,
        sandboxes: &Sandboxes,
        _: &LeaseIssuer,
        input: Self,
        output: Value,
    ) -> Result<Value, ToolError> {
        let until = Instant::now() + Duration::from_secs(input.wait_seconds.unwrap_or_default());
        let Some(id) = output.get("job_id").and_then(Value::as_str) else { return Ok(output) };
        let ended = wait_for_end(store, sandboxes, id, until, || std::future::ready(Ok(()))).await?;
        Ok(ended.and_then(|job| serde_json::to_value(job).ok()).unwrap_or(output))
    }
}

/// Waits until a job has ended, until a time, or until `check` fails; it is asked whenever the job is looked
/// at. Returns the job as it is then; `None` if it cannot be read.
pub(crate) async fn wait_for_end<F>(
    store: &Store,
    sandboxes: &Sandboxes,
    id: &str,
    until: Instant,
    check: impl Fn() -> F + Send,
) -> Result<Option<Job>, ToolError>
where
    F: Future<Output = Result<(), ToolError>> + Send,
{
    let mut newest = None;
    loop {
        let change = sandboxes.change();
        check().await?;
        let Ok(Some(row)) = job::Entity::find_by_id(id).one(store.read()).await else { return Ok(newest) };
        let is_final = view::status_of(&row).is_ok_and(|status| status.is_final());
        let db = DatabaseExecutor::from(store.read());
        if let Ok(job) = view::describe(&db, row, clock::now()).await {
            newest = Some(job);
        }
        if is_final || Instant::now() >= until {
            return Ok(newest);
        }
        // Without a change in time, the job is looked at for the last time.
        if tokio::time::timeout_at(until, change).await == Ok(false) {
            return Ok(newest);
        }
    }
}

/// Creates a job and adds its message to the transaction. Without `acting_for` it has the memory profile of
/// the caller.
pub(crate) async fn create(
    context: &Context<'_>,
    input: Run,
    acting_for: Option<&ActingFor>,
) -> Result<job::Model, ToolError> {
    let db = &context.db;
    arguments::wait(input.wait_seconds)?;
    let lease = context.caller.lease.lease();
    arguments::tools(&input.tools, lease)?;
    let (spec, placement) = check(context, &input)?;
    let task = tasks::find_open(context, &input.task_id).await?;
    let handoff_id = job_lease::lock_handoff(context).await?;
    let profile = acting_for.map_or(context.profile(), |other| &other.profile);
    check_network(db, profile, "network", &spec.network).await?;
    // What a tool reaches is not known here.
    check_network(db, profile, "tools", &spec.tools).await?;
    check_image(db, spec.image.as_deref(), placement.digest.as_deref()).await?;
    let mut files = find_files(db, &task, input.files).await?;
    add_artifacts(db, &task, &input.artifacts, &mut files).await?;
    let spec = JobSpec { files, ..spec };
    let queue = place::choose(db, &placement, context.now).await?;
    let job_id = JobId::now();
    let (lease_id, signed) = job_lease::issue(context, &task, acting_for, job_id, &spec).await?;
    let row = job::Model {
        run_id: lease.and_then(|lease| lease.run_id.clone()).or_else(|| task.run_id.clone()),
        queue: Some(queue.to_string()),
        placement: Some(subjects::encode_json_text(&placement)),
        lease_id: Some(lease_id),
        created_by: Some(context.author()),
        handoff_id,
        ..job::Model::queued(
            job_id.to_string(),
            task.id,
            jobs::SANDBOX.to_owned(),
            subjects::encode_json_text(&spec),
            context.now,
        )
    };
    job::Entity::insert(job::ActiveModel::from(row.clone())).exec_without_returning(db).await?;
    send(db, context.sandboxes, &row, &queue, signed, row.id.clone()).await?;
    Ok(row)
}

/// Checks what needs no store. Returns the spec without files, and where the job may run.
fn check(context: &Context<'_>, input: &Run) -> Result<(JobSpec, Placement), ToolError> {
    let command = arguments::command(input)?;
    let limits = limits::resolve(input.limits, &context.sandboxes.settings)?;
    arguments::files(&input.files)?;
    arguments::env(&input.env)?;
    let network = arguments::network(&input.network)?;
    arguments::patterns("outputs", &input.outputs)?;
    arguments::labels(&input.labels)?;
    let digest = input.image.as_deref().map(arguments::digest).transpose()?.map(str::to_owned);
    let engine = arguments::engine(input.engine, digest.is_some())?;
    if input.node_id.is_some() && (input.pool.is_some() || !input.labels.is_empty()) {
        let why =
            "name a `node_id`, or a `pool` and `labels`: a node is one whatever its pool and labels are";
        return Err(ToolError::Invalid(why.to_owned()));
    }
    let has_effects = !input.network.is_empty() || !input.tools.is_empty();
    let spec = JobSpec {
        command,
        image: input.image.clone(),
        engine,
        files: Vec::new(),
        env: input.env.clone(),
        limits,
        network,
        outputs: input.outputs.clone(),
        tools: input.tools.clone(),
        repeat: input.repeat.unwrap_or(if has_effects { Repeat::Never } else { Repeat::Safe }),
    };
    let (pool, node_id, labels) = (input.pool.clone(), input.node_id.clone(), input.labels.clone());
    Ok((spec, Placement { pool, node_id, labels, engine, digest }))
}

/// G13: a job reaches the network only for memory profiles that may do so.
async fn check_network(
    db: &DatabaseExecutor<'_>,
    profile: &MemoryProfile,
    argument: &str,
    given: &[String],
) -> Result<(), ToolError> {
    if given.is_empty() || profiles::may_reach_network(db, profile).await? {
        return Ok(());
    }
    Err(ToolError::Invalid(format!(
        "the memory profile {profile} may not reach the network: leave `{argument}` out"
    )))
}

/// Fails unless an administrator allowed the image with this digest.
async fn check_image(
    db: &DatabaseExecutor<'_>,
    image: Option<&str>,
    digest: Option<&str>,
) -> Result<(), ToolError> {
    let (Some(image), Some(digest)) = (image, digest) else { return Ok(()) };
    let with_digest = allowed_image::Column::Image.ends_with(format!("@{digest}"));
    let found = allowed_image::Entity::find().filter(with_digest).one(db).await?;
    match found {
        Some(_) => Ok(()),
        None => Err(ToolError::Invalid(format!(
            "the image {image} is not allowed: an administrator has to allow it by its digest first"
        ))),
    }
}

/// The columns of an artifact that a job needs.
#[derive(Debug, FromQueryResult)]
struct FoundArtifact {
    id: String,
    sha256: String,
    size: i64,
}

/// Returns the files of a job, with artifacts as they are now.
async fn find_files(
    db: &DatabaseExecutor<'_>,
    task: &task::Model,
    files: Vec<RunFile>,
) -> Result<Vec<InputFile>, ToolError> {
    let mut found = Vec::with_capacity(files.len());
    for file in files {
        let RunFile { path, text, base64, artifact_id, artifact_path, executable } = file;
        let content = match (text, base64) {
            (Some(text), _) => FileContent::Text { text },
            (None, Some(base64)) => FileContent::Base64 { base64 },
            (None, None) => find_artifact(db, task, artifact_id, artifact_path).await?,
        };
        found.push(InputFile { path, content, executable });
    }
    Ok(found)
}

/// Adds the artifacts that match, under their own paths. A file that is named by itself comes first.
async fn add_artifacts(
    db: &DatabaseExecutor<'_>,
    task: &task::Model,
    patterns: &[String],
    files: &mut Vec<InputFile>,
) -> Result<(), ToolError> {
    let wanted = arguments::patterns("artifacts", patterns)?;
    if wanted.is_empty() {
        return Ok(());
    }
    let named: BTreeSet<String> = files.iter().map(|file| file.path.clone()).collect();
    let columns =
        [artifact::Column::Id, artifact::Column::Path, artifact::Column::Sha256, artifact::Column::Size];
    let query = artifact::Entity::find().filter(artifact::Column::TaskId.eq(&task.id));
    let query = query.order_by_asc(artifact::Column::Path).select_only().columns(columns);
    let found = query.into_model::<ArtifactOfTask>().all(db).await?;
    let matching = found.into_iter().filter(|it| wanted.is_match(&it.path) && !named.contains(&it.path));
    let before = files.len();
    files.extend(matching.map(|it| InputFile {
        content: FileContent::Artifact {
            artifact_id: it.id,
            sha256: it.sha256,
            size: u64::try_from(it.size).unwrap_or_default(),
        },
        executable: false,
        path: it.path,
    }));
    // All artifacts of a task may be none.
    let wants_all = patterns.iter().any(|pattern| pattern == "**");
    if files.len() == before && before == 0 && !wants_all {
        let why =
            format!("no artifact of the task matches {}; artifact.list shows them", patterns.join(", "));
        return Err(ToolError::Invalid(why));
    }
    if files.len() > MAX_JOB_FILES {
        let why = format!(
            "the job would start with {} files; at most {MAX_JOB_FILES} are taken: name fewer in `artifacts`",
            files.len()
        );
        return Err(ToolError::Invalid(why));
    }
    Ok(())
}

/// The columns read of an artifact of the task.
#[derive(FromQueryResult)]
struct ArtifactOfTask {
    id: String,
    path: String,
    sha256: String,
    size: i64,
}

async fn find_artifact(
    db: &DatabaseExecutor<'_>,
    task: &task::Model,
    id: Option<ScopeId>,
    path: Option<String>,
) -> Result<FileContent, ToolError> {
    let mut query = artifact::Entity::find().filter(artifact::Column::TaskId.eq(&task.id));
    let what = match (&id, path) {
        (Some(id), _) => {
            query = query.filter(artifact::Column::Id.eq(id.as_str()));
            id.to_string()
        }
        (None, path) => {
            let path = path.unwrap_or_default();
            crate::arguments::path::check(&path)?;
            query = query.filter(artifact::Column::Path.eq(&path));
            path
        }
    };
    let columns = [artifact::Column::Id, artifact::Column::Sha256, artifact::Column::Size];
    let found = query.select_only().columns(columns).into_model::<FoundArtifact>().one(db).await?;
    let found = found.ok_or_else(|| ToolError::not_found("artifact", what))?;
    let size = u64::try_from(found.size).unwrap_or_default();
    Ok(FileContent::Artifact { artifact_id: found.id, sha256: found.sha256, size })
}

/// Adds the message of a job to the transaction.
async fn send(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    row: &job::Model,
    queue: &Subject,
    lease: String,
    message_id: String,
) -> Result<(), ToolError> {
    let unreadable = |what: &str| ToolError::Invalid(format!("the {what} of the job is invalid"));
    let job = wire::Job {
        v: wire::VERSION,
        job_id: row.id.parse().map_err(|_| unreadable("id"))?,
        task_id: row.task_id.parse().map_err(|_| unreadable("task"))?,
        created_at: Timestamp::new(clock::from_micros(row.created_at)).map_err(|_| unreadable("time"))?,
        lease,
        spec: view::spec_of(row)?,
    };
    let body = subjects::encode_json_text(&job);
    if body.len() > MAX_MESSAGE_BYTES {
        return Err(ToolError::TooLarge { what: "the job", size: body.len(), limit: MAX_MESSAGE_BYTES });
    }
    let message = NewMessage {
        ordering: Some(row.id.clone()),
        ..NewMessage::new(streams::JOBS, queue.to_string(), message_id, body)
    };
    Ok(sandboxes.outbox.add(db, message).await?)
}

/// Sends a job to another queue. Returns false if its lease is gone, and with it what it may do.
pub(super) async fn send_again(
    db: &DatabaseExecutor<'_>,
    sandboxes: &Sandboxes,
    leases: &LeaseIssuer,
    row: &job::Model,
    queue: &Subject,
    version: i64,
) -> Result<bool, ToolError> {
    let lease = match &row.lease_id {
        Some(id) => leases.sign_again(db, id).await?,
        None => None,
    };
    let Some(lease) = lease else { return Ok(false) };
    send(db, sandboxes, row, queue, lease.lease, format!("{}/{version}", row.id)).await?;
    Ok(true)
}
