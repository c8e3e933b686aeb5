//! `artifact.get` and `artifact.list`: read the files of a task.

use schemars::JsonSchema;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::{Deserialize, Serialize};
use subjects::ScopeId;

use super::{
    Artifact, Metadata, not_found,
    path::{self, MAX_PATH_BYTES},
};
use policy::ScopedId;

use store::entity::artifact;

use crate::{
    BuiltInTool, Context, Does, ToolError,
    page::{Page, PageRequest},
    search,
    slice::{Encoding, slice},
    tasks,
};

pub(super) struct Get;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetInput {
    task_id: ScopeId,
    /// Either this or `path`; when both are given, they must be of the same artifact.
    artifact_id: Option<ScopeId>,
    #[schemars(length(max = MAX_PATH_BYTES))]
    path: Option<String>,
    /// Where to begin, in bytes.
    offset: Option<u64>,
    /// How many bytes: 16384 when not given, 65536 at most.
    limit: Option<u64>,
    /// Defaults to text when the content is text, else to base64.
    encoding: Option<Encoding>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct GetOutput {
    #[serde(flatten)]
    artifact: Artifact,
    encoding: Encoding,
    content: String,
    offset: usize,
    /// There is more: read on from `next_offset`.
    truncated: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
}

impl BuiltInTool for Get {
    const NAME: &'static str = "artifact.get";
    const TITLE: &'static str = "Read an artifact";
    const DESCRIPTION: &'static str = "Reads a file of a task, by artifact_id or path, whole or in pieces. \
        `truncated` says that there is more.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    type Input = GetInput;
    type Output = GetOutput;

    async fn run(context: &Context<'_>, input: GetInput) -> Result<GetOutput, ToolError> {
        let task = tasks::find(context, &input.task_id).await?;
        let mut query = artifact::Entity::find().filter(artifact::Column::TaskId.eq(task.id));
        let what = match (&input.artifact_id, &input.path) {
            (None, None) => {
                return Err(ToolError::Invalid("name the artifact by artifact_id or path".to_owned()));
            }
            (Some(id), _) => id.to_string(),
            (None, Some(path)) => path.clone(),
        };
        if let Some(id) = &input.artifact_id {
            query = query.filter(artifact::Column::Id.eq(id.as_str()));
        }
        if let Some(path) = &input.path {
            path::check(path)?;
            query = query.filter(artifact::Column::Path.eq(path));
        }
        let row = query.one(&context.db).await?.ok_or_else(|| not_found(&what))?;
        let piece = slice(&row.content, input.offset, input.limit, input.encoding)?;
        Ok(GetOutput {
            artifact: Metadata::from(row).into(),
            encoding: piece.encoding,
            content: piece.content,
            offset: piece.offset,
            truncated: piece.next.is_some(),
            next_offset: piece.next,
        })
    }
}

pub(super) struct List;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListInput {
    task_id: ScopeId,
    /// Only artifacts with this text in their path.
    #[schemars(length(max = 200))]
    text: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

impl BuiltInTool for List {
    const NAME: &'static str = "artifact.list";
    const TITLE: &'static str = "List artifacts";
    const DESCRIPTION: &'static str =
        "Lists the files of a task by path, without their contents; artifact.get has those.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    type Input = ListInput;
    type Output = Page<Artifact>;

    async fn run(context: &Context<'_>, input: ListInput) -> Result<Page<Artifact>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let task = tasks::find(context, &input.task_id).await?;
        let mut query = artifact::Entity::find()
            .filter(artifact::Column::TaskId.eq(task.id))
            .order_by_asc(artifact::Column::Path);
        if let Some(containing) = search::containing(input.text.as_deref(), &[artifact::Column::Path])? {
            query = query.filter(containing);
        }
        let rows = Metadata::select(query)
            .offset(request.offset)
            .limit(request.fetch_limit())
            .into_model::<Metadata>();
        let found = rows.all(&context.db).await?;
        Ok(request.build_page(found.into_iter().map(Artifact::from).collect()))
    }
}
