//! `db.project.*`: projects.

use contract::{
    Page,
    project::{Get, List, Project},
};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};

use crate::{
    BuiltInTool, Context, Does, Entry, ToolError, confinement::Confinement, queries::page::PageRequest,
};
use policy::{Scope, ScopedId};

use store::{clock, entity::project};

pub(super) fn tools() -> Vec<Entry> {
    vec![Entry::of::<Get>(), Entry::of::<List>()]
}

fn into_project(row: project::Model) -> Project {
    Project {
        project_id: row.id,
        name: row.name,
        title: row.title,
        description: row.description,
        user_id: row.user_id,
        updated_at: clock::text(row.updated_at),
    }
}

impl BuiltInTool for Get {
    const TITLE: &'static str = "Get a project";
    const DESCRIPTION: &'static str = "Gives one project: its name, title and description.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Project];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Project, ToolError> {
        let found = project::Entity::find_by_id(&input.project_id).one(&context.db).await?;
        let confinement = Confinement::of(context).await?;
        let is_within = |row: &project::Model| confinement.is_none_or(|it| it.includes_project(row));
        let found = found.filter(is_within);
        found.map(into_project).ok_or_else(|| ToolError::not_found("project", input.project_id))
    }
}

impl BuiltInTool for List {
    const TITLE: &'static str = "List projects";
    const DESCRIPTION: &'static str =
        "Lists projects by name. An agent that works on one task sees the project of that task.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<Project>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let mut query = project::Entity::find().order_by_asc(project::Column::Name);
        if let Some(user) = &input.user_id {
            query = query.filter(project::Column::UserId.eq(user));
        }
        if let Some(confinement) = Confinement::of(context).await? {
            query = query.filter(confinement.projects());
        }
        request.fetch(query, context, into_project).await
    }
}
