//! Encodes a request for an OpenAI-compatible server. The body is serialised directly from the parts of the
//! request, without copying the long prompts first.

use std::borrow::Cow;

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json};
use subjects::{Message, ToolCall};

use super::{Request, request::Function};
use crate::context::System;

/// Returns the JSON body of the HTTP request.
pub(crate) fn encode_body(request: &Request<'_>, model: &str, schema_mode: SchemaMode) -> Vec<u8> {
    encode(&Body { request, model, schema_mode })
}

/// How the schema of a structured output is sent in `response_format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaMode {
    /// With the maximum lengths of strings, which keep small models from endless text.
    Bounded,
    /// Without maximum lengths, since some providers reject a schema that has them.
    Unbounded,
    /// Not at all, for a server that does not support schemas.
    Omitted,
}

fn encode(body: &Body<'_>) -> Vec<u8> {
    subjects::encode_json(body)
}

struct Body<'a> {
    request: &'a Request<'a>,
    model: &'a str,
    schema_mode: SchemaMode,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let request = self.request;
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("model", self.model)?;
        body.serialize_entry("messages", &messages(request))?;
        body.serialize_entry("temperature", &request.temperature)?;
        body.serialize_entry("stream", &true)?;
        body.serialize_entry("stream_options", &json!({ "include_usage": true }))?;
        if let Some(max_tokens) = request.max_tokens {
            body.serialize_entry("max_tokens", &max_tokens)?;
        }
        if !request.tools.is_empty() {
            let tools: Vec<Tool<'_>> =
                request.tools.iter().map(|function| Tool::Function { function }).collect();
            body.serialize_entry("tools", &tools)?;
            if !request.may_call {
                body.serialize_entry("tool_choice", "none")?;
            }
        }
        let output = request.output_schema.as_ref();
        if let Some(output) = output.filter(|_| self.schema_mode != SchemaMode::Omitted) {
            let mut schema = (*output.schema).clone();
            if self.schema_mode == SchemaMode::Unbounded {
                unbind(&mut schema);
            }
            let schema = json!({ "name": output.name, "strict": true, "schema": schema });
            body.serialize_entry(
                "response_format",
                &json!({ "type": "json_schema", "json_schema": schema }),
            )?;
        }
        body.end()
    }
}

/// Removes the maximum lengths of strings from a schema.
fn unbind(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            object.remove("maxLength");
            object.values_mut().for_each(unbind);
        }
        Value::Array(items) => items.iter_mut().for_each(unbind),
        _ => {}
    }
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Tool<'a> {
    Function { function: &'a Function },
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum WireMessage<'a> {
    System {
        content: &'a System,
    },
    User {
        content: Cow<'a, str>,
    },
    Assistant {
        /// Null if there are only calls.
        content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<WireCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum WireCall<'a> {
    Function { id: &'a str, function: WireFunctionCall<'a> },
}

#[derive(Serialize)]
struct WireFunctionCall<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> WireMessage<'a> {
    /// Returns the text if another message of the same role may be appended to it.
    fn plain(&mut self) -> Option<&mut Cow<'a, str>> {
        match self {
            Self::User { content } => Some(content),
            Self::Assistant { content, tool_calls } if tool_calls.is_empty() => content.as_mut(),
            Self::System { .. } | Self::Assistant { .. } | Self::Tool { .. } => None,
        }
    }

    fn is_of_same_role(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Returns the messages of the request. Many servers require user and assistant to alternate, beginning with
/// the user, so neighbouring messages of one role are merged.
fn messages<'a>(request: &'a Request<'_>) -> Vec<WireMessage<'a>> {
    let mut out = Vec::with_capacity(request.messages.len() + 2);
    out.push(WireMessage::System { content: &request.system });
    if matches!(request.messages.first(), Some(Message::Assistant { .. })) {
        out.push(WireMessage::User { content: "(The conversation so far.)".into() });
    }
    for message in request.messages {
        let mut next = to_wire(message);
        let follows = out.last_mut().filter(|last| last.is_of_same_role(&next)).and_then(WireMessage::plain);
        match (follows, next.plain()) {
            (Some(text), Some(more)) => {
                let text = text.to_mut();
                text.push_str("\n\n");
                text.push_str(more);
            }
            _ => out.push(next),
        }
    }
    if let (Some(text), Some(output)) = (out.last_mut().and_then(WireMessage::plain), &request.output_schema)
    {
        // The schema is part of the prompt too, since not every server enforces or supports schemas.
        let instruction = "Answer with one JSON object that fits this JSON Schema, and nothing else:";
        text.to_mut().push_str(&format!("\n\n{instruction}\n{}", output.schema));
    }
    out
}

fn to_wire(message: &Message) -> WireMessage<'_> {
    match message {
        Message::User { content } => WireMessage::User { content: content.into() },
        Message::Assistant { content, calls } => WireMessage::Assistant {
            content: (!content.is_empty() || calls.is_empty()).then(|| content.into()),
            tool_calls: calls.iter().map(call).collect(),
        },
        Message::Tool { call_id, content, .. } => WireMessage::Tool { tool_call_id: call_id, content },
    }
}

