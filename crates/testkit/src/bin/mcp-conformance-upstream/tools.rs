//! The list of tools, and the tools with constant answers.

use rmcp::model::{CallToolResult, Tool};
use serde_json::{Value, json};

/// One red pixel.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A WAV file without samples.
const WAV: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=";

/// The tools without arguments; the others are added in `all`.
const PLAIN: [&str; 20] = [
    "test_simple_text",
    "test_image_content",
    "test_audio_content",
    "test_embedded_resource",
    "test_multiple_content_types",
    "test_error_handling",
    "test_reconnection",
    "test_tool_with_logging",
    "test_logging_tool",
    "test_tool_with_progress",
    "test_missing_capability",
    "test_streaming_elicitation",
    "test_input_required_result_elicitation",
    "test_input_required_result_sampling",
    "test_input_required_result_list_roots",
    "test_input_required_result_request_state",
    "test_input_required_result_multiple_inputs",
    "test_input_required_result_multi_round",
    "test_input_required_result_tampered_state",
    "test_input_required_result_capabilities",
];

pub(crate) fn all() -> Vec<Tool> {
    let nothing = json!({"type": "object", "properties": {}});
    let plain = PLAIN.iter().map(|name| tool(name, &nothing));
    plain
        .chain([tool("json_schema_2020_12_tool", &dialect()), tool("test_x_mcp_header", &header())])
        .collect()
}

fn tool(name: &str, schema: &Value) -> Tool {
    let description = format!("What the conformance suite calls as {name}");
    let tool = json!({"name": name, "description": description, "inputSchema": schema});
    serde_json::from_value(tool).expect("a tool")
}

/// Returns a schema with keywords of JSON Schema 2020-12 that must be preserved.
fn dialect() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}

/// Returns a schema with an argument that must also be sent in a header in the newer era.
fn header() -> Value {
    json!({
        "type": "object",
        "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
        "required": ["region"],
    })
}

/// Returns the constant answer of a tool, or `None` for other tools.
pub(crate) fn answer(name: &str) -> Option<CallToolResult> {
    let image = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
    let content = match name {
        "test_simple_text" => json!([text("This is a simple text response for testing.")]),
        "test_image_content" => json!([image]),
        "test_audio_content" => json!([{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]),
        "test_embedded_resource" => {
            json!([resource(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content."
            )])
        }
        "test_multiple_content_types" => json!([
            text("Multiple content types test:"),
            image,
            resource("test://mixed-content-resource", "application/json", r#"{"test":"data","value":123}"#),
        ]),
        "test_error_handling" => json!([text("This tool intentionally returns an error for testing")]),
        "test_reconnection" => json!([text("Answered on the stream of the call.")]),
        "json_schema_2020_12_tool" | "test_x_mcp_header" => json!([text("Taken.")]),
        _ => return None,
    };
    let content = serde_json::from_value(content).expect("content");
    let failed = name == "test_error_handling";
    Some(if failed { CallToolResult::error(content) } else { CallToolResult::success(content) })
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn resource(uri: &str, kind: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}})
}
