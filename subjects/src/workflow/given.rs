//! Steps that people and managers give for a task.
//!
//! Messages ignore fields that they do not know, so that programs of different versions understand each
//! other. In given steps such a field is a typing error, which would leave a step without its script.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::{Map, Value};

use super::Step;

/// The fields of [`Step`].
pub(super) const STEP_FIELDS: [&str; 12] = [
    "name",
    "description",
    "kind",
    "script",
    "files",
    "artifacts",
    "outputs",
    "network",
    "seconds",
    "criteria",
    "depends_on",
    "needs_approval",
];
/// The fields of [`StepFile`](super::StepFile).
pub(super) const FILE_FIELDS: [&str; 2] = ["path", "text"];

/// Deserialises given steps. Fails with the name of a field that a step does not have.
pub fn deserialize_given_steps<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Step>, D::Error> {
    let given = Vec::<Value>::deserialize(from)?;
    given.into_iter().enumerate().map(|(index, step)| read(index, step).map_err(D::Error::custom)).collect()
}

fn read(index: usize, given: Value) -> Result<Step, String> {
    let which = match given.get("name").and_then(Value::as_str) {
        Some(name) if !name.is_empty() => format!("step `{}`", super::excerpt(name)),
        _ => format!("step {}", index + 1),
    };
    let wrong = |why: String| format!("{which}: {why}");
    if let Some(step) = given.as_object() {
        check_fields(step, &STEP_FIELDS).map_err(wrong)?;
        let files = step.get("files").and_then(Value::as_array).into_iter().flatten();
        for file in files.filter_map(Value::as_object) {
            check_fields(file, &FILE_FIELDS).map_err(|why| wrong(format!("files: {why}")))?;
        }
    }
    serde_json::from_value(given).map_err(|error| wrong(error.to_string()))
}

fn check_fields(given: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    let Some(unknown) = given.keys().find(|name| !known.contains(&name.as_str())) else { return Ok(()) };
    let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    Err(format!("unknown field `{}`, expected one of {}", super::excerpt(unknown), known.join(", ")))
}
