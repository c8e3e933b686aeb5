//! Errands for measuring: the model answers at once and in one piece, and the tool does nothing but count. What they
//! cost is what running them costs.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use serde_json::{Map, Value, json};

use super::{CREATE, turn};
use crate::{Answer, Asked, Gateway, Model, Nats, Script, Tool, Worker, WorkerBuilder, typical};

/// A model and a tool server, for any number of errands, whoever runs them.
#[derive(Debug)]
pub struct QuickErrands {
    pub model: Model,
    pub tools: Gateway,
    effects: Effects,
}

type Effects = Arc<Mutex<BTreeMap<String, usize>>>;

impl QuickErrands {
    pub async fn start() -> Self {
        let think = |asked: &Asked| Script::Say(typical(asked.form().unwrap_or_default()).to_string());
        let model = Model::start_answering(|asked| at_once(turn(asked)), think).await;
        let effects = Effects::default();
        let tools = Gateway::start(vec![counting(Arc::clone(&effects))]).await;
        Self { model, tools, effects }
    }

    /// A worker that can run errands.
    pub fn worker(&self, nats: &Nats) -> WorkerBuilder {
        Worker::manager(nats).asking(&self.model).calling(&self.tools).set("agent.assess_input", "false")
    }

    /// Each effect that any errand had, and how often.
    pub fn effects(&self) -> BTreeMap<String, usize> {
        self.effects.lock().expect("no panic while counting").clone()
    }
}

fn counting(effects: Effects) -> Tool {
    let schema = json!({
        "type": "object", "properties": { "title": { "type": "string" } }, "required": ["title"],
    });
    let count = move |arguments: &Map<String, Value>| {
        let title = arguments["title"].as_str().expect("a title").to_owned();
        *effects.lock().expect("no panic while counting").entry(title).or_default() += 1;
        Answer::text("created")
    };
    Tool::new(&CREATE.replace("__", "."), "Creates a task.", schema, count)
}

/// As few events as the protocol allows.
fn at_once(script: Script) -> Script {
    let (delta, finish) = match script {
        Script::Call(calls) => {
            let calls = calls.iter().enumerate().map(|(index, (name, arguments))| {
                json!({
                    "index": index, "id": format!("call_{index}"), "type": "function",
                    "function": { "name": name, "arguments": arguments },
                })
            });
            (json!({ "role": "assistant", "tool_calls": calls.collect::<Vec<_>>() }), "tool_calls")
        }
        Script::Say(text) => (json!({ "role": "assistant", "content": text }), "stop"),
        other => panic!("not a turn of an errand: {other:?}"),
    };
    let chunk = |choices: Value| json!({ "id": "1", "object": "chat.completion.chunk", "choices": choices });
    let said = chunk(json!([{ "index": 0, "delta": delta, "finish_reason": null }]));
    let mut ended = chunk(json!([{ "index": 0, "delta": {}, "finish_reason": finish }]));
    ended["usage"] = json!({ "prompt_tokens": 100, "completion_tokens": 10 });
    Script::AtOnce(Box::new(Script::Raw(vec![said.to_string(), ended.to_string()])))
}
