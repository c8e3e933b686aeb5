//! The scopes that preferences are set in, and the set of scopes that applies to a caller.

use policy::AgentKind;
use sea_orm::{ColumnTrait, Condition, EntityTrait, ExprTrait};
use subjects::{PreferenceScope, ScopeId};

use store::entity::{preference, project, task};

use crate::{Context, ToolError, confinement::Confinement, tools::tasks};

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

    /// Returns whether the caller may read this scope.
    pub(super) async fn is_readable(&self, context: &Context<'_>) -> Result<bool, ToolError> {
        // A manager may read the preferences of groups; neither token nor lease names any.
        let is_group = self.scope == PreferenceScope::Group;
        let is_manager = context.caller.agent.kind() == AgentKind::ProjectManager;
        Ok(self.is_system() || (is_group && is_manager) || self.is_own(context).await?)
    }

    /// Returns whether the scope is within what the caller acts for. System and groups are so only for a
    /// caller that acts for the whole system.
    pub(super) async fn is_own(&self, context: &Context<'_>) -> Result<bool, ToolError> {
        let Some(confinement) = Confinement::of(context).await? else { return Ok(true) };
        Ok(match self.scope {
            PreferenceScope::System | PreferenceScope::Group => false,
            PreferenceScope::User => self.id == confinement.user,
            PreferenceScope::Project => {
                let found = project::Entity::find_by_id(&self.id).one(&context.db).await?;
                found.is_some_and(|project| confinement.includes_project(&project))
            }
            PreferenceScope::Task => {
                let found = task::Entity::find_by_id(&self.id).one(&context.db).await?;
                found.is_some_and(|task| confinement.includes_task(&task))
            }
        })
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
pub(crate) struct ScopeSet {
    pub(crate) user: Option<String>,
    pub(crate) groups: Vec<String>,
    pub(crate) project: Option<String>,
    pub(crate) task: Option<String>,
}

impl ScopeSet {
    /// Narrows the named scopes to those that the caller may read. A caller that works on one task reads the
    /// scopes of that task, whatever it names.
    pub(super) async fn narrowed(self, context: &Context<'_>) -> Result<Self, ToolError> {
        Ok(match Confinement::of(context).await? {
            None => self,
            Some(Confinement { user, project, task: Some(task) }) => {
                // Groups are not included, since neither token nor lease names any.
                Self { user: Some(user), groups: Vec::new(), project, task: Some(task) }
            }
            Some(Confinement { user, project, task: None }) => {
                Self { user: Some(user), project: project.or(self.project), ..self }
            }
        })
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

    /// Returns a condition for the rows of these scopes.
    pub(crate) fn condition(&self) -> Condition {
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
