//! A request as an OpenAI-compatible server reads it, written straight from where its parts lie: prompts are long, and
//! nothing of them is copied before.

use std::borrow::Cow;

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Value, json};
use subjects::{Message, ToolCall};

use super::{Request, request::Function};
use crate::context::System;

/// What goes over the wire.
pub(crate) fn body_of(request: &Request<'_>, model: &str, form: Form) -> Vec<u8> {
    written(&Body { request, model, form })
}

/// How the form of an answer is told beside the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// With bounds of texts, which keep small models from going on for ever.
    Bounded,
    /// Without: some providers turn down a schema that has them.
    Unbounded,
    /// Not at all, for a server that knows no forms.
    Untold,
}

fn written(body: &Body<'_>) -> Vec<u8> {
    // Texts, numbers and names: nothing of it can fail to be written.
    serde_json::to_vec(body).unwrap_or_default()
}

struct Body<'a> {
    request: &'a Request<'a>,
    model: &'a str,
    form: Form,
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
        if let Some(most) = request.max_tokens {
            body.serialize_entry("max_tokens", &most)?;
        }
        if !request.tools.is_empty() {
            let tools: Vec<Tool<'_>> =
                request.tools.iter().map(|function| Tool::Function { function }).collect();
            body.serialize_entry("tools", &tools)?;
            if !request.may_call {
                body.serialize_entry("tool_choice", "none")?;
            }
        }
        if let Some(shape) = request.shape.as_ref().filter(|_| self.form != Form::Untold) {
            let mut schema = (*shape.schema).clone();
            if self.form == Form::Unbounded {
                unbind(&mut schema);
            }
            let form = json!({ "name": shape.name, "strict": true, "schema": schema });
            body.serialize_entry("response_format", &json!({ "type": "json_schema", "json_schema": form }))?;
        }
        body.end()
    }
}

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
enum Said<'a> {
    System {
        content: &'a System,
    },
    User {
        content: Cow<'a, str>,
    },
    Assistant {
        /// There may be none beside calls.
        content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Call<'a> {
    Function { id: &'a str, function: Called<'a> },
}

#[derive(Serialize)]
struct Called<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> Said<'a> {
    /// The text, if it may grow by what follows.
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

/// Many servers want user and assistant to take turns, the user first: neighbours of one role become one message.
fn messages<'a>(request: &'a Request<'_>) -> Vec<Said<'a>> {
    let mut out = Vec::with_capacity(request.messages.len() + 2);
    out.push(Said::System { content: &request.system });
    if matches!(request.messages.first(), Some(Message::Assistant { .. })) {
        out.push(Said::User { content: "(The conversation so far.)".into() });
    }
    for message in request.messages {
        let mut next = said(message);
        let follows = out.last_mut().filter(|last| last.is_of_same_role(&next)).and_then(Said::plain);
        match (follows, next.plain()) {
            (Some(text), Some(more)) => {
                let text = text.to_mut();
                text.push_str("\n\n");
                text.push_str(more);
            }
            _ => out.push(next),
        }
    }
    if let (Some(text), Some(shape)) = (out.last_mut().and_then(Said::plain), &request.shape) {
        // In the question too: not every server holds a model to a form, and some do not know what one is.
        let form = "Answer with one JSON object that fits this JSON Schema, and nothing else:";
        text.to_mut().push_str(&format!("\n\n{form}\n{}", shape.schema));
    }
    out
}

fn said(message: &Message) -> Said<'_> {
    match message {
        Message::User { content } => Said::User { content: content.into() },
        Message::Assistant { content, calls } => Said::Assistant {
            content: (!content.is_empty() || calls.is_empty()).then(|| content.into()),
            tool_calls: calls.iter().map(call).collect(),
        },
        Message::Tool { call_id, content, .. } => Said::Tool { tool_call_id: call_id, content },
    }
}

fn call(call: &ToolCall) -> Call<'_> {
    Call::Function { id: &call.id, function: Called { name: &call.name, arguments: &call.arguments } }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        context::{Layers, Preamble},
        inference::{AnswerShape, Hint, Purpose},
    };

    fn request(messages: &[Message]) -> Request<'_> {
        Request {
            purpose: Purpose::Turn(0),
            system: Layers::default().compose(&Preamble::empty()),
            messages,
            tools: Arc::from([]),
            may_call: true,
            shape: None,
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
    fn user_and_assistant_take_turns_and_the_user_begins() {
        let messages = [
            assistant("Hello.", Vec::new()),
            Message::user("One"),
            Message::user("two"),
            assistant("", Vec::new()),
        ];
        let request = request(&messages);
        let body = read(&body_of(&request, "m", Form::Bounded));
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
    fn calls_and_their_results_stand_by_themselves() {
        let made = ToolCall { id: "c1".into(), name: "db__get".into(), arguments: "{}".into() };
        let result = Message::Tool { call_id: "c1".into(), name: "db__get".into(), content: "found".into() };
        let messages = [Message::user("Look"), assistant("", vec![made]), result.clone(), result];
        let mut request = request(&messages);
        let function =
            Function { name: "db__get".into(), description: "Gets.".into(), parameters: json!({}) };
        request.tools = Arc::from([Arc::new(function)]);
        request.may_call = false;
        let body = read(&body_of(&request, "m", Form::Bounded));
        let call =
            json!({ "id": "c1", "type": "function", "function": { "name": "db__get", "arguments": "{}" } });
        let told = json!({ "role": "tool", "tool_call_id": "c1", "content": "found" });
        assert_eq!(
            body["messages"][2],
            json!({ "role": "assistant", "content": null, "tool_calls": [call] })
        );
        assert_eq!([&body["messages"][3], &body["messages"][4]], [&told, &told]);
        let function = json!({ "name": "db__get", "description": "Gets.", "parameters": {} });
        assert_eq!(body["tools"], json!([{ "type": "function", "function": function }]));
        assert_eq!(body["tool_choice"], "none");
    }

    #[test]
    fn a_form_stands_in_the_question_too_and_may_be_left_out_beside_it() {
        let messages = [Message::user("How many?")];
        let schema = json!({ "type": "object", "properties": { "a": { "type": "string", "maxLength": 9 } } });
        let mut request = request(&messages);
        request.shape = Some(AnswerShape { name: "count", schema: Arc::new(schema) });
        let [body, unbound, plain] =
            [Form::Bounded, Form::Unbounded, Form::Untold].map(|form| read(&body_of(&request, "m", form)));
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
