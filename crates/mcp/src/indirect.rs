//! Which tools are not called directly: those that want some of their arguments in headers as well, and those that ask
//! for more before they answer. rmcp knows how both are done, the first from the list of tools.

use std::{
    collections::HashSet,
    sync::{PoisonError, RwLock},
};

use serde_json::{Map, Value};

const MARK: &str = "x-mcp-header";

/// Whether anything in the schema of a tool says that it belongs into a header.
pub fn wants_headers(schema: &Value) -> bool {
    match schema {
        Value::Object(object) => has_mark(object),
        Value::Array(values) => values.iter().any(wants_headers),
        _ => false,
    }
}

fn has_mark(object: &Map<String, Value>) -> bool {
    object.contains_key(MARK) || object.values().any(wants_headers)
}

/// What is known of a server's tools.
#[derive(Debug, Default)]
pub struct Indirect(RwLock<HashSet<String>>);

impl Indirect {
    pub fn has(&self, tool: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(tool)
    }

    /// From the names and input schemas of all tools, as the server lists them now.
    pub fn learn<'t>(&self, tools: impl Iterator<Item = (&'t str, &'t Map<String, Value>)>) {
        let wanting = tools.filter(|(_, schema)| has_mark(schema)).map(|(name, _)| name.to_owned());
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = wanting.collect();
    }

    /// So its server had it when it was called.
    pub fn also(&self, tool: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(tool.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_mark_is_found_wherever_it_is() {
        let marked = json!({ "type": "string", MARK: "Region" });
        assert!(wants_headers(&json!({ "properties": { "region": marked } })));
        assert!(wants_headers(&json!({ "anyOf": [{ "properties": { "region": marked } }] })));
        assert!(!wants_headers(&json!({ "properties": { "region": { "type": "string" } } })));
    }

    #[test]
    fn the_last_list_counts_and_what_a_server_says_beside_it() {
        let schema = |marked: bool| {
            let header = if marked { MARK } else { "title" };
            json!({ "properties": { "a": { header: "A" } } }).as_object().cloned().unwrap_or_default()
        };
        let indirect = Indirect::default();
        indirect.learn([("measure", &schema(true))].into_iter());
        assert!(indirect.has("measure") && !indirect.has("other"));
        indirect.learn([("measure", &schema(false))].into_iter());
        assert!(!indirect.has("measure"));
        indirect.also("measure");
        assert!(indirect.has("measure"));
    }
}
