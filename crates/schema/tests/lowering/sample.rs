//! Random values that a lowered schema admits.

use rand::{Rng, rngs::SmallRng, seq::IndexedRandom};
use schema::{Form, Property, Schema, Shape};
use serde_json::{Map, Value, json};

/// Returns a value that the schema admits in the given form.
pub(crate) fn value(schema: &Schema, form: Form, rng: &mut SmallRng) -> Value {
    match &schema.shape {
        Shape::Null => Value::Null,
        Shape::Boolean => rng.random::<bool>().into(),
        Shape::Integer => rng.random_range(-20..20).into(),
        Shape::Number => json!(f64::from(rng.random_range(-40..40)) / 4.0 + 0.125),
        Shape::String => {
            (0..rng.random_range(0..6)).map(|_| rng.random_range('a'..'e')).collect::<String>().into()
        }
        Shape::Choice(values) => values.choose(rng).unwrap().clone(),
        Shape::Array(items) => (0..rng.random_range(0..4)).map(|_| value(items, form, rng)).collect(),
        Shape::Object(properties) => object(properties, form, rng),
        Shape::Map(inner) => {
            let entries =
                (0..rng.random_range(0..3)).map(|index| (format!("k{index}"), value(inner, form, rng)));
            if form.strict {
                entries.map(|(name, value)| json!({ "name": name, "value": value })).collect()
            } else {
                Value::Object(entries.collect())
            }
        }
        Shape::AnyOf(members) => value(members.choose(rng).unwrap(), form, rng),
    }
}

fn object(properties: &[Property], form: Form, rng: &mut SmallRng) -> Value {
    let mut out = Map::new();
    for property in properties {
        let present = property.required || rng.random();
        if present {
            out.insert(property.name.clone(), value(&property.schema, form, rng));
        } else if form.strict {
            out.insert(property.name.clone(), Value::Null);
        }
    }
    Value::Object(out)
}
