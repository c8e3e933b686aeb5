//! Finds what a local `$ref` refers to.

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// Returns the schema that `reference` names inside `root`: by a JSON pointer (`#/$defs/a`), an anchor (`#a`)
/// or an `$id`. `None` if it is elsewhere.
pub(crate) fn resolve<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let Some(fragment) = reference.strip_prefix('#') else {
        return find(root, &|schema| schema.get("$id").and_then(Value::as_str) == Some(reference));
    };
    let fragment = percent_decode_str(fragment).decode_utf8().ok()?;
    if fragment.is_empty() || fragment.starts_with('/') {
        return root.pointer(&fragment);
    }
    let is_anchor = |schema: &Value| {
        ["$anchor", "$dynamicAnchor"]
            .iter()
            .any(|keyword| schema.get(keyword).and_then(Value::as_str) == Some(&fragment))
            || schema.get("$id").and_then(Value::as_str) == Some(reference)
    };
    find(root, &is_anchor)
}

fn find<'s>(schema: &'s Value, wanted: &dyn Fn(&Value) -> bool) -> Option<&'s Value> {
    if wanted(schema) {
        return Some(schema);
    }
    match schema {
        Value::Object(object) => object.values().find_map(|value| find(value, wanted)),
        Value::Array(items) => items.iter().find_map(|value| find(value, wanted)),
        _ => None,
    }
}
