//! Resolves entries to the effective preference of each key, for worker and gateway. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, de::IntoDeserializer};
use serde_json::Value;

use super::{Entry, Skipped};
use crate::ValueType;

/// Prefixes of the keys that configure agents.
const ROLES: [&str; 2] = ["agents.project_manager.", "agents.project_analyst."];

/// P11, P12: the entry of the narrowest scope for each key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resolved {
    pub effective: BTreeMap<String, Entry>,
    /// Keys whose narrowest entry is a null.
    pub masked: Vec<String>,
    /// Unusable entries, ordered by key and scope.
    pub skipped: Vec<Skipped>,
}

/// Applies entries from the widest scope to the narrowest (system, groups in ascending order of id, user,
/// project, task), each overriding the one before. Of two entries for the same key and scope the newer
/// version wins, whatever their order. A null hides the value of the wider scopes. An unusable entry
/// overrides nothing and is named; those that the caller cannot use come as errors.
pub fn resolve(entries: impl IntoIterator<Item = Result<Entry, Skipped>>) -> Resolved {
    let (mut usable, mut skipped) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry.and_then(check) {
            Ok(entry) => usable.push(entry),
            Err(unusable) => skipped.push(unusable),
        }
    }
    usable.sort_by(|one, other| {
        (one.scope, &one.scope_id, one.version).cmp(&(other.scope, &other.scope_id, other.version))
    });
    let narrowest: BTreeMap<String, Entry> =
        usable.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
    let (masked, effective): (BTreeMap<_, _>, _) =
        narrowest.into_iter().partition(|(_, entry)| entry.value.is_null());
    skipped.sort();
    Resolved { effective, masked: masked.into_keys().collect(), skipped }
}

/// Returns the entry if its value has its declared type and, for a key that configures agents, its shape. A
/// null always has.
fn check(entry: Entry) -> Result<Entry, Skipped> {
    if entry.value.is_null() {
        return Ok(entry);
    }
    if !has_type(&entry.value, &entry.value_type) {
        return Err(entry.skip(format!("the value is not of its type `{}`", entry.value_type)));
    }
    match expected_shape(&entry.key) {
        Some((shape, fits)) if !fits(&entry.value) => Err(entry.skip(format!("the value is not {shape}"))),
        _ => Ok(entry),
    }
}

/// Returns whether a value is of a type. No value is of an unknown type.
fn has_type(value: &Value, name: &str) -> bool {
    let known: Result<ValueType, serde::de::value::Error> = ValueType::deserialize(name.into_deserializer());
    known.is_ok_and(|value_type| value_type.fits(value))
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use subjects::PreferenceScope::{self, Group, Project, System, Task, User};

    use super::*;

    fn entry(scope: PreferenceScope, id: &str, value: Value) -> Entry {
        Entry {
            key: "k".to_owned(),
            value_type: ValueType::of(&value).as_str().to_owned(),
            value,
            scope,
            scope_id: Some(id.to_owned()).filter(|id| !id.is_empty()),
            version: 1,
        }
    }

    /// The effective value of `k`, if it has one, whatever the order of the entries.
    fn effective(mut entries: Vec<Entry>) -> Option<Value> {
        let resolved = resolve(entries.iter().cloned().map(Ok));
        entries.reverse();
        assert_eq!(resolve(entries.into_iter().map(Ok)), resolved, "the order of the entries matters");
        resolved.effective.get("k").map(|entry| entry.value.clone())
    }

    #[test]
    fn narrowest_scope_wins_and_groups_apply_in_ascending_order_of_id() {
        let mut entries = Vec::new();
        for (scope, id) in
            [(System, ""), (Group, "g-1"), (Group, "g-2"), (User, "u"), (Project, "p"), (Task, "t")]
        {
            entries.push(entry(scope, id, json!(id)));
            assert_eq!(effective(entries.clone()), Some(json!(id)), "{scope:?} {id}");
        }
    }

    #[test]
    fn newer_version_of_an_entry_wins() {
        let old = Entry { version: 9, ..entry(User, "u", json!("old")) };
        let new = Entry { version: 10, ..entry(User, "u", json!("new")) };
        assert_eq!(effective(vec![old, new]), Some(json!("new")));
    }

    #[test]
    fn null_hides_wider_scopes_only() {
        let entries = vec![entry(System, "", json!(1)), entry(User, "u", Value::Null)];
        assert_eq!(effective(entries.clone()), None);
        assert_eq!(resolve(entries.iter().cloned().map(Ok)).masked, ["k"]);
        let narrower = [entries, vec![entry(Task, "t", json!(2))]].concat();
        assert_eq!(effective(narrower.clone()), Some(json!(2)));
        assert!(resolve(narrower.into_iter().map(Ok)).masked.is_empty());
    }

    #[test]
    fn unusable_entries_override_nothing_and_are_named() {
        let wider = entry(System, "", json!("wide"));
        let context = |value| Entry {
            key: "agents.project_analyst.additional_context".to_owned(),
            ..entry(User, "u", value)
        };
        for (unusable, why) in [
            (Entry { value_type: "number".to_owned(), ..entry(User, "u", json!("x")) }, "its type `number`"),
            (Entry { value_type: "colour".to_owned(), ..entry(User, "u", json!("x")) }, "its type `colour`"),
            (context(json!(["a", 1])), "a string or an array of strings"),
        ] {
            let resolved = resolve([Ok(wider.clone()), Ok(unusable.clone())]);
            assert_eq!(resolved.effective.values().collect::<Vec<_>>(), [&wider]);
            let [skipped] = &resolved.skipped[..] else { panic!("{unusable:?}") };
            assert!(skipped.why.ends_with(why), "{skipped:?}");
            assert_eq!((&skipped.key, skipped.scope.as_str()), (&unusable.key, "user"));
        }
        let foreign = wider.skip("is of another scope");
        let resolved = resolve([Err(foreign.clone()), Ok(wider)]);
        assert_eq!((resolved.effective.len(), resolved.skipped), (1, vec![foreign]));
    }
}
