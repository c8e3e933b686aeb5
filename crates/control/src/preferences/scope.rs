//! The scopes that preferences are set in, and the set of scopes that applies to a caller.

use sea_orm::{ColumnTrait, Condition, ExprTrait};
use subjects::{PreferenceScope, ScopeId};

use store::entity::preference;

use crate::{Context, ToolError, confinement::Confinement, tasks};

/// One scope: its type and the id of the user, group, project or task. The id is empty for the system.
#[derive(Clone, Debug)]
pub(super) struct ScopeRef {
    scope: PreferenceScope,
    id: String,
}

impl ScopeRef {
    /// Fails if the id is missing, or given for the system's scope.
    pub(super) fn new(scope: PreferenceScope, id: Option<ScopeId>) -> Result<Self, ToolError> {
        match (scope, id) {
            (PreferenceScope::System, None) => Ok(Self { scope, id: String::new() }),
            (PreferenceScope::System, Some(_)) => {
                Err(ToolError::Invalid("the system's scope has no `scope_id`".to_owned()))
            }
            (_, Some(id)) => Ok(Self { scope, id: id.into() }),
            (_, None) => Err(ToolError::Invalid(format!("a {} needs a `scope_id`", scope.as_str()))),
        }
    }

    pub(super) fn is_system(&self) -> bool {
        self.scope == PreferenceScope::System
    }

    pub(super) fn scope_type(&self) -> &'static str {
        self.scope.as_str()
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

/// The scopes that apply to a user, groups, a project and a task. The system's scope always applies.
#[derive(Clone, Debug, Default)]
pub(super) struct ScopeSet {
    pub(super) user: Option<String>,
    pub(super) groups: Vec<String>,
    pub(super) project: Option<String>,
    pub(super) task: Option<String>,
}

impl ScopeSet {
    /// Returns the scopes that a confined caller may read; `None` for a manager. Groups are not included,
    /// since a token names none.
    pub(super) async fn of_confined(context: &Context<'_>) -> Result<Option<Self>, ToolError> {
        let confinement = Confinement::of(context).await?;
        Ok(confinement.map(|Confinement { user, task, project }| Self {
            user: Some(user),
            groups: Vec::new(),
            project,
            task: Some(task),
        }))
    }

    /// Fills in user and project from the task, where they are not given.
    pub(super) async fn completed_from_task(mut self, context: &Context<'_>) -> Result<Self, ToolError> {
        let Some(task) = self.task.as_deref().and_then(|task| task.parse::<ScopeId>().ok()) else {
            return Ok(self);
        };
        match tasks::find(context, &task).await {
            Ok(task) => {
                self.user = self.user.or(task.user_id);
                self.project = self.project.or(task.project_id);
                self.task = Some(task.id);
                Ok(self)
            }
            // Preferences may be set before the task exists.
            Err(ToolError::NotFound { .. }) => Ok(self),
            Err(error) => Err(error),
        }
    }

    pub(super) fn covers(&self, scope: &ScopeRef) -> bool {
        let is = |id: &Option<String>| id.as_ref() == Some(&scope.id);
        match scope.scope {
            PreferenceScope::System => true,
            PreferenceScope::Group => self.groups.contains(&scope.id),
            PreferenceScope::User => is(&self.user),
            PreferenceScope::Project => is(&self.project),
            PreferenceScope::Task => is(&self.task),
        }
    }

    /// Returns a condition for the rows of these scopes.
    pub(super) fn condition(&self) -> Condition {
        let of = |scope: PreferenceScope| preference::Column::ScopeType.eq(scope.as_str());
        let mut any = Condition::any().add(of(PreferenceScope::System));
        for (scope, id) in [
            (PreferenceScope::User, &self.user),
            (PreferenceScope::Project, &self.project),
            (PreferenceScope::Task, &self.task),
        ] {
            if let Some(id) = id {
                any = any.add(of(scope).and(preference::Column::ScopeId.eq(id)));
            }
        }
        if !self.groups.is_empty() {
            let groups = self.groups.iter().map(String::as_str);
            any = any.add(of(PreferenceScope::Group).and(preference::Column::ScopeId.is_in(groups)));
        }
        any
    }
}
