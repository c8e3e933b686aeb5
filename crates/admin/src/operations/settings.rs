//! System settings: list, set, delete.

use api::{PutSetting, Setting};
use policy::Switch;
use sea_orm::{EntityTrait, QueryOrder, sea_query::OnConflict};
use serde_json::{Value, json};

use registry::catalogue;
use store::{clock, entity::system_setting};

use super::stored_json;
use crate::{Actor, Admin, Error, check};

const MAX_VALUE_BYTES: usize = 16 * 1024;

impl Admin {
    /// Lists settings by key, including the gateway's own switches that are not set.
    pub(crate) async fn list_settings(&self, actor: &Actor) -> Result<Vec<Setting>, Error> {
        actor.ensure_admin()?;
        let rows = system_setting::Entity::find().order_by_asc(system_setting::Column::Key);
        let mut found: Vec<Setting> = rows.all(self.store.read()).await?.into_iter().map(body).collect();
        for key in Switch::ALL.map(Switch::key) {
            if found.iter().all(|setting| setting.key != key) {
                found.push(unset(key));
            }
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    pub(crate) async fn get_setting(&self, actor: &Actor, key: &str) -> Result<Setting, Error> {
        actor.ensure_admin()?;
        let row = system_setting::Entity::find_by_id(key).one(self.store.read()).await?;
        let known = description(key).map(|_| unset(key));
        row.map(body).or(known).ok_or_else(|| Error::not_found("setting", key))
    }

    /// Sets a value. It applies from the next call on.
    ///
    /// Fails with [`Error::Conflict`] if `new.version` is given and not the current version.
    pub(crate) async fn set_setting(
        &self,
        actor: &Actor,
        key: &str,
        new: PutSetting,
    ) -> Result<Setting, Error> {
        const WHAT: &str = "admin.setting.set";
        self.require_admin(actor, WHAT).await?;
        let key = check::id("key", key)?;
        if description(&key).is_some() && !new.value.is_boolean() {
            return Err(Error::invalid("value", "must be true or false"));
        }
        let text = new.value.to_string();
        if text.len() > MAX_VALUE_BYTES {
            return Err(Error::invalid(
                "value",
                format!("must have at most {MAX_VALUE_BYTES} bytes as JSON"),
            ));
        }
        let open = self.begin(actor, WHAT, &json!({ "key": key, "new": new })).await?;
        let before = system_setting::Entity::find_by_id(&key).one(&*open.write).await?;
        let version = before.map_or(0, |before| before.version);
        check_version(&key, new.version, version)?;
        let row = system_setting::Model {
            key,
            value: text,
            value_type: type_of(&new.value).to_owned(),
            version: version + 1,
            updated_at: clock::now(),
            updated_by: actor.author(),
        };
        let changed = [
            system_setting::Column::Value,
            system_setting::Column::ValueType,
            system_setting::Column::Version,
            system_setting::Column::UpdatedAt,
            system_setting::Column::UpdatedBy,
        ];
        system_setting::Entity::insert(system_setting::ActiveModel::from(row.clone()))
            .on_conflict(OnConflict::column(system_setting::Column::Key).update_columns(changed).to_owned())
            .exec_without_returning(&*open.write)
            .await?;
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await?;
        Ok(body(row))
    }

    pub(crate) async fn delete_setting(
        &self,
        actor: &Actor,
        key: &str,
        version: Option<i64>,
    ) -> Result<(), Error> {
        const WHAT: &str = "admin.setting.delete";
        self.require_admin(actor, WHAT).await?;
        let open = self.begin(actor, WHAT, &json!({ "key": key, "version": version })).await?;
        let before = system_setting::Entity::find_by_id(key).one(&*open.write).await?;
        let before = before.ok_or_else(|| Error::not_found("setting", key))?;
        check_version(key, version, before.version)?;
        system_setting::Entity::delete_by_id(key).exec(&*open.write).await?;
        catalogue::bump_revision(&open.write).await?;
        self.commit(open).await
    }
}

fn check_version(key: &str, wanted: Option<i64>, version: i64) -> Result<(), Error> {
    match wanted {
        Some(wanted) if wanted != version => Err(Error::Conflict(format!(
            "`{key}` has version {version}, not {wanted}; reload it and try again"
        ))),
        _ => Ok(()),
    }
}

/// Returns the description of a switch of the gateway; `None` for other settings.
fn description(key: &str) -> Option<&'static str> {
    Switch::of(key).map(Switch::description)
}

fn unset(key: &str) -> Setting {
    Setting {
        key: key.to_owned(),
        value: Value::Bool(false),
        value_type: "boolean".to_owned(),
        version: 0,
        description: description(key).map(str::to_owned),
        updated_at: None,
        updated_by: None,
    }
}

fn body(row: system_setting::Model) -> Setting {
    Setting {
        description: description(&row.key).map(str::to_owned),
        key: row.key,
        value: stored_json(row.value),
        value_type: row.value_type,
        version: row.version,
        updated_at: Some(clock::text(row.updated_at)),
        updated_by: Some(row.updated_by),
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "json",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
