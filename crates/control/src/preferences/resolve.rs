//! Resolves entries to the effective preference of each key. Pure.

use std::collections::BTreeMap;

use serde_json::Value;
use subjects::PreferenceScope;

use store::entity::preference;

use crate::{check, value::ValueType};

/// Prefixes of the keys that configure agents.
const ROLES: [&str; 2] = ["agents.project_manager.", "agents.project_analyst."];

/// P11, P12: the entry of the narrowest scope for each key.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    /// Entries and their values, by key.
    pub(super) effective: Vec<(preference::Model, Value)>,
    /// Keys whose narrowest entry is a null.
    pub(super) masked: Vec<String>,
    /// Unusable entries, and why they were skipped.
    pub(super) skipped: Vec<(preference::Model, String)>,
}

/// Applies entries from the widest scope to the narrowest, groups in ascending order of id, each overriding
/// the one before. An unusable entry overrides nothing. The worker resolves by the same rules, so both get
/// the same result.
pub(super) fn resolve(entries: Vec<preference::Model>) -> Resolved {
    let mut resolved = Resolved::default();
    let mut usable = Vec::new();
    for entry in entries {
        match parse_entry(&entry) {
            Ok((scope, value)) => usable.push((scope, entry, value)),
            Err(why) => resolved.skipped.push((entry, why)),
        }
    }
    usable.sort_by(|(scope, one, _), (other_scope, other, _)| {
        (scope, &one.scope_id).cmp(&(other_scope, &other.scope_id))
    });
    let mut narrowest = BTreeMap::new();
    for (_, entry, value) in usable {
        narrowest.insert(entry.key.clone(), (entry, value));
    }
    for (key, (entry, value)) in narrowest {
        if value.is_null() {
            resolved.masked.push(key);
        } else {
            resolved.effective.push((entry, value));
        }
    }
    resolved.skipped.sort_by(|(one, _), (other, _)| (&one.key, &one.id).cmp(&(&other.key, &other.id)));
    resolved
}

/// Returns the scope and value of an entry, or why it is unusable.
fn parse_entry(entry: &preference::Model) -> Result<(PreferenceScope, Value), String> {
    let scope = check::parse_stored("scope", &entry.scope_type)
        .map_err(|_| format!("`{}` is not a scope", entry.scope_type))?;
    let value: Value = serde_json::from_str(&entry.value).map_err(|_| "the value is not JSON".to_owned())?;
    let value_type: Option<ValueType> = check::parse_stored("type", &entry.value_type).ok();
    if !value.is_null() && !value_type.is_some_and(|value_type| value_type.fits(&value)) {
        return Err(format!("the value is not of its type `{}`", entry.value_type));
    }
    match expected_shape(&entry.key) {
        Some((shape, fits)) if !value.is_null() && !fits(&value) => Err(format!("the value is not {shape}")),
        _ => Ok((scope, value)),
    }
}

type Predicate = fn(&Value) -> bool;

/// Returns the shape required of a key that configures agents; other keys may have any value.
fn expected_shape(key: &str) -> Option<(&'static str, Predicate)> {
    let name = ROLES.iter().find_map(|role| key.strip_prefix(role))?;
    match name {
        "additional_context"
        | "model_routing.allowed_external_providers"
        | "model_routing.fallback_provider_order" => {
            Some(("a string or an array of strings", is_string_or_strings))
        }
        "model_routing.prefer_local" => Some(("true or false", Value::is_boolean)),
        _ => None,
    }
}

fn is_string_or_strings(value: &Value) -> bool {
    value.is_string() || value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
}
