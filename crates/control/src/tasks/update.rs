//! `db.task.update`: changes a task, except for its name and status.

use schemars::JsonSchema;
use sea_orm::{ActiveModelTrait, ActiveValue::Set};
use serde::Deserialize;
use subjects::ScopeId;

use super::{MAX_CRITERIA, MAX_DESCRIPTION_BYTES, MAX_TITLE_BYTES, Task};
use policy::{Scope, ScopedId};

use store::entity::task;

use crate::{BuiltInTool, Context, Does, ToolError, check};

pub(super) struct Update;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Input {
    task_id: ScopeId,
    #[schemars(length(max = MAX_TITLE_BYTES))]
    title: Option<String>,
    #[schemars(length(max = MAX_DESCRIPTION_BYTES))]
    description: Option<String>,
    /// The complete list, which replaces the present one.
    #[schemars(length(max = MAX_CRITERIA))]
    acceptance_criteria: Option<Vec<String>>,
    /// Where it stands among its neighbours; lower comes first.
    order: Option<i64>,
    /// The version that was read. When the task has another one by now, nothing is changed.
    expected_version: Option<i64>,
}

impl BuiltInTool for Update {
    const NAME: &'static str = "db.task.update";
    const TITLE: &'static str = "Change a task";
    const DESCRIPTION: &'static str = "Changes title, description, acceptance criteria or order of a task: \
        what is given, and nothing else. Its name stays, since people know it by that. db.task.update_status \
        changes the status.";
    const DOES: Does = Does::Write;
    const NEEDS: &'static [ScopedId] = &[ScopedId::Task];
    const SCOPE: Scope = Scope::Pm;
    type Input = Input;
    type Output = Task;

    async fn run(context: &Context<'_>, input: Input) -> Result<Task, ToolError> {
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
        change.update(&context.db).await?.try_into()
    }
}
