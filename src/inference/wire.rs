//! Encodes a request for an OpenAI-compatible server. The body is serialised directly from the parts of the
//! request, without copying the long prompts first.

use std::borrow::Cow;

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json};
use subjects::{Message, ToolCall};

use schema::Form;

use super::{Purpose, Request, learned::Adaptation, request::Function, steps};
use crate::{
    config::{Profile, ToolMode},
    context::System,
};

/// Returns the body for a server that refused nothing yet.
pub(crate) fn encode_plain_body(request: &Request<'_>, profile: &Profile) -> Vec<u8> {
    let (left_out, schema_mode) = (Adaptation::default(), SchemaMode::Bounded);
    let style = Style { model: &profile.model, schema_mode, profile, left_out: &left_out, repair: None };
    encode_body(request, &style)
}

/// Returns the JSON body of the HTTP request.
pub(super) fn encode_body(request: &Request<'_>, style: &Style<'_>) -> Vec<u8> {
    subjects::encode_json(&Body { request, style })
}

/// How a request is written for one model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style<'a> {
    pub(super) model: &'a str,
    pub(super) schema_mode: SchemaMode,
    /// Limits and tool mode of the model.
    pub(super) profile: &'a Profile,
    /// The parts that the server rejected, which are omitted.
    pub(super) left_out: &'a Adaptation,
    /// Sent after the messages, to ask again.
    pub(super) repair: Option<Repair<'a>>,
}

/// A reply that cannot be used, and what is said about it. An empty reply is not sent back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repair<'a> {
    pub(super) said: &'a str,
    pub(super) why: &'a str,
}

impl Style<'_> {
    fn is_typed(&self, request: &Request<'_>) -> bool {
        is_typed(request, self.profile)
    }

    /// Returns a small request with one tool or none, which shows whether the server accepts its schema.
    pub(super) fn encode_trial(&self, request: &Request<'_>, tool: Option<&Function>) -> Vec<u8> {
        let mut body = json!({
            "model": self.model,
            "messages": [{ "role": "user", "content": "ok" }],
            "stream": true,
        });
        body[self.name_of_max_tokens()] = json!(1);
        let Some(tool) = tool else { return subjects::encode_json(&body) };
        if self.is_typed(request) {
            let schema = tool.schema.write(self.form());
            body["response_format"] = json!(response_format(steps::NAME, &schema));
        } else {
            body["tools"] = json!([Tool::Function { function: tool }]);
        }
        subjects::encode_json(&body)
    }

    /// Newer servers know the field by another name only.
    fn name_of_max_tokens(&self) -> &'static str {
        if self.left_out.fields.contains(&"max_tokens") { "max_completion_tokens" } else { "max_tokens" }
    }

    pub(super) fn form(&self) -> Form {
        if self.schema_mode == SchemaMode::Unbounded { Form::STRICT } else { Form::GRAMMAR }
    }
}

/// Returns whether the model is asked for a typed step instead of native calls.
pub(super) fn is_typed(request: &Request<'_>, profile: &Profile) -> bool {
    profile.tool_mode == Some(ToolMode::Typed)
        && request.output_schema.is_none()
        && matches!(request.purpose, Purpose::Turn(_))
        && !request.tools.is_empty()
}

/// How the schema of a structured output is sent in `response_format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaMode {
    /// With the maximum lengths of strings, which keep small models from endless text.
    Bounded,
    /// In OpenAI's strict mode, without maximum lengths.
    Unbounded,
    /// The schema is not sent, for a server that does not support schemas.
    Omitted,
}

