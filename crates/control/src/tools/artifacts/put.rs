//! `artifact.put`: writes a file of a task.

use contract::{
    artifact::{Artifact, Encoding, MAX_PATH_BYTES},
    tool,
};
use data_encoding::{BASE64, HEXLOWER};
use schemars::JsonSchema;
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, DatabaseExecutor, EntityTrait, PaginatorTrait,
    QueryFilter, QuerySelect,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subjects::ScopeId;
use uuid::Uuid;

use super::{Metadata, not_found};
use policy::ScopedId;

use store::entity::artifact;

use crate::{
    BuiltInTool, Context, Does, ToolError,
    arguments::{check, path},
    tools::tasks,
};

const MAX_CONTENT_BYTES: usize = 1024 * 1024;
/// Base64 encodes three bytes in four characters.
const MAX_ENCODED_BYTES: usize = MAX_CONTENT_BYTES.div_ceil(3) * 4;
const MAX_MEDIA_TYPE_BYTES: usize = 128;
const MAX_ARTIFACTS_PER_TASK: u64 = 1_000;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Put {
    task_id: ScopeId,
    run_id: Option<ScopeId>,
    /// Relative, with forward slashes: `reports/summary.md`.
    #[schemars(length(max = MAX_PATH_BYTES))]
    path: String,
    /// The whole content: 1 MiB at most, after decoding.
    #[schemars(length(max = MAX_ENCODED_BYTES))]
    content: String,
    /// How `content` is written: text when not given.
    #[serde(default)]
    encoding: Encoding,
    /// `text/plain` or `application/octet-stream` when not given, by the encoding.
    #[schemars(length(max = MAX_MEDIA_TYPE_BYTES))]
    media_type: Option<String>,
    /// The version that was read, 0 for a file that must not be there. When it has another one by now,
    /// nothing is changed.
    expected_version: Option<i64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Output {
    #[serde(flatten)]
    artifact: Artifact,
    /// False when the file already had this content and media type.
    changed: bool,
}

tool!("artifact.put": Put => Output);

impl BuiltInTool for Put {
    const TITLE: &'static str = "Write an artifact";
    const DESCRIPTION: &'static str = "Writes a file of a task, whole, 1 MiB at most. Writing to a path that \
        is there makes its next version.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];

    async fn run(context: &Context<'_>, input: Self) -> Result<Output, ToolError> {
        path::check(&input.path)?;
        let content = decode(&input.content, input.encoding)?;
        let media_type = media_type(input.media_type, input.encoding)?;
        let task = tasks::find(context, &input.task_id).await?;
        let new = artifact::Model {
            id: Uuid::now_v7().to_string(),
            task_id: task.id,
            run_id: input.run_id.map(String::from),
            path: input.path,
            media_type,
            size: i64::try_from(content.len()).unwrap_or(i64::MAX),
            sha256: HEXLOWER.encode(&Sha256::digest(&content)),
            content,
            version: 1,
            created_at: context.now,
            updated_at: context.now,
        };
        write(&context.db, context.now, new, input.expected_version).await
    }
}

/// Writes a file: its first version, or the next one.
pub(super) async fn write(
    db: &DatabaseExecutor<'_>,
    now: i64,
    new: artifact::Model,
    expected: Option<i64>,
) -> Result<Output, ToolError> {
    let before = lock(db, &new).await?;
    check::version("the artifact", expected, before.as_ref().map_or(0, |row| row.version))?;
    match before {
        Some(before) => replace(db, now, before, new).await,
        None => insert(db, now, new, expected).await,
    }
}

/// Locks the present version of the file until the transaction ends.
async fn lock(db: &DatabaseExecutor<'_>, new: &artifact::Model) -> Result<Option<Metadata>, ToolError> {
    let query = artifact::Entity::find()
        .filter(artifact::Column::TaskId.eq(&new.task_id))
        .filter(artifact::Column::Path.eq(&new.path))
        .lock_exclusive();
    Ok(Metadata::select(query).into_model::<Metadata>().one(db).await?)
}

async fn insert(
    db: &DatabaseExecutor<'_>,
    now: i64,
    new: artifact::Model,
    expected: Option<i64>,
) -> Result<Output, ToolError> {
    let existing = artifact::Entity::find().filter(artifact::Column::TaskId.eq(&new.task_id));
    if existing.count(db).await? >= MAX_ARTIFACTS_PER_TASK {
        return Err(ToolError::Conflict(format!(
            "the task already has {MAX_ARTIFACTS_PER_TASK} artifacts, which is the limit"
        )));
    }
    let insert = artifact::Entity::insert(artifact::ActiveModel::from(new.clone()))
        .on_conflict_do_nothing_on([artifact::Column::TaskId, artifact::Column::Path]);
    if check::was_inserted(&insert.exec_without_returning(db).await?) {
        return Ok(Output { artifact: Metadata::from(new).into(), changed: true });
    }
    // Another call created the file in the meantime; this one makes the next version.
    let before = lock(db, &new).await?.ok_or_else(|| not_found(&new.path))?;
    check::version("the artifact", expected, before.version)?;
    replace(db, now, before, new).await
}

/// Writes the next version, unless content and media type are the same.
async fn replace(
    db: &DatabaseExecutor<'_>,
    now: i64,
    before: Metadata,
    new: artifact::Model,
) -> Result<Output, ToolError> {
    if before.sha256 == new.sha256 && before.media_type == new.media_type {
        return Ok(Output { artifact: before.into(), changed: false });
    }
    let change = artifact::ActiveModel {
        id: sea_orm::ActiveValue::Unchanged(before.id.clone()),
        run_id: Set(new.run_id.clone()),
        media_type: Set(new.media_type.clone()),
        size: Set(new.size),
        sha256: Set(new.sha256.clone()),
        content: Set(new.content),
        version: Set(before.version + 1),
        updated_at: Set(now),
        ..Default::default()
    };
    let row = change.update(db).await?;
    Ok(Output { artifact: Metadata::from(row).into(), changed: true })
}

fn decode(content: &str, encoding: Encoding) -> Result<Vec<u8>, ToolError> {
    let limit = match encoding {
        Encoding::Text => MAX_CONTENT_BYTES,
        Encoding::Base64 => MAX_ENCODED_BYTES,
    };
    let too_large = |size: usize| ToolError::TooLarge { what: "content", size, limit: MAX_CONTENT_BYTES };
    if content.len() > limit {
        return Err(too_large(content.len()));
    }
    let bytes = match encoding {
        Encoding::Text => content.as_bytes().to_vec(),
        Encoding::Base64 => BASE64
            .decode(content.as_bytes())
            .map_err(|error| ToolError::Invalid(format!("the content is not base64: {error}")))?,
    };
    if bytes.len() > MAX_CONTENT_BYTES { Err(too_large(bytes.len())) } else { Ok(bytes) }
}

fn media_type(given: Option<String>, encoding: Encoding) -> Result<String, ToolError> {
    let Some(given) = given else {
        return Ok(match encoding {
            Encoding::Text => "text/plain; charset=utf-8".to_owned(),
            Encoding::Base64 => "application/octet-stream".to_owned(),
        });
    };
    check::text("media_type", &given, MAX_MEDIA_TYPE_BYTES)?;
    let is_token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    let essence = given.split(';').next().unwrap_or_default().trim_end();
    let is_type = essence.split_once('/').is_some_and(|(kind, sub)| is_token(kind) && is_token(sub));
    if is_type && given.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return Ok(given);
    }
    Err(ToolError::Invalid(format!("`{given}` is not a media type")))
}
