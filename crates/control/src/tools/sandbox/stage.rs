//! `sandbox.job.store`: takes the files that a job left, in pieces, until its result names them.

use contract::sandbox::{MAX_PIECE_BYTES, StoreFile, StoreProgress};
use data_encoding::{BASE64, HEXLOWER};
use policy::Scope;
use sea_orm::{
    ActiveValue::{NotSet, Set},
    ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect, Select,
};
use sha2::{Digest, Sha256};
use store::entity::{job, job_file};

use super::{book::require, view};
use crate::{BuiltInTool, Context, Does, ToolError, arguments::path};

const MIB: u64 = 1024 * 1024;

impl BuiltInTool for StoreFile {
    const TITLE: &'static str = "Store a file of a job";
    const DESCRIPTION: &'static str = "Stores a piece of a file that the job of this call's lease left. The \
        files become artifacts of its task when the job ends. For nodes.";
    const DOES: Does = Does::Write;
    const SCOPE: Scope = Scope::Sandbox;
    const HAS_TEXT: bool = false;
    const NEEDS_NATS: bool = true;

    async fn run(context: &Context<'_>, input: Self) -> Result<StoreProgress, ToolError> {
        let db = &context.db;
        let piece = check(context, &input)?;
        let id = context.caller.lease.lease().and_then(|lease| lease.job_id.clone());
        let id =
            id.ok_or_else(|| ToolError::Invalid("the call is not made under the lease of a job".to_owned()))?;
        // Locked, so that pieces of one job are counted one after the other.
        let found = job::Entity::find_by_id(&id).lock_exclusive().one(db).await?;
        let row = require(found, &id)?;
        if view::status_of(&row)?.is_final() {
            return Err(ToolError::Conflict(format!("the job {id} has ended and takes no more files")));
        }
        let attempt = i64::from(input.attempt);
        leave_earlier_attempts(db, &id, attempt).await?;
        check_room(context, &id, attempt, &input).await?;
        let stored = stored_bytes(db, &id, attempt, &input).await?;
        let size = input.size;
        if input.offset == stored && stored < size || (size == 0 && input.offset == 0) {
            insert(context, &id, attempt, &input, piece.clone()).await?;
        } else if input.offset > stored {
            let why = format!("{} is stored up to byte {stored}; the next piece begins there", input.path);
            return Err(ToolError::Conflict(why));
        }
        // A piece that was stored before is left as it is.
        let stored = stored.max(input.offset.saturating_add(piece.len() as u64));
        if stored < size {
            return Ok(StoreProgress { stored, is_complete: false });
        }
        check_digest(db, &id, attempt, &input).await?;
        Ok(StoreProgress { stored, is_complete: true })
    }
}

fn check(context: &Context<'_>, input: &StoreFile) -> Result<Vec<u8>, ToolError> {
    let invalid = |why: String| Err(ToolError::Invalid(why));
    path::check(&input.path)?;
    if input.attempt == 0 {
        return invalid("`attempt` is counted from 1".to_owned());
    }
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if input.sha256.len() != 64 || !input.sha256.bytes().all(is_hex) {
        return invalid("`sha256` is 64 lower-case hexadecimal digits".to_owned());
    }
    let max = u64::from(context.sandboxes.settings.max_file_mb) * MIB;
    if input.size > max {
        return invalid(format!(
            "{} has {} bytes; at most {max} are kept (the gateway's setting sandbox.files.max_mb)",
            input.path, input.size
        ));
    }
    let piece = BASE64.decode(input.content.as_bytes());
    let piece = piece.map_err(|error| ToolError::Invalid(format!("`content` is not base64: {error}")))?;
    if piece.len() > MAX_PIECE_BYTES {
        return Err(ToolError::TooLarge { what: "content", size: piece.len(), limit: MAX_PIECE_BYTES });
    }
    let end = input.offset.saturating_add(piece.len() as u64);
    if end > input.size || (piece.is_empty() && input.size > 0) {
        return invalid("`content` is empty or ends beyond `size`".to_owned());
    }
    Ok(piece)
}

