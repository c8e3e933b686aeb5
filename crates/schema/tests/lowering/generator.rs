//! Random JSON Schemas, with everything that tools of other makers may contain.

use rand::{Rng, rngs::SmallRng, seq::IndexedRandom};
use serde_json::{Map, Value, json};

const DEFINITIONS: [&str; 3] = ["first", "second", "third"];
const NAMES: [&str; 8] = ["id", "name", "type", "properties", "größe", "a b", "x-y", "enum"];

/// Returns a random schema of an object, with definitions that refer to each other, also in circles.
pub(crate) fn tool_schema(rng: &mut SmallRng) -> Value {
    let mut schema = object(rng, 3);
    let definitions: Map<String, Value> =
        DEFINITIONS.iter().map(|name| ((*name).to_owned(), any(rng, 2))).collect();
    schema.insert("$defs".to_owned(), definitions.into());
    if rng.random_ratio(1, 8) {
        let alternatives = vec![Value::Object(object(rng, 2)), Value::Object(object(rng, 2))];
        schema.insert((*["anyOf", "oneOf", "allOf"].choose(rng).unwrap()).to_owned(), alternatives.into());
    }
    Value::Object(schema)
}

fn any(rng: &mut SmallRng, depth: u32) -> Value {
    let deep = depth > 0;
    let mut schema = match rng.random_range(0..14) {
        0 => return json!(rng.random_bool(0.7)),
        1 => Map::new(),
        2 => from(json!({ "enum": values(rng) })),
        3 => from(json!({ "const": values(rng)[0] })),
        4 => from(json!({ "$ref": format!("#/$defs/{}", DEFINITIONS.choose(rng).unwrap()) })),
        5 => from(json!({ "type": ["string", "null"], "maxLength": rng.random_range(1..9) })),
        6 => from(json!({ "type": "integer", "minimum": rng.random_range(-3..3), "maximum": 9 })),
        7 => from(json!({ "type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5 })),
        8 => from(json!({ "type": "string", "pattern": "^[a-c]+$", "minLength": 2 })),
        9 => from(json!({ "type": "string", "format": "uuid" })),
        10 if deep => {
            let members: Vec<Value> = (0..rng.random_range(1..4)).map(|_| any(rng, depth - 1)).collect();
            from(json!({ *["anyOf", "oneOf", "allOf"].choose(rng).unwrap(): members }))
        }
        11 if deep => from(match rng.random_range(0..4) {
            0 => json!({ "type": "array", "items": any(rng, depth - 1), "uniqueItems": true }),
            1 => json!({ "type": "array", "prefixItems": [any(rng, depth - 1)], "items": false }),
            2 => json!({ "items": any(rng, depth - 1), "minItems": 1, "maxItems": 3 }),
            _ => json!({ "type": "array" }),
        }),
        12 | 13 if deep => object(rng, depth - 1),
        _ => from(json!({ "type": ["boolean", "integer"] })),
    };
    if rng.random_ratio(1, 3) {
        schema.insert("description".to_owned(), "What \"it\" is\nfor.".into());
    }
    if rng.random_ratio(1, 9) {
        schema.insert("default".to_owned(), json!({ "a": [1] }));
        schema.insert("nullable".to_owned(), true.into());
    }
    if rng.random_ratio(1, 9) {
        schema.insert("not".to_owned(), json!({ "const": "never" }));
        schema.insert("if".to_owned(), json!({ "minLength": 3 }));
        schema.insert("then".to_owned(), json!({ "pattern": "a" }));
    }
    Value::Object(schema)
}

fn object(rng: &mut SmallRng, depth: u32) -> Map<String, Value> {
    let count = rng.random_range(0..5);
    let names: Vec<&&str> = NAMES.choose_multiple(rng, count).collect();
    let properties: Map<String, Value> =
        names.iter().map(|name| ((**name).to_string(), any(rng, depth))).collect();
    let mut schema = from(json!({ "type": "object" }));
    if rng.random_ratio(1, 8) {
        schema.remove("type");
    }
    if !properties.is_empty() || rng.random() {
        schema.insert("properties".to_owned(), properties.into());
    }
    let required: Vec<&&&str> = names.iter().filter(|_| rng.random_bool(0.4)).collect();
    if !required.is_empty() || rng.random_ratio(1, 5) {
        schema.insert("required".to_owned(), json!(required));
    }
    match rng.random_range(0..6) {
        0 => drop(schema.insert("additionalProperties".to_owned(), false.into())),
        1 => drop(schema.insert("additionalProperties".to_owned(), any(rng, depth.saturating_sub(1)))),
        2 => drop(schema.insert("patternProperties".to_owned(), json!({ "^x-": { "type": "string" } }))),
        _ => {}
    }
    schema
}

fn values(rng: &mut SmallRng) -> Vec<Value> {
    let all = [
        json!("open"),
        json!("with \"quotes\" and\nlines"),
        json!(""),
        json!(7),
        json!(-1.5),
        json!(true),
        json!(false),
        Value::Null,
        json!(["a"]),
        json!({ "k": 1 }),
    ];
    let count = rng.random_range(1..5);
    all.choose_multiple(rng, count).cloned().collect()
}

fn from(schema: Value) -> Map<String, Value> {
    match schema {
        Value::Object(schema) => schema,
        _ => unreachable!("all are objects"),
    }
}