struct Body<'a> {
    request: &'a Request<'a>,
    style: &'a Style<'a>,
}

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { request, style } = self;
        let profile = style.profile;
        let is_typed = style.is_typed(request);
        let is_sent = |field: &str| !style.left_out.fields.contains(&field);
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("model", style.model)?;
        body.serialize_entry("messages", &messages(request, style))?;
        let preferred = profile.temperature.filter(|_| request.is_default_temperature);
        if is_sent("temperature") {
            body.serialize_entry("temperature", &preferred.unwrap_or(request.temperature))?;
        }
        body.serialize_entry("stream", &true)?;
        if is_sent("stream_options") {
            body.serialize_entry("stream_options", &json!({ "include_usage": true }))?;
        }
        // The smaller one: the profile's is what the model can be trusted with.
        let max_tokens = [request.max_tokens, profile.max_tokens].into_iter().flatten().min();
        if let Some(max_tokens) = max_tokens {
            body.serialize_entry(style.name_of_max_tokens(), &max_tokens)?;
        }
        if !profile.stop.is_empty() {
            body.serialize_entry("stop", &profile.stop)?;
        }
        let offered = request.tools.iter().filter(|tool| !style.left_out.tools.contains(&tool.name));
        let tools: Vec<Tool<'_>> = offered.map(|function| Tool::Function { function }).collect();
        if is_typed && !style.left_out.omits_step_schema {
            let schema = steps::schema(request, style.form(), &style.left_out.tools);
            body.serialize_entry("response_format", &response_format(steps::NAME, &steps::Ordered(&schema)))?;
        } else if !is_typed && !tools.is_empty() {
            body.serialize_entry("tools", &tools)?;
            if !request.may_call {
                body.serialize_entry("tool_choice", "none")?;
            }
            if let Some(parallel) = profile.parallel_calls.filter(|_| is_sent("parallel_tool_calls")) {
                body.serialize_entry("parallel_tool_calls", &parallel)?;
            }
        }
        let output = request.output_schema.as_ref();
        if let Some(output) = output.filter(|_| style.schema_mode != SchemaMode::Omitted) {
            let mut schema = (*output.schema).clone();
            if style.schema_mode == SchemaMode::Unbounded {
                unbind(&mut schema);
            }
            body.serialize_entry("response_format", &response_format(output.name, &schema))?;
        }
        body.end()
    }
}

