//! Preferences as administrators see and set them.

use api::{Preference, PreferenceAddress, PreferenceFilter, PutPreference};
use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use serde_json::json;
use subjects::PreferenceScope;

use control::{AdminPreferenceWriter, PreferenceTarget, ToolError};
use store::{clock, entity::preference};

use super::{convert_tool_error, stored_json};
use crate::{Actor, Admin, Error};

const FIELD: &str = "preference";
const LIST_LIMIT: u64 = 1000;

fn convert(error: ToolError) -> Error {
    convert_tool_error(FIELD, error)
}

impl Admin {
    /// Lists preferences by key and scope, 1000 at most.
    pub(crate) async fn list_preferences(
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
        Ok(rows.all(self.store.read()).await?.into_iter().map(body).collect())
    }

    /// Creates or replaces a preference.
    pub(crate) async fn set_preference(
        &self,
        actor: &Actor,
        new: PutPreference,
    ) -> Result<Preference, Error> {
        const WHAT: &str = "admin.preference.set";
        self.require_admin(actor, WHAT).await?;
        let address = PreferenceTarget::new(new.scope, new.scope_id.clone(), &new.key).map_err(convert)?;
        let open = self.begin(actor, WHAT, &json!({ "new": new })).await?;
        let change = AdminPreferenceWriter {
            db: DatabaseExecutor::Transaction(&open.write),
            now: clock::now(),
            author: actor.author(),
            expected: new.version,
        };
        let row = change.set(address, &new.value).await.map_err(convert)?;
        self.commit(open).await?;
        Ok(body(row))
    }

    /// Deletes a preference in its scope. Its history is kept.
    pub(crate) async fn delete_preference(&self, actor: &Actor, at: PreferenceAddress) -> Result<(), Error> {
        const WHAT: &str = "admin.preference.delete";
        self.require_admin(actor, WHAT).await?;
        let address = PreferenceTarget::new(at.scope, at.scope_id.clone(), &at.key).map_err(convert)?;
        let open = self.begin(actor, WHAT, &json!({ "at": at })).await?;
        let change = AdminPreferenceWriter {
            db: DatabaseExecutor::Transaction(&open.write),
            now: clock::now(),
            author: actor.author(),
            expected: at.version,
        };
        change.delete(address).await.map_err(convert)?;
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

fn body(row: preference::Model) -> Preference {
    Preference {
        value: stored_json(row.value),
        key: row.key,
        value_type: row.value_type,
        scope: row.scope_type,
        scope_id: Some(row.scope_id).filter(|id| !id.is_empty()),
        version: row.version,
        updated_at: clock::text(row.updated_at),
        updated_by: row.updated_by,
    }
}
