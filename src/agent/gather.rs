//! Collects context layers 3 to 5 from the handoff, and through the gateway what the handoff only names by
//! id.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use subjects::{Preference, Scope, ScopeId, Work};

use tracing::warn;

use super::{WorkError, session::Session};
use crate::context::Preferences;

const PROJECT: &str = "db.project.get";
const TASK: &str = "db.task.get";
const PREFERENCES: &str = "db.preference.list";

impl Session<'_> {
    /// P10, P12: sets the session's preferences and layers. What the handoff names by id but does not contain
    /// is fetched through the gateway.
    pub(super) async fn gather(&mut self) -> Result<(), WorkError> {
        let given = &self.handoff.context;
        let mut scope = self.handoff.scope.clone();
        if let Work::Verify(verify) = &self.handoff.work {
            // The task to verify takes precedence over the task of the scope.
            scope.task_id = Some(verify.task_id.clone());
        }
        let wanted = [
            fetch(PROJECT, given.project.is_some(), by_id("project_id", scope.project_id.as_ref())),
            fetch(TASK, given.task.is_some(), by_id("task_id", scope.task_id.as_ref())),
            fetch(PREFERENCES, given.preferences.is_some(), by_scope(&scope)),
        ];
        let wanted: Vec<_> =
            wanted.into_iter().flatten().filter(|(tool, _)| self.catalogue.has(tool)).collect();
        let asked: Vec<&str> = wanted.iter().map(|(tool, _)| *tool).collect();
        let found = self.call_all(wanted).await;
        let (mut project, mut task) = (given.project.clone(), given.task.clone());
        let mut preferences = given.preferences.clone().unwrap_or_default();
        for (tool, returned) in asked.into_iter().zip(found) {
            let returned = returned?;
            // A record that cannot be fetched is left out of its layer; the step in the trace says why.
            if returned.failed {
                continue;
            }
            let value = returned.json();
            if value.is_none() {
                warn!(handoff.id = %self.handoff.id, tool, "Fetched context unreadable; left out.");
            }
            match tool {
                PROJECT => project = value.and_then(|value| parse_record(value, "project")),
                TASK => task = value.and_then(|value| parse_record(value, "task")),
                _ => preferences = value.map(parse_preferences).unwrap_or_default(),
            }
        }
        self.preferences = Preferences::resolve(self.resources.role, &scope, &preferences);
        for skipped in &self.preferences.skipped {
            warn!(handoff.id = %self.handoff.id, skipped, "Preference ignored.");
        }
        self.layers.project = project;
        self.layers.task = task;
        self.layers.additional = self.preferences.additional_context();
        Ok(())
    }
}

/// A tool and its arguments.
type Call = (&'static str, Map<String, Value>);

fn fetch(tool: &'static str, is_given: bool, arguments: Option<Map<String, Value>>) -> Option<Call> {
    arguments.filter(|_| !is_given).map(|arguments| (tool, arguments))
}

fn by_id(name: &str, id: Option<&ScopeId>) -> Option<Map<String, Value>> {
    id.map(|id| Map::from_iter([(name.to_owned(), json!(id))]))
}

fn by_scope(scope: &Scope) -> Option<Map<String, Value>> {
    let mut arguments = Map::new();
    for (name, id) in
        [("user_id", &scope.user_id), ("project_id", &scope.project_id), ("task_id", &scope.task_id)]
    {
        if let Some(id) = id {
            arguments.insert(name.to_owned(), json!(id));
        }
    }
    if !scope.group_ids.is_empty() {
        arguments.insert("group_ids".to_owned(), json!(scope.group_ids));
    }
    (!arguments.is_empty()).then_some(arguments)
}

/// Parses a record that stands alone or in the field `name`. Its id may be called `id` or `<name>_id`.
pub(super) fn parse_record<T: DeserializeOwned>(mut value: Value, name: &str) -> Option<T> {
    if let Some(inner) = value.get_mut(name).filter(|inner| inner.is_object()) {
        value = inner.take();
    }
    let record = value.as_object_mut()?;
    if !record.contains_key("id")
        && let Some(id) = record.get(&format!("{name}_id")).cloned()
    {
        record.insert("id".to_owned(), id);
    }
    serde_json::from_value(value).ok()
}

/// Parses a list of preferences and skips unreadable entries.
fn parse_preferences(value: Value) -> Vec<Preference> {
    let list = match value {
        Value::Object(mut object) => {
            object.remove("preferences").or_else(|| object.remove("items")).unwrap_or_default()
        }
        other => other,
    };
    let entries = list.as_array().cloned().unwrap_or_default();
    entries.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect()
}
