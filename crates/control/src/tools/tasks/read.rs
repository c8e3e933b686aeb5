//! `db.task.get` and `db.task.list`: read tasks.

use contract::{
    Page,
    task::{Get, List, ListItem, Task},
};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};

use super::{into_task, status_of};
use policy::{Scope, ScopedId};

use store::{clock, entity::task};

use crate::{
    BuiltInTool, Context, Does, ToolError,
    confinement::Confinement,
    queries::{page::PageRequest, search},
};

impl BuiltInTool for Get {
    const TITLE: &'static str = "Get a task";
    const DESCRIPTION: &'static str =
        "Gives one task: its name, title, description, acceptance criteria, status and version.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Task, ToolError> {
        into_task(super::find(context, &input.task_id).await?)
    }
}

pub(super) fn into_list_item(row: task::Model) -> Result<ListItem, ToolError> {
    Ok(ListItem {
        status: status_of(&row)?,
        task_id: row.id,
        name: row.name,
        title: row.title,
        project_id: row.project_id,
        user_id: row.user_id,
        parent_task_id: row.parent_task_id,
        order: row.position,
        version: row.version,
        updated_at: clock::text(row.updated_at),
    })
}

impl BuiltInTool for List {
    const TITLE: &'static str = "List tasks";
    const DESCRIPTION: &'static str = "Lists tasks in their order, without descriptions; db.task.get has \
        those. An agent that works on one task sees that task.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Page<ListItem>, ToolError> {
        let request = PageRequest::new(input.limit, input.cursor.as_deref())?;
        let mut query = task::Entity::find();
        for (column, id) in [
            (task::Column::ProjectId, &input.project_id),
            (task::Column::UserId, &input.user_id),
            (task::Column::ParentTaskId, &input.parent_task_id),
        ] {
            if let Some(id) = id {
                query = query.filter(column.eq(id.as_str()));
            }
        }
        if let Some(status) = input.status {
            query = query.filter(task::Column::Status.eq(status.as_str()));
        }
        let columns = [task::Column::Name, task::Column::Title, task::Column::Description];
        if let Some(containing) = search::containing(input.text.as_deref(), &columns)? {
            query = query.filter(containing);
        }
        if let Some(confinement) = Confinement::to_tasks(context) {
            query = query.filter(confinement.tasks());
        }
        let ordered = query
            .order_by_asc(task::Column::Position)
            .order_by_asc(task::Column::CreatedAt)
            .order_by_asc(task::Column::Id);
        let found = ordered.offset(request.offset).limit(request.fetch_limit()).all(&context.db).await?;
        let found = found.into_iter().map(into_list_item).collect::<Result<_, _>>()?;
        Ok(request.build_page(found))
    }
}
