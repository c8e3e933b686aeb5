//! System settings: list, set, delete.

use api::{PutSetting, Setting};
use policy::{InvalidProfile, MemoryProfile, Switch, is_profile_setting};
use sea_orm::{EntityTrait, QueryOrder, sea_query::OnConflict};
use serde_json::{Value, json};

use registry::catalogue;
use store::{clock, entity::system_setting};

use super::stored_json;
use crate::{Actor, Admin, Error, check};

const MAX_VALUE_BYTES: usize = 16 * 1024;

impl Admin {
    /// Lists settings by key, including the gateway's own switches that are not set. Of the switches of
    /// memory profiles, only that of the profile `default` is listed if it is not set.
    pub(crate) async fn list_settings(&self, actor: &Actor) -> Result<Vec<Setting>, Error> {
        actor.ensure_admin()?;
        let rows = system_setting::Entity::find().order_by_asc(system_setting::Column::Key);
        let mut found: Vec<Setting> = rows.all(self.store.read()).await?.into_iter().map(body).collect();
        let switches = Switch::ALL.map(|switch| switch.key().to_owned());
        for key in switches.into_iter().chain([MemoryProfile::default().network_setting()]) {
            if found.iter().all(|setting| setting.key != key) {
                found.extend(unset(&key));
            }
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    pub(crate) async fn get_setting(&self, actor: &Actor, key: &str) -> Result<Setting, Error> {
        actor.ensure_admin()?;
        let row = system_setting::Entity::find_by_id(key).one(self.store.read()).await?;
        row.map(body).or_else(|| unset(key)).ok_or_else(|| Error::not_found("setting", key))
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
        check_profile_key(&key)?;
        if switch(&key).is_some() && !new.value.is_boolean() {
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

/// Returns whether a setting is listed also if it is not set.
pub(crate) fn is_permanent_setting(key: &str) -> bool {
    Switch::of(key).is_some() || MemoryProfile::default().network_setting() == key
}

/// A switch of the gateway: what it does, and its value if it is not set.
struct KnownSwitch {
    description: String,
    default: bool,
}

/// Returns the switch with this key; `None` for other settings.
fn switch(key: &str) -> Option<KnownSwitch> {
    if let Some(switch) = Switch::of(key) {
        return Some(KnownSwitch { description: switch.description().to_owned(), default: false });
    }
    let profile = MemoryProfile::of_network_setting(key)?;
    let default = profile.may_reach_network_by_default();
    let description = format!(
        "Whether agents with the memory profile {profile} may call tools that reach the network, such as all \
         tools of upstream servers. {} if not set.",
        if default { "On" } else { "Off" }
    );
    Some(KnownSwitch { description, default })
}

/// Refuses a key that looks like a switch of a memory profile and is none: it would have no effect.
fn check_profile_key(key: &str) -> Result<(), Error> {
    if !is_profile_setting(key) || MemoryProfile::of_network_setting(key).is_some() {
        return Ok(());
    }
    let example = MemoryProfile::default().network_setting();
    let message = format!(
        "must be profile.NAME.network, such as {example}; {InvalidProfile}. The profile of a user is the \
         preference {}, in the scope of the user",
        MemoryProfile::USER_SETTING
    );
    Err(Error::invalid("key", message))
}

/// Returns a switch that is not set; `None` for other settings.
fn unset(key: &str) -> Option<Setting> {
    let KnownSwitch { description, default } = switch(key)?;
    Some(Setting {
        key: key.to_owned(),
        value: Value::Bool(default),
        value_type: "boolean".to_owned(),
        version: 0,
        description: Some(description),
        updated_at: None,
        updated_by: None,
    })
}

fn body(row: system_setting::Model) -> Setting {
    Setting {
        description: switch(&row.key).map(|switch| switch.description),
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
