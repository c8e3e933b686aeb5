//! What becomes of single keywords.

use schema::{Form, Schema, Validator};
use serde_json::{Value, json};

fn lowered(schema: &Value) -> Value {
    let property = json!({ "type": "object", "properties": { "p": schema }, "required": ["p"] });
    Schema::read(&property).write(Form::TOOL)["properties"]["p"].clone()
}

#[test]
fn property_without_a_type_gets_one() {
    let any = lowered(&json!({ "description": "Any JSON." }));
    assert_eq!(any["description"], "Any JSON.");
    let types: Vec<&Value> = any["anyOf"].as_array().unwrap().iter().map(|member| &member["type"]).collect();
    assert_eq!(types, [&json!(["string", "number", "boolean", "null"]), &json!("array"), &json!("object")]);
    assert_eq!(lowered(&json!(true)), lowered(&json!({})));
}

#[test]
fn alternatives_and_constants_become_any_of_and_enum() {
    assert_eq!(lowered(&json!({ "type": ["string", "null"] })), json!({ "type": ["string", "null"] }));
    assert_eq!(lowered(&json!({ "const": "a" })), json!({ "type": "string", "enum": ["a"] }));
    assert_eq!(
        lowered(&json!({ "enum": ["a", 1, null] })),
        json!({ "anyOf": [
            { "type": "null" }, { "type": "string", "enum": ["a"] }, { "type": "integer", "enum": [1] },
        ] })
    );
    assert_eq!(
        lowered(&json!({ "oneOf": [{ "type": "integer" }, { "type": "boolean" }] })),
        json!({ "type": ["integer", "boolean"] })
    );
    assert_eq!(
        lowered(&json!({ "type": "string", "nullable": true })),
        json!({ "type": ["string", "null"] })
    );
}

#[test]
fn optional_property_of_a_tool_is_left_out_instead_of_null() {
    let own = json!({ "type": "object", "required": ["a"], "properties": {
        "a": { "type": ["string", "null"] },
        "b": { "type": ["string", "null"] },
        "c": { "type": ["string", "null"], "description": "Null clears it." },
        "d": { "anyOf": [{ "enum": ["x"] }, { "type": "null" }] },
    } });
    let tool = Schema::read(&own).write(Form::TOOL)["properties"].clone();
    assert_eq!(tool["a"]["type"], json!(["string", "null"]));
    assert_eq!(tool["b"]["type"], json!("string"));
    assert_eq!(tool["c"]["type"], json!(["string", "null"]));
    assert_eq!(tool["d"], json!({ "type": "string", "enum": ["x"] }));
    assert_eq!(Schema::read(&own).write(Form::GRAMMAR)["properties"]["b"]["type"], json!(["string", "null"]));
}

#[test]
fn description_that_repeats_the_name_and_types_of_any_scalar_are_left_out_for_tools() {
    let scalar = json!({ "type": ["string", "number", "boolean", "null"] });
    let own = json!({ "type": "object", "properties": {
        "task_id": { "type": "string", "description": "An id. Opaque." },
        "owner_id": { "type": "string", "description": "The id of a user." },
        "payload": { "type": "object", "additionalProperties": scalar },
        "labels": { "type": "object", "additionalProperties": { "type": "string" } },
    } });
    let tool = Schema::read(&own).write(Form::TOOL)["properties"].clone();
    assert_eq!(tool["task_id"], json!({ "type": "string" }));
    assert_eq!(tool["owner_id"]["description"], "The id of a user.");
    assert_eq!(tool["payload"], json!({ "type": "object" }));
    assert_eq!(tool["labels"]["additionalProperties"], json!({ "type": "string" }));
    let strict = Schema::read(&own).write(Form::STRICT)["properties"].clone();
    assert_eq!(strict["task_id"]["description"], "An id.");
}

#[test]
fn parts_of_all_of_are_joined() {
    let both = json!({ "allOf": [
        { "type": "object", "properties": { "a": { "type": "number" } }, "required": ["a"] },
        { "properties": { "a": { "type": "integer" }, "b": { "type": "string" } } },
    ] });
    assert_eq!(
        lowered(&both),
        json!({
            "type": "object",
            "properties": { "a": { "type": "integer" }, "b": { "type": "string" } },
            "required": ["a"],
        })
    );
}

