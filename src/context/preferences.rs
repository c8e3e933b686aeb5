//! Resolves which preferences apply to a handoff.

use std::collections::BTreeMap;

use contract::preference::{Entry, Skipped, resolve};
use serde_json::Value;
use subjects::{PreferenceApplied, PreferenceScope, Role, Scope, ScopeId};

/// The effective preferences of one handoff: for each key the entry of the narrowest scope, see [`resolve`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Preferences {
    role: Option<Role>,
    effective: BTreeMap<String, Entry>,
    /// The entries that were ignored.
    pub(crate) skipped: Vec<Skipped>,
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
    pub(crate) fn resolve(role: Role, scope: &Scope, entries: impl IntoIterator<Item = Entry>) -> Self {
        let other = format!("agents.{}.", role.other());
        let entries = entries.into_iter().filter(|entry| !entry.key.starts_with(&other));
        let resolved = resolve(entries.map(|entry| match applies(scope, &entry) {
            true => Ok(entry),
            false => Err(entry.skip("is of another scope than this handoff")),
        }));
        Self { role: Some(role), effective: resolved.effective, skipped: resolved.skipped }
    }

    /// Returns the effective value of a key, if it has one.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.effective.get(key).map(|entry| &entry.value)
    }

    /// Returns the keys of this role that have a value, with the scope and version of each.
    pub(crate) fn applied(&self) -> Vec<PreferenceApplied> {
        let own = self.role.map(|role| format!("agents.{role}."));
        let is_of_role = |key: &str| own.as_ref().is_some_and(|own| key.starts_with(own.as_str()));
        self.effective
            .values()
            .filter(|entry| is_of_role(&entry.key))
            .map(|entry| PreferenceApplied {
                key: entry.key.clone(),
                scope: entry.scope,
                version: u64::try_from(entry.version).unwrap_or_default(),
            })
            .collect()
    }

    /// Returns the texts of layer 5.
    pub(crate) fn additional_context(&self) -> Vec<String> {
        self.role_value("additional_context").map(strings).unwrap_or_default()
    }

    pub(crate) fn routing(&self) -> Routing {
        let defaults = Routing::default();
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

/// Returns whether an entry applies to the scope. Without an id it applies to any user, project or task, but
/// not to a group.
fn applies(scope: &Scope, entry: &Entry) -> bool {
    let id = entry.scope_id.as_deref();
    let is = |own: &Option<ScopeId>| own.as_ref().is_some_and(|own| id.is_none_or(|id| own.as_str() == id));
    match entry.scope {
        PreferenceScope::System => true,
        PreferenceScope::Group => id.is_some_and(|id| scope.group_ids.iter().any(|own| own.as_str() == id)),
        PreferenceScope::User => is(&scope.user_id),
        PreferenceScope::Project => is(&scope.project_id),
        PreferenceScope::Task => is(&scope.task_id),
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
