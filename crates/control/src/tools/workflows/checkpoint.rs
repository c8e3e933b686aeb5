//! `workflow.checkpoint.*`: what the saver of a runner stores, and reads again.

use contract::workflow::{
    Checkpoint, CheckpointFound, CheckpointList, CheckpointStored, CheckpointsDeleted, DeleteCheckpoints,
    GetCheckpoint, ListCheckpoints, MAX_DATA_BYTES, MAX_STATE_BYTES, MAX_WRITES, PutCheckpoint,
};
use data_encoding::BASE64;
use policy::{Scope, ScopedId};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect,
};
use serde_json::{Map, Value};
use store::{
    clock,
    entity::{workflow, workflow_checkpoint, workflow_history, workflow_write},
};

use super::{events, history, rows, writes};
use crate::{BuiltInTool, Context, Does, ToolError, arguments::check};

pub(super) const MAX_NAMESPACE_BYTES: usize = 512;
pub(super) const MAX_ID_BYTES: usize = 128;
pub(super) const MAX_KIND_BYTES: usize = 64;
const MAX_METADATA_BYTES: usize = 64 * 1024;
const MAX_LISTED: u64 = 100;
/// The data of all listed checkpoints, in base64.
const MAX_LIST_BYTES: usize = 4 * 1024 * 1024;
/// One checkpoint with its writes.
const MAX_RESULT_BYTES: usize = 32 * 1024 * 1024;

impl BuiltInTool for PutCheckpoint {
    const TITLE: &'static str = "Store a checkpoint";
    const DESCRIPTION: &'static str = "Stores a checkpoint of a workflow's graph, with the state and the \
        events that people see. A stale epoch is refused with the reason stale_epoch.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;
    const NEEDS_NATS: bool = true;

    async fn run(context: &Context<'_>, input: Self) -> Result<CheckpointStored, ToolError> {
        let (data, metadata, state) = check_put(&input)?;
        let row = rows::lock_held(context, &input.task_id, input.epoch).await?;
        let (db, now, task) = (&context.db, context.now, row.task_id.clone());
        let stored = workflow_history::Model {
            task_id: task.clone(),
            namespace: input.namespace.clone(),
            checkpoint_id: input.checkpoint_id.clone(),
            parent_id: input.parent_id,
            kind: input.kind,
            data,
            metadata,
            epoch: input.epoch,
            created_at: now,
            sequence: history::next(db, &task).await?,
        };
        let is_new = put_history(db, stored).await?;
        // A put that was delayed until after a later one must not bring the state of before back.
        let is_newest = || history::is_newest(db, &task, &input.namespace, &input.checkpoint_id);
        if input.namespace.is_empty() && (is_new || is_newest().await?) {
            let current = Current { epoch: input.epoch, checkpoint_id: &input.checkpoint_id, now };
            put_current(db, &task, current, input.last_node, state).await?;
        }
        // A put that is repeated, since its first answer was lost, says the same: nothing happened again.
        if is_new {
            events::add(db, (&task, input.epoch), input.events, now).await?;
        }
        let mut change = workflow::ActiveModel::from(row);
        change.updated_at = Set(now);
        change.update(db).await?;
        Ok(CheckpointStored { checkpoint_id: input.checkpoint_id })
    }
}

/// Checks a checkpoint. Returns its data, its metadata and the state as they are stored.
fn check_put(input: &PutCheckpoint) -> Result<(Vec<u8>, String, Option<String>), ToolError> {
    check::text("namespace", &input.namespace, MAX_NAMESPACE_BYTES)?;
    check::non_blank("checkpoint_id", &input.checkpoint_id, MAX_ID_BYTES)?;
    check::text("parent_id", input.parent_id.as_deref().unwrap_or_default(), MAX_ID_BYTES)?;
    check::text("kind", &input.kind, MAX_KIND_BYTES)?;
    check::text("last_node", input.last_node.as_deref().unwrap_or_default(), MAX_ID_BYTES)?;
    check::count("events", input.events.len(), MAX_WRITES)?;
    events::check(&input.events)?;
    let data = decode("data", &input.data, MAX_DATA_BYTES)?;
    let metadata = check::to_json("metadata", &Value::Object(input.metadata.clone()), MAX_METADATA_BYTES)?;
    let state =
        input.state.clone().map(|state| check::to_json("state", &Value::Object(state), MAX_STATE_BYTES));
    Ok((data, metadata, state.transpose()?))
}

