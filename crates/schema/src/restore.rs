//! Turns a value in the strict form back into one of the original form.

use serde_json::{Map, Value};

use crate::{
    shape::{Property, Schema, Shape},
    write::pair,
};

impl Schema {
    /// Removes the nulls that stand for absent properties, and turns arrays of pairs back into objects.
    pub fn restore(&self, value: Value) -> Value {
        match (&self.shape, value) {
            (Shape::Object(properties), Value::Object(object)) => restore_object(properties, object),
            (Shape::Array(items), Value::Array(values)) => {
                values.into_iter().map(|value| items.restore(value)).collect()
            }
            (Shape::Map(inner), Value::Array(pairs)) => restore_pairs(inner, pairs),
            (Shape::AnyOf(members), value) => {
                match members.iter().find(|member| member.shape.admits_strict(&value)) {
                    Some(member) => member.restore(value),
                    None => value,
                }
            }
            (_, value) => value,
        }
    }
}

fn restore_object(properties: &[Property], object: Map<String, Value>) -> Value {
    let find = |name: &str| properties.iter().find(|property| property.name == name);
    let restored = object.into_iter().filter_map(|(name, value)| match find(&name) {
        Some(property) if value.is_null() && !property.required => None,
        Some(property) => Some((name, property.schema.restore(value))),
        None => Some((name, value)),
    });
    Value::Object(restored.collect())
}

fn restore_pairs(inner: &Schema, pairs: Vec<Value>) -> Value {
    let restored = pairs.into_iter().filter_map(|pair| {
        let Value::Object(mut pair) = pair else { return None };
        let Some(Value::String(name)) = pair.remove("name") else { return None };
        Some((name, inner.restore(pair.remove("value").unwrap_or_default())))
    });
    Value::Object(restored.collect())
}

impl Shape {
    /// Returns whether the strict form of this shape admits the value.
    fn admits_strict(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Null, Value::Null)
            | (Self::Boolean, Value::Bool(_))
            | (Self::Number, Value::Number(_))
            | (Self::String, Value::String(_)) => true,
            (Self::Integer, Value::Number(number)) => !number.is_f64(),
            (Self::Choice(values), value) => values.contains(value),
            (Self::Array(items), Value::Array(values)) => {
                values.iter().all(|value| items.shape.admits_strict(value))
            }
            (Self::Object(properties), Value::Object(object)) => admits_object(properties, object),
            (Self::Map(inner), Value::Array(values)) => {
                let pair = Self::Object(pair(inner));
                values.iter().all(|value| pair.admits_strict(value))
            }
            (Self::AnyOf(members), value) => members.iter().any(|member| member.shape.admits_strict(value)),
            _ => false,
        }
    }
}

fn admits_object(properties: &[Property], object: &Map<String, Value>) -> bool {
    object.len() == properties.len()
        && properties.iter().all(|property| {
            object.get(&property.name).is_some_and(|value| {
                (value.is_null() && !property.required) || property.schema.shape.admits_strict(value)
            })
        })
}
