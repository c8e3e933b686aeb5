//! A client for the OpenAI chat protocol.

use std::{error::Error, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A model server.
pub(crate) struct Model {
    http: reqwest::Client,
    url: String,
}

/// The reply of a model, as it is journaled.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) text: String,
    pub(crate) calls: Vec<ToolCall>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

impl Model {
    pub(crate) fn at(url: &str) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder().no_proxy().tcp_nodelay(true).timeout(Duration::from_secs(60));
        Ok(Self { http: http.build()?, url: format!("{url}/chat/completions") })
    }

    /// Requests a reply as a stream, as the worker does.
    pub(crate) async fn ask(&self, messages: &[Value]) -> Result<Reply, Box<dyn Error + Send + Sync>> {
        let body = json!({
            "model": "scripted", "messages": messages, "temperature": 0.2,
            "stream": true, "stream_options": { "include_usage": true },
            "tools": [{ "type": "function", "function": {
                "name": "db__task__create", "description": "Creates a task.",
                "parameters": {
                    "type": "object", "properties": { "title": { "type": "string" } }, "required": ["title"],
                },
            } }],
        });
        let request = self.http.post(&self.url).header("content-type", "application/json");
        let answered = request.body(body.to_string()).send().await?.error_for_status()?;
        let mut reply = Reply::default();
        for line in answered.text().await?.lines() {
            match line.strip_prefix("data: ") {
                None | Some("[DONE]") => {}
                Some(event) => reply.take(&serde_json::from_str(event)?),
            }
        }
        Ok(reply)
    }
}

impl Reply {
    /// Adds the content of one event of the stream.
    fn take(&mut self, event: &Value) {
        let delta = &event["choices"][0]["delta"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.text += &text(&delta["content"]);
        for part in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = part["index"].as_u64().and_then(|index| usize::try_from(index).ok()).unwrap_or(0);
            if self.calls.len() <= index {
                self.calls.resize_with(index + 1, ToolCall::default);
            }
            let call = &mut self.calls[index];
            call.id += &text(&part["id"]);
            call.name += &text(&part["function"]["name"]);
            call.arguments += &text(&part["function"]["arguments"]);
        }
    }

    /// Returns the reply as a message of the conversation.
    pub(crate) fn message(&self) -> Value {
        let calls = self.calls.iter().map(|call| {
            json!({
                "id": call.id, "type": "function",
                "function": { "name": call.name, "arguments": call.arguments },
            })
        });
        json!({ "role": "assistant", "content": null, "tool_calls": calls.collect::<Vec<_>>() })
    }
}
