//! `db.project.*`: projects.

use schemars::JsonSchema;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::{Deserialize, Serialize};

use super::{
    BuiltInTool, Context, Does, Entry, ToolError,
    page::{Page, PageRequest},
};
use policy::{Scope, ScopedId};

use store::{
    clock,
    entity::{project, task},
};

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<Get>(), Entry::of::<List>()]
}

#[derive(Debug, Serialize, JsonSchema)]
struct Project {
    project_id: String,
    name: String,
    title: String,
    description: String,
    user_id: Option<String>,
    updated_at: String,
}

impl From<project::Model> for Project {
    fn from(row: project::Model) -> Self {
        Self {
            project_id: row.id,
            name: row.name,
            title: row.title,
            description: row.description,
            user_id: row.user_id,
            updated_at: clock::text(row.updated_at),
        }
    }
}

struct Get;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetInput {
    project_id: String,
}

impl BuiltInTool for Get {
    const NAME: &'static str = "db.project.get";
    const TITLE: &'static str = "Get a project";
    const DESCRIPTION: &'static str = "Gives one project: its name, title and description.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Project];
    const SCOPE: Scope = Scope::Pm;
    type Input = GetInput;
    type Output = Project;

    async fn run(context: &Context<'_>, input: GetInput) -> Result<Project, ToolError> {
        let found = project::Entity::find_by_id(&input.project_id).one(&context.db).await?;
        found.map(Project::from).ok_or_else(|| ToolError::not_found("project", input.project_id))
    }
}

struct List;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct ListInput {
    /// Only projects of this user.
    user_id: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

impl BuiltInTool for List {
    const NAME: &'static str = "db.project.list";
    const TITLE: &'static str = "List projects";
    const DESCRIPTION: &'static str =
        "Lists projects by name. An agent that works on one task sees the project of that task.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    type Input = ListInput;
    type Output = Page<Project>;

    async fn run(context: &Context<'_>, input: ListInput) -> Result<Page<Project>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let mut query = project::Entity::find().order_by_asc(project::Column::Name);
        if let Some(user) = &input.user_id {
            query = query.filter(project::Column::UserId.eq(user));
        }
        if let Some(binding) = context.binding() {
            let task = task::Entity::find_by_id(&binding.task).one(&context.db).await?;
            let project = task.and_then(|task| task.project_id).unwrap_or_default();
            query = query.filter(project::Column::Id.eq(project));
        }
        let found = query.offset(request.offset).limit(request.fetch_limit()).all(&context.db).await?;
        Ok(request.build_page(found.into_iter().map(Project::from).collect()))
    }
}
