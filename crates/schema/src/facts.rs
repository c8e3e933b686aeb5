//! What the keywords of a schema say, collected over its references and `allOf`.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::pointer;

/// References are followed this far within one conjunction; further ones say nothing.
const MAX_REFERENCES: usize = 32;

/// The JSON types. An integer is a number too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    String,
    Integer,
    Number,
    Boolean,
    Array,
    Object,
    Null,
}

impl Kind {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "array" => Self::Array,
            "object" => Self::Object,
            "null" => Self::Null,
            _ => return None,
        })
    }

    pub(crate) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(_) => Self::Boolean,
            Value::Number(number) if number.is_f64() => Self::Number,
            Value::Number(_) => Self::Integer,
            Value::String(_) => Self::String,
            Value::Array(_) => Self::Array,
            Value::Object(_) => Self::Object,
        }
    }
}

/// What is said about a value by several schemas that must all hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts<'s> {
    /// The JSON types that are possible; `None` if nothing is said.
    pub(crate) kinds: Option<BTreeSet<Kind>>,
    /// The values of `enum` or `const`.
    pub(crate) values: Option<Vec<&'s Value>>,
    /// Properties as they are found, each with all that must hold for it.
    pub(crate) properties: Vec<(&'s str, Vec<&'s Value>)>,
    pub(crate) required: BTreeSet<&'s str>,
    pub(crate) additional: Option<&'s Value>,
    /// What must hold for every item.
    pub(crate) items: Vec<&'s Value>,
    /// What must hold for the items at the beginning of an array, each for one place.
    pub(crate) first_items: Vec<&'s Value>,
    /// Groups of which one member each must hold.
    pub(crate) alternatives: Vec<&'s [Value]>,
    pub(crate) description: Option<&'s str>,
    /// What the shape cannot say, in words.
    pub(crate) hints: Vec<String>,
    pub(crate) nullable: bool,
    /// The references that were followed.
    pub(crate) followed: Vec<&'s str>,
}

impl<'s> Facts<'s> {
    /// Collects what all of `schemas` say. References that are in `open` are not followed: they would never
    /// end.
    pub(crate) fn collect(root: &'s Value, schemas: &[&'s Value], open: &[&'s str]) -> Self {
        let mut facts = Self::default();
        for schema in schemas {
            facts.add(root, schema, open);
        }
        facts
    }

