//! Reads any JSON Schema into a [`Schema`].

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    facts::{Facts, Kind},
    shape::{Property, Schema, Shape},
};

/// Deeper values are scalars. OpenAI's strict mode accepts ten levels.
const MAX_DEPTH: usize = 8;
/// Larger schemas end in scalars, so that the grammar stays small enough for every server.
const MAX_NODES: usize = 600;
/// Longer lists of values are left to validation, as are more optional properties: each costs tokens in every
/// turn.
const MAX_VALUES: usize = 64;
const MAX_PROPERTIES: usize = 48;
/// The alternatives of a schema are combined up to this number; further groups are left to validation.
const MAX_BRANCHES: usize = 16;

impl Schema {
    /// Reads the input schema of a tool or the schema of a structured output. The result is always an object.
    pub fn read(schema: &Value) -> Self {
        let mut reader = Reader { root: schema, nodes: 0 };
        let facts = Facts::collect(schema, &[schema], &[]);
        let description = facts.description.map(str::to_owned);
        // A tool without parameters often says no more than `{"type": "object"}`.
        let has_content = !facts.properties.is_empty()
            || facts.additional.is_some()
            || !facts.required.is_empty()
            || !facts.alternatives.is_empty();
        let shape =
            if has_content { as_object(reader.read_facts(facts, 0, &[])) } else { Shape::Object(Vec::new()) };
        Self { description, shape }
    }
}

struct Reader<'s> {
    root: &'s Value,
    nodes: usize,
}

impl<'s> Reader<'s> {
    /// Reads schemas that must all hold. `open` are the references on the way to here.
    fn read(&mut self, schemas: &[&'s Value], depth: usize, open: &[&'s str]) -> Schema {
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return Schema::new(Shape::scalar());
        }
        let facts = Facts::collect(self.root, schemas, open);
        self.read_facts(facts, depth, open)
    }

    fn read_facts(&mut self, mut facts: Facts<'s>, depth: usize, open: &[&'s str]) -> Schema {
        let open: Vec<&str> = open.iter().chain(&facts.followed).copied().collect();
        let description = describe(&facts);
        let groups = std::mem::take(&mut facts.alternatives);
        let mut branches = vec![facts];
        for group in groups {
            if branches.len() * group.len() > MAX_BRANCHES {
                continue;
            }
            let with = |branch: &Facts<'s>, member: &'s Value| {
                let mut branch = branch.clone();
                branch.add(self.root, member, &open);
                branch
            };
            branches = branches
                .iter()
                .flat_map(|branch| group.iter().map(|member| with(branch, member)).collect::<Vec<_>>())
                .collect();
        }
        let several = branches.len() > 1;
        let mut members = Vec::new();
        for mut branch in branches {
            if depth < MAX_DEPTH && !branch.alternatives.is_empty() {
                self.nodes += 1;
                let nested = if self.nodes > MAX_NODES {
                    Schema::new(Shape::scalar())
                } else {
                    self.read_facts(branch, depth + 1, &open)
                };
                members.push(nested);
                continue;
            }
            branch.alternatives.clear();
            let inner: Vec<&str> = open.iter().chain(&branch.followed).copied().collect();
            let described = several
                .then(|| describe(&branch))
                .flatten()
                .filter(|text| description.as_ref() != Some(text));
            let mut read = self.read_kinds(&branch, depth, &inner);
            if read.description.is_none() {
                read.description = described;
            }
            members.push(read);
        }
        let mut joined = Schema::any_of(members);
        if joined.description.is_none() || !several {
            joined.description = description.or(joined.description);
        }
        joined
    }

    fn read_kinds(&mut self, facts: &Facts<'s>, depth: usize, open: &[&'s str]) -> Schema {
        let mut members: Vec<Schema> = match (&facts.values, facts.possible_kinds()) {
            (Some(values), kinds) => self.choices(values, kinds.as_ref()),
            (None, Some(kinds)) => {
                kinds.iter().map(|kind| self.read_kind(*kind, facts, depth, open)).collect()
            }
            (None, None) if depth >= MAX_DEPTH => vec![Schema::new(Shape::scalar())],
            (None, None) => vec![Schema::any()],
        };
        if members.is_empty() {
            // No value can satisfy this; validation says so.
            members.push(Schema::new(Shape::scalar()));
        }
        if facts.nullable {
            members.push(Schema::new(Shape::Null));
        }
        Schema::any_of(members)
    }

    fn choices(&mut self, values: &[&'s Value], kinds: Option<&BTreeSet<Kind>>) -> Vec<Schema> {
        let admitted = |value: &&&Value| {
            kinds.is_none_or(|kinds| {
                let kind = Kind::of(value);
                kinds.contains(&kind) || (kind == Kind::Integer && kinds.contains(&Kind::Number))
            })
        };
        let mut groups: Vec<(Kind, Vec<Value>)> = Vec::new();
        for value in values.iter().filter(admitted) {
            let kind = Kind::of(value);
            match groups.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, group)) if !group.contains(value) => group.push((*value).clone()),
                Some(_) => {}
                None => groups.push((kind, vec![(*value).clone()])),
            }
        }
        let shape = |(kind, values): (Kind, Vec<Value>)| match kind {
            Kind::Null => Shape::Null,
            Kind::Boolean if values.len() == 2 => Shape::Boolean,
            Kind::Array => Shape::Array(Box::new(Schema::new(Shape::scalar()))),
            Kind::Object => Shape::Map(Box::new(Schema::new(Shape::scalar()))),
            Kind::String if values.len() > MAX_VALUES => Shape::String,
            Kind::Integer if values.len() > MAX_VALUES => Shape::Integer,
            Kind::Number if values.len() > MAX_VALUES => Shape::Number,
            Kind::String | Kind::Integer | Kind::Number | Kind::Boolean => Shape::Choice(values),
        };
        groups.into_iter().map(|group| Schema::new(shape(group))).collect()
    }

    fn read_kind(&mut self, kind: Kind, facts: &Facts<'s>, depth: usize, open: &[&'s str]) -> Schema {
        Schema::new(match kind {
            Kind::String => Shape::String,
            Kind::Integer => Shape::Integer,
            Kind::Number => Shape::Number,
            Kind::Boolean => Shape::Boolean,
            Kind::Null => Shape::Null,
            Kind::Array => self.read_array(facts, depth, open),
            Kind::Object => self.read_object(facts, depth, open),
        })
    }

    fn read_array(&mut self, facts: &Facts<'s>, depth: usize, open: &[&'s str]) -> Shape {
        let mut members: Vec<Schema> =
            facts.first_items.iter().map(|first| self.read(&[first], depth + 1, open)).collect();
        // `items: true` and `items: false` say nothing about a shape.
        let items: Vec<&Value> = facts.items.iter().copied().filter(|items| items.is_object()).collect();
        if !items.is_empty() {
            members.push(self.read(&items, depth + 1, open));
        }
        let items = if members.is_empty() { Schema::new(Shape::scalar()) } else { Schema::any_of(members) };
        Shape::Array(Box::new(items))
    }

    fn read_object(&mut self, facts: &Facts<'s>, depth: usize, open: &[&'s str]) -> Shape {
        let mut properties = Vec::new();
        for (name, schemas) in &facts.properties {
            let required = facts.required.contains(name);
            // A property that can never be present.
            if !required && schemas.contains(&&Value::Bool(false)) {
                continue;
            }
            let schema = self.read(schemas, depth + 1, open);
            properties.push(Property { name: (*name).to_owned(), schema, required });
        }
        let declared = |name: &str| facts.properties.iter().any(|(known, _)| *known == name);
        for name in facts.required.iter().filter(|name| !declared(name)) {
            let schemas: Vec<&Value> = facts.additional.into_iter().collect();
            let schema = self.read(&schemas, depth + 1, open);
            properties.push(Property { name: (*name).to_owned(), schema, required: true });
        }
        if !properties.is_empty() {
            properties.sort_by_key(|property| !property.required);
            let required = properties.iter().filter(|property| property.required).count();
            properties.truncate(required.max(MAX_PROPERTIES));
            return Shape::Object(properties);
        }
        let value = match facts.additional {
            Some(additional) if additional.is_object() => self.read(&[additional], depth + 1, open),
            _ => Schema::new(Shape::scalar()),
        };
        Shape::Map(Box::new(value))
    }
}

