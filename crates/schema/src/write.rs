//! Writes a [`Schema`] as JSON Schema for a model server.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use crate::shape::{Property, Schema, Shape};

/// Longest description of a property: its tokens are paid in every turn.
const MAX_DESCRIPTION: usize = 60;

/// Returns the first sentence of a text, cut at this many characters.
pub fn first_sentence(text: &str, max_chars: usize) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let sentence = line.find(". ").map_or(line, |end| &line[..=end]);
    if sentence.chars().count() <= max_chars {
        return sentence.trim().to_owned();
    }
    let cut: String = sentence.chars().take(max_chars).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{}...", cut[..end].trim_end_matches([',', ';', ':', ' ']))
}

/// What the server accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// As OpenAI's strict mode wants it: every property is required, an optional one may be null instead, and
    /// an object with any names is an array of pairs. [`Schema::restore`] turns such a value back.
    pub strict: bool,
    /// With descriptions of the properties.
    pub descriptions: bool,
    /// Leaves out what costs tokens and seldom matters: that an object has no other properties, that an
    /// optional property may also be null unless its description speaks of null, that the values of a map are
    /// scalars, and a description that only repeats the name of its property.
    pub brief: bool,
}

impl Form {
    /// For the parameters of tools: all servers accept it.
    pub const TOOL: Self = Self { strict: false, descriptions: true, brief: true };
    /// For structured outputs of a server that enforces the schema as a grammar.
    pub const GRAMMAR: Self = Self { strict: false, descriptions: false, brief: false };
    /// For structured outputs in OpenAI's strict mode.
    pub const STRICT: Self = Self { strict: true, descriptions: true, brief: false };
}

impl Schema {
    /// Returns the schema in a form that the server accepts.
    pub fn write(&self, form: Form) -> Value {
        let mut written = self.write_shape(form);
        if let Some(description) = self.description.as_ref().filter(|_| form.descriptions) {
            let short = first_sentence(description, MAX_DESCRIPTION);
            written.insert("description".to_owned(), short.into());
        }
        Value::Object(written)
    }

    fn write_shape(&self, form: Form) -> Map<String, Value> {
        let mut out = Map::new();
        let mut set = |keyword: &str, value: Value| out.insert(keyword.to_owned(), value);
        match &self.shape {
            Shape::Null => drop(set("type", "null".into())),
            Shape::Boolean => drop(set("type", "boolean".into())),
            Shape::Integer => drop(set("type", "integer".into())),
            Shape::Number => drop(set("type", "number".into())),
            Shape::String => drop(set("type", "string".into())),
            Shape::Choice(values) => {
                set("type", type_name(values.first()).into());
                set("enum", values.clone().into());
            }
            Shape::Array(items) => {
                set("type", "array".into());
                set("items", items.write(form));
            }
            Shape::Object(properties) => write_object(&mut out, properties, form),
            Shape::Map(value) if form.strict => {
                let pair = Schema::new(Shape::Object(pair(value)));
                set("type", "array".into());
                set("items", pair.write(form));
            }
            Shape::Map(value) => {
                set("type", "object".into());
                if !(form.brief && is_any_scalar(value)) {
                    set("additionalProperties", value.write(form));
                }
            }
            Shape::AnyOf(members) => {
                let (plain, others): (Vec<&Schema>, Vec<&Schema>) =
                    members.iter().partition(|member| plain_type(member).is_some());
                let types: Vec<Value> =
                    plain.iter().filter_map(|member| plain_type(member)).map(Value::from).collect();
                let types = if types.len() == 1 { types[0].clone() } else { types.into() };
                if others.is_empty() {
                    set("type", types);
                } else {
                    let either = (!plain.is_empty()).then(|| json!({ "type": types }));
                    let either = either.into_iter().chain(others.iter().map(|member| member.write(form)));
                    set("anyOf", either.collect());
                }
            }
        }
        out
    }
}

fn write_object(out: &mut Map<String, Value>, properties: &[Property], form: Form) {
    let mut written = Map::new();
    for property in properties {
        let mut value = if form.strict && !property.required && !property.schema.shape.admits_null() {
            let description = property.schema.description.clone();
            let either = vec![property.schema.clone(), Schema::new(Shape::Null)];
            Schema { description, ..Schema::any_of(either) }.write(form)
        } else if form.brief && !property.required {
            without_null(&property.schema).write(form)
        } else {
            property.schema.write(form)
        };
        if form.brief && value["description"].as_str().is_some_and(|text| repeats(text, &property.name)) {
            value.as_object_mut().and_then(|value| value.remove("description"));
        }
        written.insert(property.name.clone(), value);
    }
    let required: Vec<Value> = properties
        .iter()
        .filter(|property| form.strict || property.required)
        .map(|property| Value::from(property.name.as_str()))
        .collect();
    out.insert("type".to_owned(), "object".into());
    out.insert("properties".to_owned(), Value::Object(written));
    if form.strict || !required.is_empty() {
        out.insert("required".to_owned(), required.into());
    }
    if !form.brief {
        out.insert("additionalProperties".to_owned(), json!(false));
    }
}

/// Returns whether the text only repeats a name: "An id." for `task_id`.
fn repeats(text: &str, name: &str) -> bool {
    let words = text.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let mut telling = words.map(str::to_lowercase).filter(|word| !matches!(&**word, "a" | "an" | "the"));
    telling.all(|word| name.split('_').any(|part| part == word))
}

/// Returns whether a schema admits every value that is not an array or an object.
fn is_any_scalar(schema: &Schema) -> bool {
    let Shape::AnyOf(members) = &schema.shape else { return false };
    let admits = |shape| members.iter().any(|member| member.shape == shape);
    [Shape::Null, Shape::Boolean, Shape::Number, Shape::String].into_iter().all(admits)
}

/// Returns the schema without null, if something is left and the description does not speak of null.
fn without_null(schema: &Schema) -> Cow<'_, Schema> {
    let Shape::AnyOf(members) = &schema.shape else { return Cow::Borrowed(schema) };
    let others: Vec<Schema> = members.iter().filter(|member| member.shape != Shape::Null).cloned().collect();
    let speaks_of_null = schema.description.as_ref().is_some_and(|text| text.to_lowercase().contains("null"));
    if others.is_empty() || others.len() == members.len() || speaks_of_null {
        return Cow::Borrowed(schema);
    }
    let joined = Schema::any_of(others);
    let description = schema.description.clone().or(joined.description);
    Cow::Owned(Schema { description, shape: joined.shape })
}

/// The properties of a pair that stands for one entry of a map.
pub(crate) fn pair(value: &Schema) -> Vec<Property> {
    let name = Schema::new(Shape::String);
    vec![
        Property { name: "name".to_owned(), schema: name, required: true },
        Property { name: "value".to_owned(), schema: value.clone(), required: true },
    ]
}

/// Returns the type of a shape that says nothing else.
fn plain_type(schema: &Schema) -> Option<&'static str> {
    match &schema.shape {
        Shape::Null => Some("null"),
        Shape::Boolean => Some("boolean"),
        Shape::Integer => Some("integer"),
        Shape::Number => Some("number"),
        Shape::String => Some("string"),
        Shape::Choice(_) | Shape::Array(_) | Shape::Object(_) | Shape::Map(_) | Shape::AnyOf(_) => None,
    }
}

fn type_name(value: Option<&Value>) -> &'static str {
    match value {
        Some(Value::Bool(_)) => "boolean",
        Some(Value::Number(number)) if number.is_f64() => "number",
        Some(Value::Number(_)) => "integer",
        Some(Value::Null) => "null",
        _ => "string",
    }
}
