//! Which tools want some of their arguments in headers as well. rmcp knows how that is done, from the list of tools.

use std::{
    collections::HashSet,
    sync::{PoisonError, RwLock},
};

use serde_json::{Map, Value};

const MARK: &str = "x-mcp-header";

/// Whether anything in the schema of a tool says so.
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
pub struct WantedHeaders(RwLock<HashSet<String>>);

impl WantedHeaders {
    pub fn are_wanted(&self, tool: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(tool)
    }

    /// From the names and input schemas of all tools, as the server lists them now.
    pub fn learn<'t>(&self, tools: impl Iterator<Item = (&'t str, &'t Map<String, Value>)>) {
        let wanting = tools.filter(|(_, schema)| has_mark(schema)).map(|(name, _)| name.to_owned());
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = wanting.collect();
    }

    /// Its server said so when it was called.
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
        let headers = WantedHeaders::default();
        headers.learn([("measure", &schema(true))].into_iter());
        assert!(headers.are_wanted("measure") && !headers.are_wanted("other"));
        headers.learn([("measure", &schema(false))].into_iter());
        assert!(!headers.are_wanted("measure"));
        headers.also("measure");
        assert!(headers.are_wanted("measure"));
    }
}
