use sea_orm::{ColumnTrait, Condition, ExprTrait};
use subjects::{PreferenceScope, ScopeId};

use crate::{
    store::entity::preference,
    tools::{Context, ToolError, own::Own, tasks},
};

/// One place where a preference can be set.
#[derive(Clone, Debug)]
pub(super) struct Place {
    scope: PreferenceScope,
    id: String,
}

impl Place {
    pub(super) fn new(scope: PreferenceScope, id: Option<ScopeId>) -> Result<Self, ToolError> {
        match (scope, id) {
            (PreferenceScope::System, None) => Ok(Self { scope, id: String::new() }),
            (PreferenceScope::System, Some(_)) => {
                Err(ToolError::Invalid("the system's scope has no `scope_id`".to_owned()))
            }
            (_, Some(id)) => Ok(Self { scope, id: id.into() }),
            (_, None) => Err(ToolError::Invalid(format!("a {} needs a `scope_id`", text(scope)))),
        }
    }

    pub(super) fn is_system(&self) -> bool {
        self.scope == PreferenceScope::System
    }

    pub(super) fn scope_type(&self) -> &'static str {
        text(self.scope)
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

/// All that applies to somebody at work on something. The system's preferences always do.
#[derive(Clone, Debug, Default)]
pub(super) struct Reach {
    pub(super) user: Option<String>,
    pub(super) groups: Vec<String>,
    pub(super) project: Option<String>,
    pub(super) task: Option<String>,
}

impl Reach {
    /// What a confined caller may read, if this is one: nothing of groups, since its token says nothing about them.
    pub(super) async fn confined(context: &Context<'_>) -> Result<Option<Self>, ToolError> {
        let own = Own::of(context).await?;
        Ok(own.map(|Own { user, task, project }| Self {
            user: Some(user),
            groups: Vec::new(),
            project,
            task: Some(task),
        }))
    }

    /// What is not said follows from the task, if there is one.
    pub(super) async fn completed(mut self, context: &Context<'_>) -> Result<Self, ToolError> {
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
            // Preferences may be there before the task is.
            Err(ToolError::NotFound { .. }) => Ok(self),
            Err(error) => Err(error),
        }
    }

    pub(super) fn covers(&self, place: &Place) -> bool {
        let is = |own: &Option<String>| own.as_ref() == Some(&place.id);
        match place.scope {
            PreferenceScope::System => true,
            PreferenceScope::Group => self.groups.contains(&place.id),
            PreferenceScope::User => is(&self.user),
            PreferenceScope::Project => is(&self.project),
            PreferenceScope::Task => is(&self.task),
        }
    }

    pub(super) fn condition(&self) -> Condition {
        let of = |scope: PreferenceScope| preference::Column::ScopeType.eq(text(scope));
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

pub(super) fn text(scope: PreferenceScope) -> &'static str {
    match scope {
        PreferenceScope::System => "system",
        PreferenceScope::Group => "group",
        PreferenceScope::User => "user",
        PreferenceScope::Project => "project",
        PreferenceScope::Task => "task",
    }
}
