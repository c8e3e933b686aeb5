use schemars::JsonSchema;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::{Deserialize, Serialize};
use subjects::ScopeId;

use super::{
    Artifact, Head, missing,
    path::{self, LONGEST},
};
use crate::{
    policy::ScopedId,
    store::entity::artifact,
    tools::{
        Context, Does, OwnTool, ToolError,
        page::{Page, Piece},
        search,
        slice::{Encoding, slice},
        tasks,
    },
};

pub(super) struct Get;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetInput {
    task_id: ScopeId,
    /// Either this or `path`; when both are given, they must be of the same artifact.
    artifact_id: Option<ScopeId>,
    #[schemars(length(max = LONGEST))]
    path: Option<String>,
    /// Where to begin, in bytes.
    offset: Option<u64>,
    /// How many bytes: 16384 when not given, 65536 at most.
    limit: Option<u64>,
    /// Text when it is text, else base64, when not given.
    encoding: Option<Encoding>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Got {
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

impl OwnTool for Get {
    const NAME: &'static str = "artifact.get";
    const TITLE: &'static str = "Read an artifact";
    const DESCRIPTION: &'static str = "Reads a file of a task, by artifact_id or path, whole or in pieces. `truncated` says \
        that there is more.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    type Input = GetInput;
    type Output = Got;

    async fn run(context: &Context<'_>, input: GetInput) -> Result<Got, ToolError> {
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
        let row = query.one(&context.db).await?.ok_or_else(|| missing(&what))?;
        let piece = slice(&row.content, input.offset, input.limit, input.encoding)?;
        Ok(Got {
            artifact: Head::from(row).into(),
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

impl OwnTool for List {
    const NAME: &'static str = "artifact.list";
    const TITLE: &'static str = "List artifacts";
    const DESCRIPTION: &'static str =
        "Lists the files of a task by path, without their contents; artifact.get has those.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    type Input = ListInput;
    type Output = Piece<Artifact>;

    async fn run(context: &Context<'_>, input: ListInput) -> Result<Piece<Artifact>, ToolError> {
        let page = Page::of(input.limit, input.cursor.as_deref())?;
        let task = tasks::find(context, &input.task_id).await?;
        let mut query = artifact::Entity::find()
            .filter(artifact::Column::TaskId.eq(task.id))
            .order_by_asc(artifact::Column::Path);
        if let Some(containing) = search::containing(input.text.as_deref(), &[artifact::Column::Path])? {
            query = query.filter(containing);
        }
        let heads = Head::of(query).offset(page.offset).limit(page.fetch()).into_model::<Head>();
        let found = heads.all(&context.db).await?;
        Ok(page.cut(found.into_iter().map(Artifact::from).collect()))
    }
}
