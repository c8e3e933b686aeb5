//! Writes a [`Schema`] on one line, for prompts: `{name: string, labels?: [string]}`.

use std::fmt;

use serde_json::Value;

use crate::shape::{Schema, Shape};

/// At most this many choices are listed.
const MAX_CHOICES: usize = 24;

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.shape {
            Shape::Null => f.write_str("null"),
            Shape::Boolean => f.write_str("boolean"),
            Shape::Integer => f.write_str("integer"),
            Shape::Number => f.write_str("number"),
            Shape::String => f.write_str("string"),
            Shape::Choice(values) => write_choices(f, values),
            Shape::Array(items) => write!(f, "[{items}]"),
            Shape::Map(value) => write!(f, "{{name: {value}, ...}}"),
            Shape::Object(properties) => {
                f.write_str("{")?;
                for (index, property) in properties.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    let optional = if property.required { "" } else { "?" };
                    write!(f, "{comma}{}{optional}: {}", property.name, property.schema)?;
                }
                f.write_str("}")
            }
            Shape::AnyOf(_) if *self == Self { description: self.description.clone(), ..Self::any() } => {
                f.write_str("any")
            }
            Shape::AnyOf(members) => {
                for (index, member) in members.iter().enumerate() {
                    let bar = if index == 0 { "" } else { "|" };
                    write!(f, "{bar}{member}")?;
                }
                Ok(())
            }
        }
    }
}

fn write_choices(f: &mut fmt::Formatter<'_>, values: &[Value]) -> fmt::Result {
    for (index, value) in values.iter().take(MAX_CHOICES).enumerate() {
        let bar = if index == 0 { "" } else { "|" };
        write!(f, "{bar}{value}")?;
    }
    if values.len() > MAX_CHOICES { f.write_str("|...") } else { Ok(()) }
}
