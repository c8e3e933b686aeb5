//! One module for each kind of handoff, and what they share.

pub(super) mod chat;
pub(super) mod plan;
pub(super) mod resume;
pub(super) mod schedule;
pub(super) mod verify;

use serde_json::{Map, Value};

use super::session::Session;

impl Session<'_> {
    /// Returns those arguments of `known` that are set and that the tool's schema declares. A tool whose
    /// schema declares no properties gets all of them.
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