    /// Adds what one more schema says.
    pub(crate) fn add(&mut self, root: &'s Value, schema: &'s Value, open: &[&'s str]) {
        let Value::Object(schema) = schema else { return };
        for keyword in ["$ref", "$dynamicRef", "$recursiveRef"] {
            let Some(reference) = schema.get(keyword).and_then(Value::as_str) else { continue };
            let is_new = !open.contains(&reference) && !self.followed.contains(&reference);
            if is_new && self.followed.len() < MAX_REFERENCES {
                self.followed.push(reference);
                if let Some(target) = pointer::resolve(root, reference) {
                    self.add(root, target, open);
                }
            }
        }
        for part in list(schema, "allOf") {
            self.add(root, part, open);
        }
        self.add_kinds(schema);
        self.add_object(schema);
        self.add_array(schema);
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(members)) = schema.get(keyword)
                && !members.is_empty()
            {
                self.alternatives.push(members);
            }
        }
        if let Some(text) = schema.get("description").and_then(Value::as_str) {
            self.description = Some(text);
        }
        self.nullable |= schema.get("nullable") == Some(&Value::Bool(true));
        self.hints.extend(hints(schema));
    }

    fn add_kinds(&mut self, schema: &'s Map<String, Value>) {
        let kinds: Option<BTreeSet<Kind>> = match schema.get("type") {
            Some(Value::String(name)) => Kind::parse(name).map(|kind| BTreeSet::from([kind])),
            Some(Value::Array(names)) => {
                Some(names.iter().filter_map(Value::as_str).filter_map(Kind::parse).collect())
            }
            _ => None,
        };
        if let Some(kinds) = kinds.filter(|kinds| !kinds.is_empty()) {
            self.kinds = Some(match self.kinds.take() {
                Some(known) => intersect(&known, &kinds),
                None => kinds,
            });
        }
        let values: Option<Vec<&Value>> = match (schema.get("const"), schema.get("enum")) {
            (Some(value), _) => Some(vec![value]),
            (None, Some(Value::Array(values))) => Some(values.iter().collect()),
            _ => None,
        };
        if let Some(values) = values {
            self.values = Some(match self.values.take() {
                Some(known) => known.into_iter().filter(|value| values.contains(value)).collect(),
                None => values,
            });
        }
    }

    fn add_object(&mut self, schema: &'s Map<String, Value>) {
        if let Some(Value::Object(properties)) = schema.get("properties") {
            for (name, property) in properties {
                match self.properties.iter_mut().find(|(known, _)| known == name) {
                    Some((_, all)) => all.push(property),
                    None => self.properties.push((name, vec![property])),
                }
            }
        }
        self.required.extend(list(schema, "required").iter().filter_map(Value::as_str));
        let pattern = schema.get("patternProperties").and_then(Value::as_object);
        let additional = schema.get("additionalProperties").filter(|value| **value != Value::Bool(false));
        let additional = additional.or_else(|| pattern.and_then(|all| all.values().next()));
        self.additional = self.additional.or(additional);
    }

    fn add_array(&mut self, schema: &'s Map<String, Value>) {
        match schema.get("items") {
            Some(Value::Array(first)) => self.first_items.extend(first),
            Some(items) => self.items.push(items),
            None => {}
        }
        self.first_items.extend(list(schema, "prefixItems"));
    }

    /// Returns the possible JSON types. If no `type` says it, the other keywords do: a schema with
    /// `properties` is meant for an object.
    pub(crate) fn possible_kinds(&self) -> Option<BTreeSet<Kind>> {
        if let Some(kinds) = &self.kinds {
            return Some(kinds.clone());
        }
        let is_object = !self.properties.is_empty() || !self.required.is_empty() || self.additional.is_some();
        let is_array = !self.items.is_empty() || !self.first_items.is_empty();
        let said = [(Kind::Object, is_object), (Kind::Array, is_array)];
        let kinds: BTreeSet<Kind> = said.iter().filter(|(_, is)| *is).map(|(kind, _)| *kind).collect();
        (!kinds.is_empty()).then_some(kinds)
    }
}

fn list<'s>(schema: &'s Map<String, Value>, keyword: &str) -> &'s [Value] {
    schema.get(keyword).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Returns the kinds of both. What one calls a number and the other an integer is an integer.
fn intersect(one: &BTreeSet<Kind>, other: &BTreeSet<Kind>) -> BTreeSet<Kind> {
    let mut both: BTreeSet<Kind> = one & other;
    let has = |kind: Kind, among: &BTreeSet<Kind>| among.contains(&kind);
    let narrowed = (has(Kind::Integer, one) && has(Kind::Number, other))
        || (has(Kind::Number, one) && has(Kind::Integer, other));
    if narrowed && !both.contains(&Kind::Number) {
        both.insert(Kind::Integer);
    }
    both
}

/// Returns limits that shapes cannot express, in words for the model.
fn hints(schema: &Map<String, Value>) -> Vec<String> {
    const MAX_PATTERN_CHARS: usize = 60;
    /// Other formats name the width of a number, which says nothing to a model.
    const TOLD_FORMATS: [&str; 11] = [
        "date",
        "date-time",
        "time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "uri",
        "uuid",
        "regex",
    ];
    /// Longer limits are never reached by a model's text.
    const MAX_TOLD: u64 = 40;
    let number = |keyword: &str| schema.get(keyword).filter(|value| value.is_number());
    let mut hints = Vec::new();
    match (number("minimum"), number("maximum")) {
        (Some(from), Some(to)) => hints.push(format!("{from} to {to}")),
        (Some(from), None) => hints.push(format!("at least {from}")),
        (None, Some(to)) => hints.push(format!("at most {to}")),
        (None, None) => {}
    }
    if let Some(longest) = schema.get("maxLength").and_then(Value::as_u64).filter(|it| *it <= MAX_TOLD) {
        hints.push(format!("at most {longest} characters"));
    }
    let text = |keyword: &str| schema.get(keyword).and_then(Value::as_str);
    if let Some(format) = text("format").filter(|format| TOLD_FORMATS.contains(format)) {
        hints.push(format!("format {format}"));
    }
    if let Some(pattern) = text("pattern").filter(|pattern| pattern.len() <= MAX_PATTERN_CHARS) {
        hints.push(format!("pattern {pattern}"));
    }
    hints
}