/// Returns the description, after the limits that the shape cannot express: the end of a long one is cut.
fn describe(facts: &Facts<'_>) -> Option<String> {
    let description = facts.description.map(str::trim).filter(|text| !text.is_empty());
    let hints = facts.hints.join(", ");
    match (description, hints.is_empty()) {
        (None, true) => None,
        (None, false) => Some(hints),
        (Some(text), true) => Some(text.to_owned()),
        (Some(text), false) => Some(format!("({hints}) {text}")),
    }
}

/// Joins a schema into one object: of several kinds of objects, one with the properties of all.
fn as_object(schema: Schema) -> Shape {
    let members = match schema.shape {
        Shape::AnyOf(members) => members.into_iter().map(|member| member.shape).collect(),
        shape => vec![shape],
    };
    let mut joined: Option<Vec<Property>> = None;
    let mut map = None;
    for member in members {
        match (member, &mut joined) {
            (Shape::Object(properties), None) => joined = Some(properties),
            (Shape::Object(properties), Some(known)) => join_properties(known, properties),
            (Shape::Map(value), _) => map = Some(Shape::Map(value)),
            _ => {}
        }
    }
    joined.map(Shape::Object).or(map).unwrap_or_else(|| Shape::Object(Vec::new()))
}

/// Adds the properties of another kind of object. Only those that both require stay required.
fn join_properties(known: &mut Vec<Property>, others: Vec<Property>) {
    for property in known.iter_mut() {
        property.required &= others.iter().any(|other| other.name == property.name && other.required);
    }
    for other in others {
        match known.iter_mut().find(|property| property.name == other.name) {
            Some(property) => {
                let description = property.schema.description.take();
                let both = vec![property.schema.clone(), other.schema];
                property.schema = Schema::any_of(both);
                property.schema.description = description.or(property.schema.description.take());
            }
            None => known.push(Property { required: false, ..other }),
        }
    }
}
