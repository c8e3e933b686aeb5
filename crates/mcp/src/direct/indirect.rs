//! The tools that must be called through rmcp instead of directly: those that expect arguments in headers,
//! and those that require input before they run. rmcp implements both; it takes the header names from the
//! list of tools.

use std::{
    collections::HashSet,
    sync::{PoisonError, RwLock},
};

use serde_json::{Map, Value};

const MARK: &str = "x-mcp-header";

/// Returns whether the input schema of a tool marks any argument as a header.
pub fn has_header_arguments(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => has_mark(object),
        Value::Array(values) => values.iter().any(has_header_arguments),
        _ => false,
    }
}

fn has_mark(object: &Map<String, Value>) -> bool {
    object.contains_key(MARK) || object.values().any(has_header_arguments)
}

/// The names of a server's indirect tools, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct IndirectTools(RwLock<HashSet<String>>);

impl IndirectTools {
    pub(super) fn contains(&self, tool: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(tool)
    }

    /// Replaces the set, given the names and input schemas of all tools in the current listing.
    pub(super) fn replace<'t>(&self, tools: impl Iterator<Item = (&'t str, &'t Map<String, Value>)>) {
        let wanting = tools.filter(|(_, schema)| has_mark(schema)).map(|(name, _)| name.to_owned());
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = wanting.collect();
    }

    /// Adds a tool that the server answered as indirect when it was called.
    pub(super) fn insert(&self, tool: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(tool.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_header_argument_is_found_at_any_depth() {
        let marked = json!({ "type": "string", MARK: "Region" });
        assert!(has_header_arguments(&json!({ "properties": { "region": marked } })));
        assert!(has_header_arguments(&json!({ "anyOf": [{ "properties": { "region": marked } }] })));
        assert!(!has_header_arguments(&json!({ "properties": { "region": { "type": "string" } } })));
    }

    #[test]
    fn a_listing_replaces_the_set_and_single_tools_can_be_added() {
        let schema = |marked: bool| {
            let header = if marked { MARK } else { "title" };
            json!({ "properties": { "a": { header: "A" } } }).as_object().cloned().unwrap_or_default()
        };
        let indirect = IndirectTools::default();
        indirect.replace([("measure", &schema(true))].into_iter());
        assert!(indirect.contains("measure") && !indirect.contains("other"));
        indirect.replace([("measure", &schema(false))].into_iter());
        assert!(!indirect.contains("measure"));
        indirect.insert("measure");
        assert!(indirect.contains("measure"));
    }
}
