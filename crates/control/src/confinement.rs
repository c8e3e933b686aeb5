//! What a caller may access: one that acts for a user only what is that user's, others everything.

use policy::is_governing;
use sea_orm::{ColumnTrait, Condition, EntityTrait, ExprTrait, QueryFilter, QuerySelect, QueryTrait};

use store::entity::{job, project, task};

use crate::{Context, ToolError};

/// The user, project and task that a confined caller may access, besides what belongs to the whole system.
#[derive(Clone, Debug)]
pub(super) struct Confinement {
    pub(super) user: String,
    pub(super) project: Option<String>,
    /// `None`: all tasks of the user, and those without an owner.
    pub(super) task: Option<String>,
}

impl Confinement {
    /// Returns the confinement of the caller, as far as it concerns tasks; `None` if the caller acts for the
    /// whole system.
    pub(super) fn to_tasks(context: &Context<'_>) -> Option<Self> {
        let bounds = context.caller.bounds()?;
        Some(Self { user: bounds.user, project: bounds.project, task: bounds.task })
    }

    /// Like [`Confinement::to_tasks`], with the project of the task for a caller that works on one task.
    pub(super) async fn of(context: &Context<'_>) -> Result<Option<Self>, ToolError> {
        let Some(mut confinement) = Self::to_tasks(context) else { return Ok(None) };
        if let Some(task) = &confinement.task {
            let task = task::Entity::find_by_id(task).one(&context.db).await?;
            confinement.project = task.and_then(|task| task.project_id);
        }
        Ok(Some(confinement))
    }

    pub(super) fn includes_task(&self, row: &task::Model) -> bool {
        match &self.task {
            Some(task) => row.id == *task,
            None => {
                self.includes_owner(row.user_id.as_ref())
                    && (self.project.is_none() || row.project_id == self.project)
            }
        }
    }

    pub(super) fn includes_project(&self, row: &project::Model) -> bool {
        match (&self.project, &self.task) {
            (Some(project), _) => row.id == *project,
            (None, Some(_)) => false,
            (None, None) => self.includes_owner(row.user_id.as_ref()),
        }
    }

    /// Returns whether a task is the user's or has no owner, whichever task the caller works on.
    pub(super) fn includes_owner_of(&self, row: &task::Model) -> bool {
        self.includes_owner(row.user_id.as_ref())
    }

    fn includes_owner(&self, owner: Option<&String>) -> bool {
        owner.is_none_or(|owner| *owner == self.user)
    }

    /// Returns a condition for the tasks of [`Confinement::includes_task`].
    pub(super) fn tasks(&self) -> Condition {
        if let Some(task) = &self.task {
            return Condition::all().add(task::Column::Id.eq(task));
        }
        let owned = task::Column::UserId.is_null().or(task::Column::UserId.eq(&self.user));
        let of_project = self.project.as_ref().map(|project| task::Column::ProjectId.eq(project));
        Condition::all().add(owned).add_option(of_project)
    }

    /// Returns a condition for the jobs of [`Confinement::tasks`].
    pub(super) fn jobs(&self) -> Condition {
        let own = task::Entity::find().select_only().column(task::Column::Id).filter(self.tasks());
        Condition::all().add(job::Column::TaskId.in_subquery(own.into_query()))
    }

    /// Returns a condition for the projects of [`Confinement::includes_project`].
    pub(super) fn projects(&self) -> Condition {
        match (&self.project, &self.task) {
            (Some(project), _) => Condition::all().add(project::Column::Id.eq(project)),
            (None, Some(_)) => Condition::all().add(project::Column::Id.eq("")),
            (None, None) => Condition::all()
                .add(project::Column::UserId.is_null().or(project::Column::UserId.eq(&self.user))),
        }
    }

    /// Returns the project that a call is about: that of the confinement, or the one that the call names.
    pub(super) fn project_or<'p>(&'p self, named: Option<&'p str>) -> Option<&'p str> {
        match self.task {
            Some(_) => self.project.as_deref(),
            None => self.project.as_deref().or(named),
        }
    }
}

/// Fails with [`ToolError::ReadOnly`] if the caller acts for a user, since the change concerns the whole
/// system.
pub(super) fn require_unconfined(context: &Context<'_>, what: &str) -> Result<(), ToolError> {
    match context.caller.bounds() {
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
