//! Preferences as administrators see and set them.

use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use subjects::{PreferenceScope, ScopeId};
use utoipa::{IntoParams, ToSchema};

use control::{AdminPreferenceWriter, PreferenceTarget, ToolError};
use store::{clock, entity::preference};

use crate::{Actor, Admin, Error};

const FIELD: &str = "preference";
const LIST_LIMIT: u64 = 1000;

/// A preference of a user, group, project, task or the system. Preferences under `agents.` configure agents,
/// so agents cannot write them.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Preference {
    pub key: String,
    /// A null hides the value of wider scopes.
    pub value: Value,
    pub value_type: String,
    /// system, group, user, project or task.
    pub scope: String,
    pub scope_id: Option<String>,
    pub version: i64,
    pub updated_at: String,
    pub updated_by: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutPreference {
    /// system, group, user, project or task.
    #[schema(value_type = String)]
    pub scope: PreferenceScope,
    /// Id of the group, user, project or task; omitted for the system scope.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub scope_id: Option<ScopeId>,
    pub key: String,
    /// A null hides the value of wider scopes.
    pub value: Value,
    /// Set only if this is the current version; 0 means not set.
    #[serde(default)]
    pub version: Option<i64>,
}

#[derive(Clone, Debug, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PreferenceAddress {
    /// system, group, user, project or task.
    #[param(value_type = String)]
    pub scope: PreferenceScope,
    /// Id of the group, user, project or task; omitted for the system scope.
    #[param(value_type = Option<String>)]
    pub scope_id: Option<ScopeId>,
    pub key: String,
    /// Delete only if this is the current version.
    pub version: Option<i64>,
}

#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PreferenceFilter {
    /// system, group, user, project or task.
    #[param(value_type = Option<String>)]
    pub scope: Option<PreferenceScope>,
    pub scope_id: Option<String>,
    pub key: Option<String>,
}

impl Admin {
    /// Lists preferences by key and scope, 1000 at most.
    pub async fn list_preferences(
        &self,
        actor: &Actor,
        filter: PreferenceFilter,
    ) -> Result<Vec<Preference>, Error> {
        actor.ensure_admin()?;
        let mut query = preference::Entity::find().filter(preference::Column::Deleted.eq(false));
        if let Some(scope) = filter.scope {
            query = query.filter(preference::Column::ScopeType.eq(scope_type(scope)));
        }
        if let Some(id) = filter.scope_id {
            query = query.filter(preference::Column::ScopeId.eq(id));
        }
        if let Some(key) = filter.key {
            query = query.filter(preference::Column::Key.eq(key));
        }
        let rows = query
            .order_by_asc(preference::Column::Key)
            .order_by_asc(preference::Column::ScopeType)
            .order_by_asc(preference::Column::ScopeId)
            .limit(LIST_LIMIT);
        Ok(rows.all(self.store.read()).await?.into_iter().map(Preference::from).collect())
    }

    /// Creates or replaces a preference.
    pub async fn set_preference(&self, actor: &Actor, new: PutPreference) -> Result<Preference, Error> {
        const WHAT: &str = "admin.preference.set";
        self.require_admin(actor, WHAT).await?;
        let address =
            PreferenceTarget::new(new.scope, new.scope_id.clone(), &new.key).map_err(convert_tool_error)?;
        let open = self.begin(actor, WHAT, &json!({ "new": new })).await?;
        let change = AdminPreferenceWriter {
            db: DatabaseExecutor::Transaction(&open.write),
            now: clock::now(),
            author: actor.author(),
            expected: new.version,
        };
        let row = change.set(address, &new.value).await.map_err(convert_tool_error)?;
        self.commit(open).await?;
        Ok(row.into())
    }

    /// Deletes a preference in its scope. Its history is kept.
    pub async fn delete_preference(&self, actor: &Actor, at: PreferenceAddress) -> Result<(), Error> {
        const WHAT: &str = "admin.preference.delete";
        self.require_admin(actor, WHAT).await?;
        let address =
            PreferenceTarget::new(at.scope, at.scope_id.clone(), &at.key).map_err(convert_tool_error)?;
        let open = self.begin(actor, WHAT, &json!({ "at": at })).await?;
        let change = AdminPreferenceWriter {
            db: DatabaseExecutor::Transaction(&open.write),
            now: clock::now(),
            author: actor.author(),
            expected: at.version,
        };
        change.delete(address).await.map_err(convert_tool_error)?;
        self.commit(open).await
    }
}

fn scope_type(scope: PreferenceScope) -> &'static str {
    match scope {
        PreferenceScope::System => "system",
        PreferenceScope::Group => "group",
        PreferenceScope::User => "user",
        PreferenceScope::Project => "project",
        PreferenceScope::Task => "task",
    }
}

/// Converts an error of the preference tools, whose rules apply here too.
fn convert_tool_error(error: ToolError) -> Error {
    match error {
        ToolError::NotFound { what, id } => Error::not_found(what, id),
        ToolError::Conflict(why) => Error::Conflict(why),
        ToolError::Store(error) => error.into(),
        other => Error::invalid(FIELD, other.to_string()),
    }
}

impl From<preference::Model> for Preference {
    fn from(row: preference::Model) -> Self {
        Self {
            // A value that is not valid JSON is shown as text.
            value: serde_json::from_str(&row.value).unwrap_or(Value::String(row.value)),
            key: row.key,
            value_type: row.value_type,
            scope: row.scope_type,
            scope_id: Some(row.scope_id).filter(|id| !id.is_empty()),
            version: row.version,
            updated_at: clock::text(row.updated_at),
            updated_by: row.updated_by,
        }
    }
}
