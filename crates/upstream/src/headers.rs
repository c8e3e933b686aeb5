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
        Value::Object(object) => object.contains_key(MARK) || object.values().any(wants_headers),
        Value::Array(values) => values.iter().any(wants_headers),
        _ => false,
    }
}

/// What is known of a server's tools.
#[derive(Debug, Default)]
pub(crate) struct Headers(RwLock<HashSet<String>>);

impl Headers {
    pub(crate) fn are_wanted(&self, tool: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains(tool)
    }

    /// From the list of tools as the server wrote it.
    pub(crate) fn learn(&self, tools: &[Map<String, Value>]) {
        let wanting = tools.iter().filter(|tool| tool.get("inputSchema").is_some_and(wants_headers));
        let names = wanting.filter_map(|tool| Some(tool.get("name")?.as_str()?.to_owned()));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = names.collect();
    }

    /// Its server said so when it was called.
    pub(crate) fn also(&self, tool: &str) {
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
        let list = |marked: bool| {
            let header = if marked { MARK } else { "title" };
            let tool =
                json!({ "name": "measure", "inputSchema": { "properties": { "a": { header: "A" } } } });
            [tool.as_object().cloned().unwrap_or_default()]
        };
        let headers = Headers::default();
        headers.learn(&list(true));
        assert!(headers.are_wanted("measure") && !headers.are_wanted("other"));
        headers.learn(&list(false));
        assert!(!headers.are_wanted("measure"));
        headers.also("measure");
        assert!(headers.are_wanted("measure"));
    }
}
