//! `db.preference.*`: preferences in scopes, and their resolution.

mod resolve;

pub use resolve::{Resolved, resolve};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use subjects::{PreferenceScope, ScopeId};

use crate::tool;

pub const MAX_KEY_BYTES: usize = 128;
pub const MAX_GROUPS: usize = 100;

/// An entry, in the shape of the contract (`subjects::Preference`) and who changed it last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Preference {
    pub key: String,
    /// A null hides what wider scopes have.
    pub value: Value,
    pub value_type: String,
    pub scope: PreferenceScope,
    /// Absent in the system's scope.
    pub scope_id: Option<String>,
    pub version: i64,
    pub updated_at: String,
    pub updated_by: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct List {
    pub user_id: Option<ScopeId>,
    #[schemars(length(max = MAX_GROUPS))]
    pub group_ids: Vec<ScopeId>,
    pub project_id: Option<ScopeId>,
    pub task_id: Option<ScopeId>,
    /// Only entries of this scope.
    pub scope: Option<PreferenceScope>,
    /// Only keys that begin so: `agents.`
    #[schemars(length(max = MAX_KEY_BYTES))]
    pub key_prefix: Option<String>,
    pub limit: Option<u64>,
    pub cursor: Option<String>,
}

tool!("db.preference.list": List => PreferenceList);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PreferenceList {
    // Of a list from a newer gateway a caller takes the entries that it can read.
    #[serde(deserialize_with = "readable")]
    pub preferences: Vec<Preference>,
    /// Give this as `cursor` to get the next piece; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Effective {
    /// The user of the task when not given.
    pub user_id: Option<ScopeId>,
    #[schemars(length(max = MAX_GROUPS))]
    pub group_ids: Vec<ScopeId>,
    /// The project of the task when not given.
    pub project_id: Option<ScopeId>,
    pub task_id: Option<ScopeId>,
    /// Only keys that begin so: `agents.`
    #[schemars(length(max = MAX_KEY_BYTES))]
    pub key_prefix: Option<String>,
    pub limit: Option<u64>,
    pub cursor: Option<String>,
}

tool!("db.preference.effective": Effective => EffectivePreferences);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EffectivePreferences {
    pub preferences: Vec<Entry>,
    /// Keys that a null hides.
    pub masked: Vec<String>,
    /// Entries that could not be used; those of wider scopes apply instead.
    pub skipped: Vec<Skipped>,
    /// Give this as `cursor` to get the next piece; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

// What is resolved: a value and where it is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Entry {
    pub key: String,
    pub value: Value,
    pub value_type: String,
    /// Where it comes from.
    pub scope: PreferenceScope,
    pub scope_id: Option<String>,
    pub version: i64,
}

impl Entry {
    /// Returns the entry as one that cannot be used, with the reason.
    pub fn skip(&self, why: impl Into<String>) -> Skipped {
        Skipped {
            key: self.key.clone(),
            scope: self.scope.as_str().to_owned(),
            scope_id: self.scope_id.clone(),
            why: why.into(),
        }
    }
}

impl From<Preference> for Entry {
    fn from(entry: Preference) -> Self {
        let Preference { key, value, value_type, scope, scope_id, version, .. } = entry;
        Self { key, value, value_type, scope, scope_id, version }
    }
}

// The preferences that a handoff brings along.
impl From<subjects::Preference> for Entry {
    fn from(entry: subjects::Preference) -> Self {
        Self {
            key: entry.key,
            value: entry.value,
            value_type: entry.value_type,
            scope: entry.scope,
            scope_id: entry.scope_id.map(String::from),
            version: i64::try_from(entry.version).unwrap_or(i64::MAX),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Skipped {
    pub key: String,
    // Not a `PreferenceScope`, since it may be what is wrong with the entry.
    pub scope: String,
    pub scope_id: Option<String>,
    pub why: String,
}

fn readable<'de, D: Deserializer<'de>>(list: D) -> Result<Vec<Preference>, D::Error> {
    let entries: Vec<Value> = Vec::deserialize(list)?;
    Ok(entries.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unreadable_entries_of_a_list_are_left_out() {
        let readable = json!({
            "key": "editor.theme", "value": "dark", "value_type": "string", "scope": "system",
            "scope_id": null, "version": 1, "updated_at": "2026-01-01T00:00:00Z", "updated_by": "admin",
        });
        let list = json!({ "preferences": [{ "nonsense": true }, readable, 7] });
        let list: PreferenceList = serde_json::from_value(list).unwrap();
        let keys: Vec<&str> = list.preferences.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!(keys, ["editor.theme"]);
    }
}
