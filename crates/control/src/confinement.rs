//! What a caller may access: a confined caller only its user, task and project, a manager everything.

use sea_orm::EntityTrait;

use super::{Context, ToolError};
use policy::is_governing;

use store::entity::task;

/// The user, task and project that a confined caller may read, besides what is available to every caller.
#[derive(Clone, Debug)]
pub(super) struct Confinement {
    pub(super) user: String,
    pub(super) task: String,
    pub(super) project: Option<String>,
}

impl Confinement {
    /// Returns the confinement of the caller; `None` for a manager, which may read everything. The project is
    /// that of the task.
    pub(super) async fn of(context: &Context<'_>) -> Result<Option<Self>, ToolError> {
        let Some(binding) = context.binding() else { return Ok(None) };
        let task = task::Entity::find_by_id(&binding.task).one(&context.db).await?;
        let project = task.and_then(|task| task.project_id);
        Ok(Some(Self { user: binding.user.clone(), task: binding.task.clone(), project }))
    }
}

/// Fails with [`ToolError::ReadOnly`] unless the caller is a manager. The allowlist already excludes other
/// agents; this is a second check for changes that concern the whole system.
pub(super) fn require_manager(context: &Context<'_>, what: &str) -> Result<(), ToolError> {
    match context.binding() {
        None => Ok(()),
        Some(_) => Err(ToolError::ReadOnly(what.to_owned())),
    }
}

/// Fails with [`ToolError::Governing`] for a governing key: no agent may extend its own rights.
pub(super) fn reject_governing(key: &str) -> Result<(), ToolError> {
    if is_governing(key) {
        return Err(ToolError::Governing(key.to_owned()));
    }
    Ok(())
}