/// Decodes base64 of at most `limit` bytes.
pub(super) fn decode(what: &'static str, text: &str, limit: usize) -> Result<Vec<u8>, ToolError> {
    // Not decoded if it cannot fit.
    let size = text.len() / 4 * 3;
    if size > limit + 2 {
        return Err(ToolError::TooLarge { what, size, limit });
    }
    let data = BASE64.decode(text.as_bytes());
    let data = data.map_err(|error| ToolError::Invalid(format!("{what} is not base64: {error}")))?;
    if data.len() > limit {
        return Err(ToolError::TooLarge { what, size: data.len(), limit });
    }
    Ok(data)
}

/// Stores a checkpoint, or replaces the one with the same id, which keeps its place in the order. Returns
/// whether it is new.
async fn put_history(db: &DatabaseExecutor<'_>, row: workflow_history::Model) -> Result<bool, ToolError> {
    let insert = workflow_history::Entity::insert(workflow_history::ActiveModel::from(row.clone()))
        .on_conflict_do_nothing_on([
            workflow_history::Column::TaskId,
            workflow_history::Column::Namespace,
            workflow_history::Column::CheckpointId,
        ]);
    if check::was_inserted(&insert.exec_without_returning(db).await?) {
        return Ok(true);
    }
    let mut again = workflow_history::ActiveModel::from(row.clone());
    again.parent_id = Set(row.parent_id);
    again.kind = Set(row.kind);
    again.data = Set(row.data);
    again.metadata = Set(row.metadata);
    again.epoch = Set(row.epoch);
    again.update(db).await?;
    Ok(false)
}

struct Current<'c> {
    epoch: i64,
    checkpoint_id: &'c str,
    now: i64,
}

/// Stores the state after a node. Without a state, the one before is kept.
async fn put_current(
    db: &DatabaseExecutor<'_>,
    task: &str,
    current: Current<'_>,
    last_node: Option<String>,
    state: Option<String>,
) -> Result<(), ToolError> {
    let Current { epoch, checkpoint_id, now } = current;
    let found = workflow_checkpoint::Entity::find_by_id(task).one(db).await?;
    let Some(row) = found else {
        let row = workflow_checkpoint::Model {
            task_id: task.to_owned(),
            epoch,
            checkpoint_id: checkpoint_id.to_owned(),
            last_node_id: last_node,
            state: state.unwrap_or_else(|| "{}".to_owned()),
            updated_at: now,
        };
        let insert = workflow_checkpoint::Entity::insert(workflow_checkpoint::ActiveModel::from(row));
        insert.exec_without_returning(db).await?;
        return Ok(());
    };
    let mut change = workflow_checkpoint::ActiveModel::from(row);
    change.epoch = Set(epoch);
    change.checkpoint_id = Set(checkpoint_id.to_owned());
    if last_node.is_some() {
        change.last_node_id = Set(last_node);
    }
    if let Some(state) = state {
        change.state = Set(state);
    }
    change.updated_at = Set(now);
    change.update(db).await?;
    Ok(())
}

impl BuiltInTool for GetCheckpoint {
    const TITLE: &'static str = "Get a checkpoint";
    const DESCRIPTION: &'static str = "Gives a checkpoint of a workflow's graph with what its nodes wrote \
        since, the newest if none is named. A stale epoch is refused with the reason stale_epoch.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;
    const NEEDS_NATS: bool = true;
    const MAX_RESULT_BYTES: usize = MAX_RESULT_BYTES;

    async fn run(context: &Context<'_>, input: Self) -> Result<CheckpointFound, ToolError> {
        check::text("namespace", &input.namespace, MAX_NAMESPACE_BYTES)?;
        check::text("checkpoint_id", input.checkpoint_id.as_deref().unwrap_or_default(), MAX_ID_BYTES)?;
        rows::find_held(context, &input.task_id, input.epoch).await?;
        let mut query = workflow_history::Entity::find()
            .filter(workflow_history::Column::TaskId.eq(input.task_id.as_str()))
            .filter(workflow_history::Column::Namespace.eq(&input.namespace));
        query = match &input.checkpoint_id {
            Some(id) => query.filter(workflow_history::Column::CheckpointId.eq(id)),
            None => query.order_by_desc(workflow_history::Column::Sequence).limit(1),
        };
        let checkpoint = match query.one(&context.db).await? {
            Some(row) => Some(with_writes(&context.db, row).await?),
            None => None,
        };
        Ok(CheckpointFound { checkpoint })
    }
}

