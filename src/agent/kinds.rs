pub(super) mod chat;
pub(super) mod plan;
pub(super) mod resume;
pub(super) mod schedule;
pub(super) mod verify;

use serde_json::{Map, Value};

use super::session::Session;

impl Session<'_> {
    /// What of `known` a tool has a place for. A tool whose schema names nothing gets all of it.
    pub(super) fn arguments_for(&self, tool: &str, known: &[(&str, Option<Value>)]) -> Map<String, Value> {
        let schema = self.catalogue.get(tool).map(|tool| &tool.input_schema);
        let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
        known
            .iter()
            .filter(|(name, _)| properties.is_none_or(|properties| properties.contains_key(*name)))
            .filter_map(|(name, value)| Some(((*name).to_owned(), value.clone()?)))
            .collect()
    }
}