/// Removes what earlier attempts left. Fails if a later attempt has begun to store.
async fn leave_earlier_attempts(db: &DatabaseExecutor<'_>, id: &str, attempt: i64) -> Result<(), ToolError> {
    let of_job = job_file::Column::JobId.eq(id);
    let newest: Option<i64> = job_file::Entity::find()
        .select_only()
        .column(job_file::Column::Attempt)
        .filter(of_job.clone())
        .order_by_desc(job_file::Column::Attempt)
        .into_tuple()
        .one(db)
        .await?;
    match newest {
        Some(newest) if newest > attempt => {
            Err(ToolError::Conflict(format!("attempt {newest} of the job {id} stores its files now")))
        }
        Some(newest) if newest < attempt => {
            job_file::Entity::delete_many().filter(of_job).exec(db).await?;
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Fails if the job has too many files, or too much in them.
async fn check_room(
    context: &Context<'_>,
    id: &str,
    attempt: i64,
    input: &StoreFile,
) -> Result<(), ToolError> {
    let settings = &context.sandboxes.settings;
    let others: Vec<(String, i64)> = job_file::Entity::find()
        .select_only()
        .columns([job_file::Column::Path, job_file::Column::Size])
        .filter(job_file::Column::JobId.eq(id))
        .filter(job_file::Column::Attempt.eq(attempt))
        .filter(job_file::Column::Position.eq(0))
        .filter(job_file::Column::Path.ne(&input.path))
        .into_tuple()
        .all(&context.db)
        .await?;
    if others.len() as u64 >= u64::from(settings.max_files) {
        return Err(ToolError::Conflict(format!(
            "the job has {} files, which is the limit (the gateway's setting sandbox.files.max)",
            others.len()
        )));
    }
    let total: u64 = others.iter().map(|(_, size)| u64::try_from(*size).unwrap_or_default()).sum();
    let max = u64::from(settings.max_total_mb) * MIB;
    if total.saturating_add(input.size) > max {
        return Err(ToolError::Conflict(format!(
            "with {} the files of the job would have more than {max} bytes (the gateway's setting \
             sandbox.files.max_total_mb)",
            input.path
        )));
    }
    Ok(())
}

/// Returns how much of a file is stored. Another content under the same path is removed.
async fn stored_bytes(
    db: &DatabaseExecutor<'_>,
    id: &str,
    attempt: i64,
    input: &StoreFile,
) -> Result<u64, ToolError> {
    let last = of_file(id, attempt, &input.path).order_by_desc(job_file::Column::Position).one(db).await?;
    let Some(last) = last else { return Ok(0) };
    let number = |number: i64| u64::try_from(number).unwrap_or_default();
    if last.sha256 == input.sha256 && number(last.size) == input.size {
        return Ok(number(last.position).saturating_add(last.content.len() as u64));
    }
    let delete = job_file::Entity::delete_many()
        .filter(job_file::Column::JobId.eq(id))
        .filter(job_file::Column::Attempt.eq(attempt))
        .filter(job_file::Column::Path.eq(&input.path));
    delete.exec(db).await?;
    Ok(0)
}

fn of_file(id: &str, attempt: i64, path: &str) -> Select<job_file::Entity> {
    job_file::Entity::find()
        .filter(job_file::Column::JobId.eq(id))
        .filter(job_file::Column::Attempt.eq(attempt))
        .filter(job_file::Column::Path.eq(path))
}

async fn insert(
    context: &Context<'_>,
    id: &str,
    attempt: i64,
    input: &StoreFile,
    piece: Vec<u8>,
) -> Result<(), ToolError> {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let row = job_file::ActiveModel {
        id: NotSet,
        job_id: Set(id.to_owned()),
        attempt: Set(attempt),
        path: Set(input.path.clone()),
        position: Set(number(input.offset)),
        size: Set(number(input.size)),
        sha256: Set(input.sha256.clone()),
        content: Set(piece),
        created_at: Set(context.now),
    };
    let columns = [
        job_file::Column::JobId,
        job_file::Column::Attempt,
        job_file::Column::Path,
        job_file::Column::Position,
    ];
    let insert = job_file::Entity::insert(row).on_conflict_do_nothing_on(columns);
    insert.exec_without_returning(&context.db).await?;
    Ok(())
}

async fn check_digest(
    db: &DatabaseExecutor<'_>,
    id: &str,
    attempt: i64,
    input: &StoreFile,
) -> Result<(), ToolError> {
    let content = take(db, id, attempt, &input.path).await?.unwrap_or_default();
    let found = HEXLOWER.encode(&Sha256::digest(&content));
    if found == input.sha256 {
        return Ok(());
    }
    // The transaction is rolled back, so the pieces before the last one stay; another digest replaces them.
    Err(ToolError::Invalid(format!("{} has the digest {found}, not {}", input.path, input.sha256)))
}

/// Returns the content of a file that is stored. `None` if nothing of it is.
pub(super) async fn take(
    db: &DatabaseExecutor<'_>,
    id: &str,
    attempt: i64,
    path: &str,
) -> Result<Option<Vec<u8>>, ToolError> {
    let pieces = of_file(id, attempt, path).order_by_asc(job_file::Column::Position).all(db).await?;
    Ok((!pieces.is_empty()).then(|| pieces.into_iter().flat_map(|piece| piece.content).collect()))
}