impl BuiltInTool for ListCheckpoints {
    const TITLE: &'static str = "List checkpoints";
    const DESCRIPTION: &'static str = "Lists the checkpoints of a workflow's graph, the newest first, with \
        what their nodes wrote. A stale epoch is refused with the reason stale_epoch.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;
    const NEEDS_NATS: bool = true;
    const MAX_RESULT_BYTES: usize = MAX_RESULT_BYTES;

    async fn run(context: &Context<'_>, input: Self) -> Result<CheckpointList, ToolError> {
        check::text("namespace", input.namespace.as_deref().unwrap_or_default(), MAX_NAMESPACE_BYTES)?;
        check::text("before", input.before.as_deref().unwrap_or_default(), MAX_ID_BYTES)?;
        rows::find_held(context, &input.task_id, input.epoch).await?;
        let limit = input.limit.unwrap_or(MAX_LISTED).clamp(1, MAX_LISTED);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut query = workflow_history::Entity::find()
            .select_only()
            .columns([
                workflow_history::Column::Namespace,
                workflow_history::Column::CheckpointId,
                workflow_history::Column::Metadata,
            ])
            .filter(workflow_history::Column::TaskId.eq(input.task_id.as_str()));
        if let Some(namespace) = &input.namespace {
            query = query.filter(workflow_history::Column::Namespace.eq(namespace));
        }
        if let Some(before) = &input.before {
            let task = input.task_id.as_str();
            let before = history::sequence_of(&context.db, task, input.namespace.as_deref(), before).await?;
            query = query.filter(workflow_history::Column::Sequence.lt(before));
        }
        let found = query
            .order_by_desc(workflow_history::Column::Sequence)
            .into_tuple::<(String, String, String)>()
            .all(&context.db)
            .await?;
        let is_wanted = |(_, _, metadata): &(String, String, String)| {
            let metadata: Map<String, Value> = serde_json::from_str(metadata).unwrap_or_default();
            input.metadata.iter().all(|(key, value)| metadata.get(key) == Some(value))
        };
        let wanted: Vec<_> = found.into_iter().filter(is_wanted).collect();
        let (mut size, mut checkpoints) = (0, Vec::new());
        for (namespace, id, _) in wanted.iter().take(limit) {
            let key = (input.task_id.to_string(), namespace.clone(), id.clone());
            let Some(row) = workflow_history::Entity::find_by_id(key).one(&context.db).await? else {
                continue;
            };
            size += row.data.len() * 4 / 3;
            if size > MAX_LIST_BYTES && !checkpoints.is_empty() {
                break;
            }
            checkpoints.push(with_writes(&context.db, row).await?);
        }
        let has_more = checkpoints.len() < wanted.len();
        Ok(CheckpointList { checkpoints, has_more })
    }
}

async fn with_writes(
    db: &DatabaseExecutor<'_>,
    row: workflow_history::Model,
) -> Result<Checkpoint, ToolError> {
    let writes = writes::of(db, &row.task_id, &row.namespace, &row.checkpoint_id).await?;
    Ok(Checkpoint {
        namespace: row.namespace,
        checkpoint_id: row.checkpoint_id,
        parent_id: row.parent_id,
        kind: row.kind,
        data: BASE64.encode(&row.data),
        metadata: serde_json::from_str(&row.metadata).unwrap_or_default(),
        created_at: clock::text(row.created_at),
        writes,
    })
}

impl BuiltInTool for DeleteCheckpoints {
    const TITLE: &'static str = "Delete checkpoints";
    const DESCRIPTION: &'static str = "Deletes all checkpoints of a workflow's graph. The jobs and handoffs \
        that it began stay known. A stale epoch is refused with the reason stale_epoch.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;
    const NEEDS_NATS: bool = true;

    async fn run(context: &Context<'_>, input: Self) -> Result<CheckpointsDeleted, ToolError> {
        let row = rows::lock_held(context, &input.task_id, input.epoch).await?;
        Ok(CheckpointsDeleted { deleted: forget(&context.db, &row.task_id).await? })
    }
}

/// Deletes all checkpoints of a workflow, with its state. Returns how many there were.
pub(super) async fn forget(db: &DatabaseExecutor<'_>, task: &str) -> Result<u64, ToolError> {
    workflow_write::Entity::delete_many().filter(workflow_write::Column::TaskId.eq(task)).exec(db).await?;
    workflow_checkpoint::Entity::delete_by_id(task).exec(db).await?;
    let stored = workflow_history::Entity::delete_many().filter(workflow_history::Column::TaskId.eq(task));
    Ok(stored.exec(db).await?.rows_affected)
}