#[test]
fn references_are_resolved_and_end() {
    let tree = json!({
        "type": "object",
        "properties": { "root": { "$ref": "#/$defs/no%64e" }, "named": { "$ref": "#leaf" } },
        "$defs": {
            "node": {
                "type": "object",
                "properties": { "name": { "type": "string" }, "next": { "$ref": "#/$defs/node" } },
            },
            "leaf": { "$anchor": "leaf", "type": "boolean" },
        },
    });
    let written = Schema::read(&tree).write(Form::TOOL);
    assert!(!written.to_string().contains("$ref"), "{written}");
    assert_eq!(written["properties"]["root"]["properties"]["name"], json!({ "type": "string" }));
    assert_eq!(written["properties"]["named"], json!({ "type": "boolean" }));
}

#[test]
fn limits_that_a_grammar_cannot_have_are_described() {
    let limited =
        lowered(&json!({ "type": "integer", "minimum": 1, "maximum": 200, "description": "A page." }));
    assert_eq!(limited, json!({ "type": "integer", "description": "(1 to 200) A page." }));
    let dated = lowered(&json!({ "type": "string", "format": "date-time" }));
    assert_eq!(dated["description"], "format date-time");
}

#[test]
fn tool_without_parameters_takes_none() {
    for schema in [json!({}), json!(true), json!({ "type": "object" }), json!({ "properties": {} })] {
        let written = Schema::read(&schema).write(Form::TOOL);
        assert_eq!(written, json!({ "type": "object", "properties": {} }), "{schema}");
        let closed = Schema::read(&schema).write(Form::GRAMMAR);
        assert_eq!(closed["additionalProperties"], json!(false), "{schema}");
    }
}

#[test]
fn several_kinds_of_arguments_become_one_object() {
    let either = json!({ "oneOf": [
        { "type": "object", "properties": { "id": { "type": "string" } }, "required": ["id"] },
        { "type": "object", "properties": { "id": { "type": "integer" }, "name": { "type": "string" } },
          "required": ["id", "name"] },
    ] });
    assert_eq!(
        Schema::read(&either).write(Form::TOOL),
        json!({
            "type": "object",
            "properties": { "id": { "type": ["string", "integer"] }, "name": { "type": "string" } },
            "required": ["id"],
        })
    );
}

#[test]
fn strict_form_has_no_optional_properties_and_is_turned_back() {
    let schema = Schema::read(&json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "note": { "type": "string", "description": "Optional." },
            "labels": { "type": "object", "additionalProperties": { "type": "string" } },
        },
        "required": ["name"],
    }));
    let strict = schema.write(Form::STRICT);
    assert_eq!(strict["required"], json!(["name", "labels", "note"]));
    assert_eq!(
        strict["properties"]["note"],
        json!({ "type": ["string", "null"], "description": "Optional." })
    );
    let written = json!({ "name": "a", "note": null, "labels": [{ "name": "k", "value": "v" }] });
    assert_eq!(schema.restore(written), json!({ "name": "a", "labels": { "k": "v" } }));
}

#[test]
fn signature_names_properties_types_and_choices() {
    let schema = Schema::read(&json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "state": { "enum": ["open", "done"] },
            "labels": { "type": "array", "items": { "type": "string" } },
            "value": { "description": "Anything." },
        },
        "required": ["name"],
    }));
    let expected = r#"{name: string, labels?: [string], state?: "open"|"done", value?: any}"#;
    assert_eq!(schema.to_string(), expected);
}

#[test]
fn validator_reports_what_the_original_refuses() {
    let original = json!({
        "type": "object",
        "properties": { "page": { "type": "integer", "minimum": 1 } },
        "required": ["page"],
    });
    let validator = Validator::new(&original).unwrap();
    assert_eq!(validator.check(&json!({ "page": 1 })), Ok(()));
    let why = validator.check(&json!({ "page": 0 })).unwrap_err();
    assert!(why.contains("/page") && why.contains("minimum"), "{why}");
    assert!(validator.check(&json!({})).unwrap_err().contains("required"));
    assert!(Validator::new(&json!({ "type": "nothing" })).is_err());
}
