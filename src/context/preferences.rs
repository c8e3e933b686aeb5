//! Resolves which preferences apply to a handoff.

use std::collections::BTreeMap;

use serde_json::Value;
use subjects::{Preference, PreferenceApplied, PreferenceScope, Role, Scope, ScopeId};

/// The effective preferences of one handoff: for each key the entry of the narrowest scope.
///
/// Scopes apply from the widest to the narrowest (system, groups in ascending order of id, user, project,
/// task), each overriding the one before. A `null` unsets the value of the wider scopes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Preferences {
    role: Option<Role>,
    effective: BTreeMap<String, Preference>,
    /// Descriptions of the entries that were ignored.
    pub(crate) skipped: Vec<String>,
}

/// P19: which providers the role may use, and in which order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Routing {
    pub(crate) prefer_local: bool,
    /// External providers are only used if a preference allows them by name.
    pub(crate) allowed_external_providers: Vec<String>,
    pub(crate) fallback_provider_order: Vec<String>,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            prefer_local: true,
            allowed_external_providers: Vec::new(),
            fallback_provider_order: Vec::new(),
        }
    }
}

impl Preferences {
    /// P11, P12: resolves the entries that apply to this scope. Keys of the other role are ignored; unknown
    /// keys are kept.
    pub(crate) fn resolve(role: Role, scope: &Scope, entries: &[Preference]) -> Self {
        if entries.is_empty() {
            return Self { role: Some(role), ..Self::default() };
        }
        let mut skipped = Vec::new();
        let other = format!("agents.{}.", role.other());
        let mut applying: Vec<&Preference> = Vec::new();
        for entry in entries.iter().filter(|entry| !entry.key.starts_with(&other)) {
            match rejection(role, scope, entry) {
                None => applying.push(entry),
                Some(fault) => skipped.push(format!("{} ({:?} scope): {fault}", entry.key, entry.scope)),
            }
        }
        // Of two entries for the same key and scope the newer version wins, whatever their order.
        applying.sort_by_key(|entry| {
            (entry.scope, entry.scope_id.clone().map(|id| id.to_string()), entry.version)
        });
        let mut effective = BTreeMap::new();
        for entry in applying {
            effective.insert(entry.key.clone(), entry.clone());
        }
        skipped.sort();
        Self { role: Some(role), effective, skipped }
    }

    /// Returns the effective value of a key, if it has one.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.effective.get(key).map(|entry| &entry.value).filter(|value| !value.is_null())
    }

    /// Returns the keys of this role that have a value, with the scope and version of each.
    pub(crate) fn applied(&self) -> Vec<PreferenceApplied> {
        let own = self.role.map(|role| format!("agents.{role}."));
        let is_of_role = |key: &str| own.as_ref().is_some_and(|own| key.starts_with(own.as_str()));
        self.effective
            .values()
            .filter(|entry| is_of_role(&entry.key) && !entry.value.is_null())
            .map(|entry| PreferenceApplied {
                key: entry.key.clone(),
                scope: entry.scope,
                version: entry.version,
            })
            .collect()
    }

    /// Returns the texts of layer 5.
    pub(crate) fn additional_context(&self) -> Vec<String> {
        self.role_value("additional_context").map(strings).unwrap_or_default()
    }

    pub(crate) fn routing(&self) -> Routing {
        let defaults = Routing::default();
        if self.effective.is_empty() {
            return defaults;
        }
        let list = |key: &str| self.role_value(key).map(strings);
        Routing {
            prefer_local: self
                .role_value("model_routing.prefer_local")
                .and_then(Value::as_bool)
                .unwrap_or(defaults.prefer_local),
            allowed_external_providers: list("model_routing.allowed_external_providers").unwrap_or_default(),
            fallback_provider_order: list("model_routing.fallback_provider_order").unwrap_or_default(),
        }
    }

    /// Returns the effective value of `agents.<role>.<key>`.
    fn role_value(&self, key: &str) -> Option<&Value> {
        if self.effective.is_empty() {
            return None;
        }
        self.get(&format!("agents.{}.{key}", self.role?))
    }
}

/// Returns why an entry cannot be used, or `None` if it can.
fn rejection(role: Role, scope: &Scope, entry: &Preference) -> Option<String> {
    if !applies(scope, entry.scope, entry.scope_id.as_ref()) {
        return Some("is of another scope than this handoff".to_owned());
    }
    if entry.value.is_null() {
        return None;
    }
    if !matches_type(&entry.value, &entry.value_type) {
        return Some(format!("is not of its type `{}`", entry.value_type));
    }
    let shape = shape_of(entry.key.strip_prefix(&format!("agents.{role}.")).unwrap_or_default());
    (!shape.fits(&entry.value)).then(|| format!("is not {}", shape.describe()))
}

/// Whether an entry at `level` with this id applies to the scope. Without an id it applies to any user,
/// project or task, but to no group.
fn applies(scope: &Scope, level: PreferenceScope, id: Option<&ScopeId>) -> bool {
    let is = |own: &Option<ScopeId>| own.is_some() && (id.is_none() || own.as_ref() == id);
    match level {
        PreferenceScope::System => true,
        PreferenceScope::Group => id.is_some_and(|id| scope.group_ids.contains(id)),
        PreferenceScope::User => is(&scope.user_id),
        PreferenceScope::Project => is(&scope.project_id),
        PreferenceScope::Task => is(&scope.task_id),
    }
}

fn matches_type(value: &Value, value_type: &str) -> bool {
    match value_type {
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "json" => true,
        _ => false,
    }
}

/// The type that the value of a known key must have.
#[derive(Clone, Copy)]
enum Shape {
    Any,
    Strings,
    Boolean,
}

fn shape_of(own_key: &str) -> Shape {
    match own_key {
        "additional_context"
        | "model_routing.allowed_external_providers"
        | "model_routing.fallback_provider_order" => Shape::Strings,
        "model_routing.prefer_local" => Shape::Boolean,
        _ => Shape::Any,
    }
}

impl Shape {
    fn fits(self, value: &Value) -> bool {
        match self {
            Self::Any => true,
            Self::Boolean => value.is_boolean(),
            Self::Strings => {
                value.is_string() || value.as_array().is_some_and(|items| items.iter().all(Value::is_string))
            }
        }
    }

    fn describe(self) -> &'static str {
        match self {
            Self::Any => "anything",
            Self::Boolean => "true or false",
            Self::Strings => "a string or an array of strings",
        }
    }
}

fn strings(value: &Value) -> Vec<String> {
    let texts = match value {
        Value::String(text) => vec![text.as_str()],
        Value::Array(items) => items.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    texts.into_iter().filter(|text| !text.trim().is_empty()).map(str::to_owned).collect()
}
