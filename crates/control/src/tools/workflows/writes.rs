//! `workflow.checkpoint.put_writes`: what nodes wrote after a checkpoint.

use contract::workflow::{MAX_DATA_BYTES, MAX_WRITES, PutWrites, Write, WritesStored};
use data_encoding::BASE64;
use policy::{Scope, ScopedId};
use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, sea_query::OnConflict};
use store::entity::workflow_write;

use super::{
    checkpoint::{MAX_ID_BYTES, MAX_KIND_BYTES, MAX_NAMESPACE_BYTES, decode},
    rows,
};
use crate::{BuiltInTool, Context, Does, ToolError, arguments::check};

/// The columns that identify a write.
const KEY: [workflow_write::Column; 5] = [
    workflow_write::Column::TaskId,
    workflow_write::Column::Namespace,
    workflow_write::Column::CheckpointId,
    workflow_write::Column::WriteTaskId,
    workflow_write::Column::Idx,
];
const MAX_PATH_BYTES: usize = 1_024;
const MAX_CHANNEL_BYTES: usize = 256;

impl BuiltInTool for PutWrites {
    const TITLE: &'static str = "Store what a node wrote";
    const DESCRIPTION: &'static str = "Stores what a node of a workflow's graph wrote after a checkpoint. \
        Writes with the same `idx` are kept, or replaced with `replace`. A stale epoch is refused with the \
        reason stale_epoch.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    const HAS_TEXT: bool = false;
    const NEEDS_NATS: bool = true;

    async fn run(context: &Context<'_>, input: Self) -> Result<WritesStored, ToolError> {
        let replace = input.replace;
        let rows = check_writes(&input)?;
        rows::lock_held(context, &input.task_id, input.epoch).await?;
        let mut stored = 0;
        for row in rows {
            let insert = workflow_write::Entity::insert(workflow_write::ActiveModel::from(row));
            if replace {
                let mut known = OnConflict::columns(KEY);
                known.update_columns([
                    workflow_write::Column::TaskPath,
                    workflow_write::Column::Channel,
                    workflow_write::Column::Kind,
                    workflow_write::Column::Data,
                ]);
                stored += insert.on_conflict(known).exec_without_returning(&context.db).await?;
            } else {
                let insert = insert.on_conflict_do_nothing_on(KEY);
                let inserted = insert.exec_without_returning(&context.db).await?;
                stored += u64::from(check::was_inserted(&inserted));
            }
        }
        Ok(WritesStored { stored })
    }
}

/// Checks writes. Returns the rows that are stored.
fn check_writes(input: &PutWrites) -> Result<Vec<workflow_write::Model>, ToolError> {
    check::text("namespace", &input.namespace, MAX_NAMESPACE_BYTES)?;
    check::non_blank("checkpoint_id", &input.checkpoint_id, MAX_ID_BYTES)?;
    check::non_blank("write_task_id", &input.write_task_id, MAX_ID_BYTES)?;
    check::text("task_path", &input.task_path, MAX_PATH_BYTES)?;
    check::count("writes", input.writes.len(), MAX_WRITES)?;
    // Four characters of base64 hold three bytes. Not decoded if they cannot fit.
    let size: usize = input.writes.iter().map(|it| it.data.trim_end_matches('=').len() * 3 / 4).sum();
    if size > MAX_DATA_BYTES {
        return Err(ToolError::TooLarge { what: "the data of all writes", size, limit: MAX_DATA_BYTES });
    }
    let mut rows = Vec::with_capacity(input.writes.len());
    for write in &input.writes {
        check::text("channel", &write.channel, MAX_CHANNEL_BYTES)?;
        check::text("kind", &write.kind, MAX_KIND_BYTES)?;
        let data = decode("the data of a write", &write.data, MAX_DATA_BYTES)?;
        rows.push(workflow_write::Model {
            task_id: input.task_id.to_string(),
            namespace: input.namespace.clone(),
            checkpoint_id: input.checkpoint_id.clone(),
            write_task_id: input.write_task_id.clone(),
            idx: write.idx,
            task_path: input.task_path.clone(),
            channel: write.channel.clone(),
            kind: write.kind.clone(),
            data,
        });
    }
    Ok(rows)
}

/// Returns what was written after a checkpoint, in the order that the graph expects.
pub(super) async fn of(
    db: &DatabaseExecutor<'_>,
    task: &str,
    namespace: &str,
    checkpoint: &str,
) -> Result<Vec<Write>, ToolError> {
    let mut rows = workflow_write::Entity::find()
        .filter(workflow_write::Column::TaskId.eq(task))
        .filter(workflow_write::Column::Namespace.eq(namespace))
        .filter(workflow_write::Column::CheckpointId.eq(checkpoint))
        .order_by_asc(workflow_write::Column::Idx)
        .all(db)
        .await?;
    // Compared byte by byte: a database may have an order of its own.
    rows.sort_by(|one, other| {
        (&one.task_path, &one.write_task_id, one.idx).cmp(&(
            &other.task_path,
            &other.write_task_id,
            other.idx,
        ))
    });
    let into_write = |row: workflow_write::Model| Write {
        write_task_id: row.write_task_id,
        task_path: row.task_path,
        idx: row.idx,
        channel: row.channel,
        kind: row.kind,
        data: BASE64.encode(&row.data),
    };
    Ok(rows.into_iter().map(into_write).collect())
}
