use sea_orm::EntityTrait;

use super::{Context, ToolError};
use crate::{policy::is_governing, store::entity::task};

/// What a confined caller may look at, besides what is everyone's.
#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) user: String,
    pub(super) task: String,
    pub(super) project: Option<String>,
}

impl Own {
    /// `None` for a manager, who may look at everything.
    pub(super) async fn of(context: &Context<'_>) -> Result<Option<Self>, ToolError> {
        let Some(bound) = context.bound() else { return Ok(None) };
        let task = task::Entity::find_by_id(&bound.task).one(&context.db).await?;
        let project = task.and_then(|task| task.project_id);
        Ok(Some(Self { user: bound.user.clone(), task: bound.task.clone(), project }))
    }
}

/// The allowlist keeps the others away already; what concerns everyone is not left to one guard.
pub(super) fn managers_only(context: &Context<'_>, what: &str) -> Result<(), ToolError> {
    match context.bound() {
        None => Ok(()),
        Some(_) => Err(ToolError::ReadOnly(what.to_owned())),
    }
}

/// Refuses to change what decides about agents: no agent may widen its own rights.
pub(super) fn not_governing(key: &str) -> Result<(), ToolError> {
    if is_governing(key) {
        return Err(ToolError::Governing(key.to_owned()));
    }
    Ok(())
}
