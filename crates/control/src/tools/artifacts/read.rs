//! `artifact.get` and `artifact.list`: read the files of a task.

use contract::{
    Page,
    artifact::{Artifact, ArtifactContent, Get, List},
};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

use super::{Metadata, not_found};
use policy::ScopedId;

use store::entity::artifact;

use crate::{
    BuiltInTool, Context, Does, ToolError,
    arguments::{path, slice::slice},
    queries::{page::PageRequest, search},
    tools::tasks,
};

impl BuiltInTool for Get {
    const TITLE: &'static str = "Read an artifact";
    const DESCRIPTION: &'static str = "Reads a file of a task, by artifact_id or path, whole or in pieces. \
        `truncated` says that there is more.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];

    async fn run(context: &Context<'_>, input: Self) -> Result<ArtifactContent, ToolError> {
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
        Ok(ArtifactContent {
            artifact: Metadata::from(row).into(),
            encoding: piece.encoding,
            content: piece.content,
            offset: piece.offset,
            truncated: piece.next.is_some(),
            next_offset: piece.next,
        })
    }
}

impl BuiltInTool for List {
    const TITLE: &'static str = "List artifacts";
    const DESCRIPTION: &'static str =
        "Lists the files of a task by path, without their contents; artifact.get has those.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Artifact>, ToolError> {
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