fn call(call: &ToolCall) -> WireCall<'_> {
    WireCall::Function {
        id: &call.id,
        function: WireFunctionCall { name: &call.name, arguments: &call.arguments },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        context::{Layers, Preamble},
        inference::{Hint, OutputSchema, Purpose},
    };

    fn request(messages: &[Message]) -> Request<'_> {
        Request {
            purpose: Purpose::Turn(0),
            system: Layers::default().compose(&Preamble::empty()),
            messages,
            tools: Arc::from([]),
            may_call: true,
            output_schema: None,
            temperature: 0.5,
            max_tokens: None,
            hint: Hint::Usual,
        }
    }

    fn read(body: &[u8]) -> Value {
        serde_json::from_slice(body).expect("JSON")
    }

    fn assistant(content: &str, calls: Vec<ToolCall>) -> Message {
        Message::Assistant { content: content.to_owned(), calls }
    }

    #[test]
    fn user_and_assistant_alternate_and_the_user_begins() {
        let messages = [
            assistant("Hello.", Vec::new()),
            Message::user("One"),
            Message::user("two"),
            assistant("", Vec::new()),
        ];
        let request = request(&messages);
        let body = read(&encode_body(&request, "m", SchemaMode::Bounded));
        let expected = json!([
            { "role": "system", "content": request.system.to_string() },
            { "role": "user", "content": "(The conversation so far.)" },
            { "role": "assistant", "content": "Hello." },
            { "role": "user", "content": "One\n\ntwo" },
            { "role": "assistant", "content": "" },
        ]);
        assert_eq!(body["messages"], expected);
        let rest = json!([body["model"], body["temperature"], body["stream"], body["stream_options"]]);
        assert_eq!(rest, json!(["m", 0.5, true, { "include_usage": true }]));
    }

    #[test]
    fn calls_and_their_results_are_not_merged() {
        let made = ToolCall { id: "c1".into(), name: "db__get".into(), arguments: "{}".into() };
        let result = Message::Tool { call_id: "c1".into(), name: "db__get".into(), content: "found".into() };
        let messages = [Message::user("Look"), assistant("", vec![made]), result.clone(), result];
        let mut request = request(&messages);
        let function =
            Function { name: "db__get".into(), description: "Gets.".into(), parameters: json!({}) };
        request.tools = Arc::from([Arc::new(function)]);
        request.may_call = false;
        let body = read(&encode_body(&request, "m", SchemaMode::Bounded));
        let call =
            json!({ "id": "c1", "type": "function", "function": { "name": "db__get", "arguments": "{}" } });
        let result = json!({ "role": "tool", "tool_call_id": "c1", "content": "found" });
        assert_eq!(
            body["messages"][2],
            json!({ "role": "assistant", "content": null, "tool_calls": [call] })
        );
        assert_eq!([&body["messages"][3], &body["messages"][4]], [&result, &result]);
        let function = json!({ "name": "db__get", "description": "Gets.", "parameters": {} });
        assert_eq!(body["tools"], json!([{ "type": "function", "function": function }]));
        assert_eq!(body["tool_choice"], "none");
    }

    #[test]
    fn schema_is_in_the_prompt_even_if_omitted_from_the_response_format() {
        let messages = [Message::user("How many?")];
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string", "maxLength": 9 } } });
        let mut request = request(&messages);
        request.output_schema = Some(OutputSchema { name: "count", schema: Arc::new(schema) });
        let [body, unbound, plain] = [SchemaMode::Bounded, SchemaMode::Unbounded, SchemaMode::Omitted]
            .map(|mode| read(&encode_body(&request, "m", mode)));
        assert_eq!(body["response_format"]["json_schema"]["name"], "count");
        assert_eq!(plain.get("response_format"), None);
        let bound = |body: &Value| {
            body.pointer("/response_format/json_schema/schema/properties/a/maxLength").cloned()
        };
        assert_eq!((bound(&body), bound(&unbound)), (Some(json!(9)), None));
        for body in [body, unbound, plain] {
            let question = body["messages"][1]["content"].as_str().expect("a text");
            assert!(question.starts_with("How many?") && question.contains(r#""maxLength":9"#), "{question}");
        }
    }
}