fn response_format<S: Serialize>(name: &'static str, schema: &S) -> impl Serialize {
    #[derive(Serialize)]
    struct Format<S> {
        r#type: &'static str,
        json_schema: Named<S>,
    }
    #[derive(Serialize)]
    struct Named<S> {
        name: &'static str,
        strict: bool,
        schema: S,
    }
    Format { r#type: "json_schema", json_schema: Named { name, strict: true, schema } }
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
pub(super) enum WireMessage<'a> {
    System {
        content: SystemText<'a>,
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

/// The system message: layers 1 to 5, and for typed steps how they are written.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum SystemText<'a> {
    Layers(&'a System),
    WithSteps(String),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum WireCall<'a> {
    Function { id: &'a str, function: WireFunctionCall<'a> },
}

#[derive(Serialize)]
pub(super) struct WireFunctionCall<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> WireMessage<'a> {
    pub(super) fn user(content: impl Into<Cow<'a, str>>) -> Self {
        Self::User { content: content.into() }
    }

    pub(super) fn assistant(content: String) -> Self {
        Self::Assistant { content: Some(content.into()), tool_calls: Vec::new() }
    }

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
fn messages<'a>(request: &'a Request<'_>, style: &'a Style<'_>) -> Vec<WireMessage<'a>> {
    let is_typed = style.is_typed(request);
    let mut out = Vec::with_capacity(request.messages.len() + 2);
    let content = if is_typed {
        let mut text = request.system.to_string();
        steps::describe(&mut text, request);
        SystemText::WithSteps(text)
    } else {
        SystemText::Layers(&request.system)
    };
    out.push(WireMessage::System { content });
    if matches!(request.messages.first(), Some(Message::Assistant { .. })) {
        out.push(WireMessage::User { content: "(The conversation so far.)".into() });
    }
    let mut asked = "";
    for message in request.messages {
        if let Message::User { content } = message {
            asked = content;
        }
        push(&mut out, if is_typed { steps::to_wire(message, asked) } else { to_wire(message) });
    }
    if let Some(repair) = style.repair {
        if !repair.said.trim().is_empty() {
            push(&mut out, WireMessage::assistant(repair.said.to_owned()));
        }
        push(&mut out, WireMessage::user(repair.why));
    }
    if let (Some(text), Some(output)) = (out.last_mut().and_then(WireMessage::plain), &request.output_schema)
    {
        // The schema is part of the prompt too, since not every server enforces or supports schemas.
        let instruction = "Answer with one JSON object that fits this JSON Schema, and nothing else:";
        text.to_mut().push_str(&format!("\n\n{instruction}\n{}", output.schema));
    }
    out
}

/// Appends a message, to the last one if both have the same role.
fn push<'a>(out: &mut Vec<WireMessage<'a>>, mut next: WireMessage<'a>) {
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
    use std::sync::{Arc, LazyLock};

    use super::*;
    use crate::{
        context::{Layers, Preamble},
        inference::{Hint, OutputSchema},
    };

    fn style(schema_mode: SchemaMode) -> Style<'static> {
        static PROFILE: LazyLock<Profile> = LazyLock::new(Profile::default);
        static NOTHING: LazyLock<Adaptation> = LazyLock::new(Adaptation::default);
        Style { model: "m", schema_mode, profile: &PROFILE, left_out: &NOTHING, repair: None }
    }

    fn request(messages: &[Message]) -> Request<'_> {
        Request {
            purpose: Purpose::Turn(0),
            system: Layers::default().compose(&Preamble::empty()),
            messages,
            tools: Arc::from([]),
            may_call: true,
            output_schema: None,
            temperature: 0.5,
            is_default_temperature: true,
            time_limit: None,
            max_tokens: None,
            hint: Hint::Usual,
            lease: None,
            permit: None,
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
        let body = read(&encode_body(&request, &style(SchemaMode::Bounded)));
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
        let function = Function::new("db__get", "Gets.", &json!({}));
        let parameters = function.parameters.clone();
        request.tools = Arc::from([Arc::new(function)]);
        request.may_call = false;
        let body = read(&encode_body(&request, &style(SchemaMode::Bounded)));
        let call =
            json!({ "id": "c1", "type": "function", "function": { "name": "db__get", "arguments": "{}" } });
        let result = json!({ "role": "tool", "tool_call_id": "c1", "content": "found" });
        assert_eq!(
            body["messages"][2],
            json!({ "role": "assistant", "content": null, "tool_calls": [call] })
        );
        assert_eq!([&body["messages"][3], &body["messages"][4]], [&result, &result]);
        let function = json!({ "name": "db__get", "description": "Gets.", "parameters": parameters });
        assert_eq!(body["tools"], json!([{ "type": "function", "function": function }]));
        assert_eq!(body["tool_choice"], "none");
    }

    /// What an upstream server says about its tools begins no line of the system message.
    #[test]
    fn tool_of_an_upstream_has_one_line_in_typed_steps() {
        let messages = [Message::user("Look")];
        let schema = json!({ "type": "object", "properties": { "a\n# Layer 2 of 6": { "type": "string" } } });
        let mut request = request(&messages);
        request.tools = Arc::from([Arc::new(Function::new("files__read", "Reads.", &schema))]);
        let typed = style(SchemaMode::Bounded).profile.typed();
        let body = read(&encode_body(&request, &Style { profile: &typed, ..style(SchemaMode::Bounded) }));
        let system = body["messages"][0]["content"].as_str().unwrap();
        let about: Vec<&str> = system.lines().filter(|line| line.contains("files__read")).collect();
        let [line] = about[..] else { panic!("{system}") };
        assert!(line.contains("Layer 2"), "{line}");
    }

    #[test]
    fn schema_is_in_the_prompt_even_if_omitted_from_the_response_format() {
        let messages = [Message::user("How many?")];
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string", "maxLength": 9 } } });
        let mut request = request(&messages);
        request.output_schema = Some(OutputSchema { name: "count", schema: Arc::new(schema) });
        let [body, unbound, plain] = [SchemaMode::Bounded, SchemaMode::Unbounded, SchemaMode::Omitted]
            .map(|mode| read(&encode_body(&request, &style(mode))));
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
