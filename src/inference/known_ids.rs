//! The ids that a conversation knows. A model cannot invent one if the schema of its step only has these.

use std::collections::BTreeMap;

use schema::{Property, Schema, Shape};
use serde_json::Value;
use subjects::Message;

use super::Request;

/// At most this many ids are offered for one property.
const MAX_CHOICES: usize = 64;

/// A list that goes on returns one as `next_cursor` and takes it as `cursor`.
const NEXT_CURSOR: &str = "next_cursor";
const CURSOR: &str = "cursor";

/// The ids, by where they were found.
#[derive(Debug, Default)]
pub(super) struct KnownIds {
    /// By the name of the field that held them.
    fields: BTreeMap<String, Vec<String>>,
    /// Words of people that may be ids or names. Their kind is not known, so only a property that must be
    /// given takes them: tasks can be referred to by their names.
    written: Vec<String>,
    /// A result was cut or has more pages, so that there are ids that are not known.
    is_incomplete: bool,
}

impl KnownIds {
    /// Collects the ids in the context, in the results of calls and in what people wrote.
    pub(super) fn collect(request: &Request<'_>) -> Self {
        let mut known = Self::default();
        for line in request.system.handoff_lines() {
            let field = line.trim_start_matches(['>', ' ']).split_once(": ");
            if let Some((name, value)) = field.filter(|(name, _)| is_id(name)) {
                known.add(name, value.trim());
            }
        }
        for message in request.messages {
            match message {
                Message::Tool { content, .. } => {
                    match serde_json::from_str(content) {
                        Ok(result) => known.add_result(&result),
                        // A result that is no JSON has no ids, unless it is the beginning of some.
                        Err(_) => known.is_incomplete |= content.trim_start().starts_with(['{', '[']),
                    }
                }
                Message::User { content } => known.add_written(content),
                Message::Assistant { .. } => {}
            }
        }
        known
    }

    fn add(&mut self, name: &str, id: &str) {
        push_new(self.fields.entry(name.to_owned()).or_default(), id);
    }

    fn add_result(&mut self, result: &Value) {
        match result {
            Value::Object(object) => {
                for (name, value) in object {
                    match value {
                        Value::String(id) if is_id(name) => self.add(name, id),
                        Value::String(cursor) if name == NEXT_CURSOR => {
                            self.add(CURSOR, cursor);
                            self.is_incomplete = true;
                        }
                        value => self.add_result(value),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_result(item)),
            _ => {}
        }
    }

    /// Adds the words of a text that look like ids or names: with a hyphen inside, as in `t-1`, `deploy-docs`
    /// or a UUID.
    fn add_written(&mut self, text: &str) {
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
        for word in text.split(|c: char| !is_part(c)).map(|word| word.trim_matches('-')) {
            if word.contains('-') {
                push_new(&mut self.written, word);
            }
        }
    }

    /// Returns the ids that were found for a property: `parent_task_id` takes those of `task_id`.
    fn found(&self, property: &Property) -> Vec<&str> {
        let name = property.name.strip_suffix('s').unwrap_or(&property.name);
        let fits = |field: &&String| name.ends_with(field.as_str());
        let ids = self.fields.iter().filter(|(field, _)| fits(field)).flat_map(|(_, ids)| ids);
        ids.map(String::as_str).collect()
    }

    /// Returns the schema with only known ids, where all are known. An optional id of which none is known is
    /// left out; a required one stays free, so that the tool can say what is wrong.
    pub(super) fn restrict(&self, schema: &Schema) -> Schema {
        let Shape::Object(properties) = &schema.shape else { return schema.clone() };
        let restricted = properties.iter().filter_map(|property| {
            if !is_id(&property.name) || (self.is_incomplete && property.name != CURSOR) {
                return Some(property.clone());
            }
            let found = self.found(property);
            if found.is_empty() {
                return property.required.then(|| property.clone());
            }
            let written = self.written.iter().filter(|_| property.required).map(String::as_str);
            let choices: Vec<Value> = found.into_iter().chain(written).map(Value::from).collect();
            if choices.len() > MAX_CHOICES {
                return Some(property.clone());
            }
            let choice = Schema { description: None, shape: Shape::Choice(choices) };
            let shape = match &property.schema.shape {
                Shape::Array(items) if admits_text(&items.shape) => Shape::Array(Box::new(choice)),
                shape if admits_text(shape) => choice.shape,
                _ => return Some(property.clone()),
            };
            let description = property.schema.description.clone();
            Some(Property { schema: Schema { description, shape }, ..property.clone() })
        });
        Schema { description: schema.description.clone(), shape: Shape::Object(restricted.collect()) }
    }
}

fn admits_text(shape: &Shape) -> bool {
    match shape {
        Shape::String => true,
        Shape::AnyOf(members) => members.iter().any(|member| admits_text(&member.shape)),
        _ => false,
    }
}

fn push_new(ids: &mut Vec<String>, id: &str) {
    if !id.is_empty() && !ids.iter().any(|known| known == id) {
        ids.push(id.to_owned());
    }
}

fn is_id(name: &str) -> bool {
    name == "id" || name == CURSOR || name.ends_with("_id") || name.ends_with("_ids")
}

#[cfg(test)]
mod tests {
    use schema::Form;
    use serde_json::json;

    use super::*;

    #[test]
    fn only_known_ids_can_be_chosen() {
        let mut known = KnownIds::default();
        known.add_result(&json!({ "tasks": [{ "task_id": "t-1", "name": "a" }, { "task_id": "t-2" }] }));
        known.add_written("Please look at p-7, and soon.");
        let tool = Schema::read(&json!({
            "type": "object",
            "properties": {
                "task_id": { "type": "string" },
                "parent_task_id": { "type": "string" },
                "name": { "type": "string" },
            },
            "required": ["task_id"],
        }));
        let written = known.restrict(&tool).write(Form::GRAMMAR);
        assert_eq!(written["properties"]["task_id"]["enum"], json!(["t-1", "t-2", "p-7"]));
        assert_eq!(written["properties"]["parent_task_id"]["enum"], json!(["t-1", "t-2"]));
        assert_eq!(written["properties"]["name"], json!({ "type": "string" }));
        let numbered = Schema::read(&json!({
            "type": "object", "properties": { "task_id": { "type": "integer" } }, "required": ["task_id"],
        }));
        let numbered = known.restrict(&numbered).write(Form::GRAMMAR);
        assert_eq!(numbered["properties"]["task_id"], json!({ "type": "integer" }));
        known.add_result(&json!({ "items": [], "next_cursor": "c" }));
        let paged = known.restrict(&tool).write(Form::GRAMMAR);
        assert_eq!(paged["properties"]["task_id"], json!({ "type": "string" }), "there are more ids");
        let unknown = KnownIds::default().restrict(&tool).write(Form::GRAMMAR);
        assert_eq!(unknown["properties"]["task_id"], json!({ "type": "string" }));
        assert_eq!(unknown["properties"].get("parent_task_id"), None);
    }
}
