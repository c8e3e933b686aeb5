use std::collections::BTreeMap;

use serde_json::Value;
use subjects::PreferenceScope;

use crate::{
    store::entity::preference,
    tools::{check, value::ValueType},
};

const ROLES: [&str; 2] = ["agents.project_manager.", "agents.project_analyst."];

/// P11, P12: for each key the entry of the narrowest scope.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    pub(super) held: Vec<(preference::Model, Value)>,
    /// Keys whose narrowest entry is a null.
    pub(super) masked: Vec<String>,
    /// Entries that were passed over, and why.
    pub(super) skipped: Vec<(preference::Model, String)>,
}

/// Scopes apply from the widest to the narrowest, groups in ascending order of id, each overriding the one before. An
/// entry that cannot be used overrides nothing. The worker resolves in the same way, so both come to the same.
pub(super) fn resolve(entries: Vec<preference::Model>) -> Resolved {
    let mut resolved = Resolved::default();
    let mut applying = Vec::new();
    for entry in entries {
        match usable(&entry) {
            Ok((scope, value)) => applying.push((scope, entry, value)),
            Err(why) => resolved.skipped.push((entry, why)),
        }
    }
    applying.sort_by(|(scope, one, _), (other_scope, other, _)| {
        (scope, &one.scope_id).cmp(&(other_scope, &other.scope_id))
    });
    let mut held = BTreeMap::new();
    for (_, entry, value) in applying {
        held.insert(entry.key.clone(), (entry, value));
    }
    for (key, (entry, value)) in held {
        if value.is_null() {
            resolved.masked.push(key);
        } else {
            resolved.held.push((entry, value));
        }
    }
    resolved.skipped.sort_by(|(one, _), (other, _)| (&one.key, &one.id).cmp(&(&other.key, &other.id)));
    resolved
}

fn usable(entry: &preference::Model) -> Result<(PreferenceScope, Value), String> {
    let scope = check::stored("scope", &entry.scope_type)
        .map_err(|_| format!("`{}` is no scope", entry.scope_type))?;
    let value: Value = serde_json::from_str(&entry.value).map_err(|_| "the value is not JSON".to_owned())?;
    let value_type: Option<ValueType> = check::stored("type", &entry.value_type).ok();
    if !value.is_null() && !value_type.is_some_and(|value_type| value_type.fits(&value)) {
        return Err(format!("the value is not of its type `{}`", entry.value_type));
    }
    match wanted_shape(&entry.key) {
        Some((shape, fits)) if !value.is_null() && !fits(&value) => Err(format!("the value is not {shape}")),
        _ => Ok((scope, value)),
    }
}

type Fits = fn(&Value) -> bool;

/// What the keys that agents go by must look like; the others are whatever they are.
fn wanted_shape(key: &str) -> Option<(&'static str, Fits)> {
    let own = ROLES.iter().find_map(|role| key.strip_prefix(role))?;
    match own {
        "additional_context"
        | "model_routing.allowed_external_providers"
        | "model_routing.fallback_provider_order" => Some(("a string or an array of strings", is_texts)),
        "model_routing.prefer_local" => Some(("true or false", Value::is_boolean)),
        _ => None,
    }
}

fn is_texts(value: &Value) -> bool {
    value.is_string() || value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
}
