//! `db.task.update`: changes a task, except for its name and status.

use contract::task::{Task, Update};
use sea_orm::{ActiveModelTrait, ActiveValue::Set};

use policy::{Scope, ScopedId};

use store::entity::task;

use crate::{BuiltInTool, Context, Does, ToolError, arguments::check};

impl BuiltInTool for Update {
    const TITLE: &'static str = "Change a task";
    const DESCRIPTION: &'static str = "Changes title, description, acceptance criteria or order of a task: \
        what is given, and nothing else. Its name stays, since people know it by that. db.task.update_status \
        changes the status.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;

    async fn run(context: &Context<'_>, input: Self) -> Result<Task, ToolError> {
        let row = super::lock(context, &input.task_id).await?;
        check::version("the task", input.expected_version, row.version)?;
        let version = row.version + 1;
        let mut change = task::ActiveModel::from(row);
        if let Some(title) = input.title {
            super::check_title(&title)?;
            change.title = Set(title);
        }
        if let Some(description) = input.description {
            super::check_description(&description)?;
            change.description = Set(description);
        }
        if let Some(criteria) = input.acceptance_criteria {
            change.acceptance_criteria = Set(super::encode_criteria(&criteria)?);
        }
        if let Some(order) = input.order {
            change.position = Set(order);
        }
        if !change.is_changed() {
            return Err(ToolError::Invalid("nothing to change is given".to_owned()));
        }
        change.version = Set(version);
        change.updated_at = Set(context.now);
        super::into_task(change.update(&context.db).await?)
    }
}
