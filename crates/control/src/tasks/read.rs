//! `db.task.get` and `db.task.list`: read tasks.

use schemars::JsonSchema;
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::{Deserialize, Serialize};
use subjects::ScopeId;

use super::{Status, Task};
use policy::{Scope, ScopedId};

use store::{clock, entity::task};

use crate::{
    BuiltInTool, Context, Does, ToolError,
    page::{Page, PageRequest},
    search,
};

pub(super) struct Get;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetInput {
    /// The id of the task, or its name if no other task is called so.
    task_id: ScopeId,
}

impl BuiltInTool for Get {
    const NAME: &'static str = "db.task.get";
    const TITLE: &'static str = "Get a task";
    const DESCRIPTION: &'static str =
        "Gives one task: its name, title, description, acceptance criteria, status and version.";
    const DOES: Does = Does::Read;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    type Input = GetInput;
    type Output = Task;

    async fn run(context: &Context<'_>, input: GetInput) -> Result<Task, ToolError> {
        super::find(context, &input.task_id).await?.try_into()
    }
}

pub(super) struct List;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListInput {
    /// Only tasks of this project.
    project_id: Option<ScopeId>,
    /// Only tasks of this user.
    user_id: Option<ScopeId>,
    /// Only tasks in this status.
    status: Option<Status>,
    /// Only parts of this task.
    parent_task_id: Option<ScopeId>,
    /// Only tasks with this text in their name, title or description.
    #[schemars(length(max = 200))]
    text: Option<String>,
    limit: Option<u64>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ListItem {
    task_id: String,
    name: String,
    title: String,
    status: Status,
    project_id: Option<String>,
    user_id: Option<String>,
    parent_task_id: Option<String>,
    order: i64,
    version: i64,
    updated_at: String,
}

impl TryFrom<task::Model> for ListItem {
    type Error = ToolError;

    fn try_from(row: task::Model) -> Result<Self, ToolError> {
        Ok(Self {
            status: Status::of(&row)?,
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
}

impl BuiltInTool for List {
    const NAME: &'static str = "db.task.list";
    const TITLE: &'static str = "List tasks";
    const DESCRIPTION: &'static str = "Lists tasks in their order, without descriptions; db.task.get has \
        those. An agent that works on one task sees that task.";
    const DOES: Does = Does::Read;
    const SCOPE: Scope = Scope::Pm;
    type Input = ListInput;
    type Output = Page<ListItem>;

    async fn run(context: &Context<'_>, input: ListInput) -> Result<Page<ListItem>, ToolError> {
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
        if let Some(binding) = context.binding() {
            query = query.filter(task::Column::Id.eq(&binding.task));
        }
        let ordered = query
            .order_by_asc(task::Column::Position)
            .order_by_asc(task::Column::CreatedAt)
            .order_by_asc(task::Column::Id);
        let found = ordered.offset(request.offset).limit(request.fetch_limit()).all(&context.db).await?;
        let found = found.into_iter().map(ListItem::try_from).collect::<Result<_, _>>()?;
        Ok(request.build_page(found))
    }
}
