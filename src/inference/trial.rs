//! Tries what a model server can do, for `cynode-pma check`: a chat, a typed answer and a tool call.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};
use subjects::Message;
use tokio::time::timeout;

use super::{
    Backend, Endpoint, Function, Hint, Inference, LOCAL, OutputSchema, Purpose, Reply, Request,
    endpoint::WITHOUT_SCHEMA, request::Fault, service::Listener,
};
use crate::{
    config::ToolMode,
    context::{Layers, Preamble},
};

/// Room for a short answer.
const MAX_TOKENS: u32 = 200;
/// Longest wait for one reply. Small models on a busy machine are slow.
const MAX_WAIT: Duration = Duration::from_secs(60);
const NOT_CALLED: &str = "the model answered without calling one";
const TOOL: &str = "remember_color";

impl Inference {
    /// Tries the first configured server and returns lines that say what works. `Err` if not even a chat
    /// does.
    pub(crate) async fn try_out(&self, preamble: &Preamble) -> Result<Vec<String>, String> {
        let Backend::Routes(routes) = &self.backend else { return Ok(Vec::new()) };
        match routes.all().next() {
            Some(route) if route.provider != LOCAL => route.endpoint.try_egress().await,
            Some(route) => route.endpoint.try_out(preamble).await,
            None => Ok(Vec::new()),
        }
    }
}

impl Endpoint {
    /// Tries whether the egress answers. The models behind it are asked on behalf of a user only.
    async fn try_egress(&self) -> Result<Vec<String>, String> {
        if self.probe().await {
            return Ok(vec![
                "egress     answers; external models are asked under the lease of a handoff".to_owned(),
            ]);
        }
        Err(format!("the egress does not answer for {}, or refuses this token", self.label(Hint::Usual)))
    }

    async fn try_out(&self, preamble: &Preamble) -> Result<Vec<String>, String> {
        let started = Instant::now();
        let chat = self.trial(preamble, "Say hello in one word.", |_| {}).await;
        let chat =
            chat.map_err(|why| format!("{} does not answer a chat: {why}", self.label(Hint::Usual)))?;
        let learned = self.learn(Hint::Usual).await;
        let profile = learned.profile();
        let context = profile.context_tokens.map_or_else(
            || "not told by the server; set agent.context_tokens to it".to_owned(),
            |tokens| format!("{tokens} tokens"),
        );
        let seconds = started.elapsed().as_secs_f64();
        let mut lines = vec![
            format!("context    {context}"),
            format!("chat       works ({seconds:.1} s, {} prompt tokens)", chat.tokens.prompt),
        ];
        let typed = self.trial(preamble, "What is two plus three?", |request| {
            let schema = json!({
                "type": "object",
                "properties": { "sum": { "type": "integer" } },
                "required": ["sum"],
                "additionalProperties": false,
            });
            request.output_schema = Some(OutputSchema { name: "check", schema: Arc::new(schema) });
        });
        let typed = typed.await.and_then(|reply| {
            let is_enforced = reply.note.as_deref() != Some(WITHOUT_SCHEMA);
            has_sum(&reply).map(|()| is_enforced)
        });
        lines.push(match typed {
            Ok(true) => "typed      works".to_owned(),
            Ok(false) => "typed      works, though the server refuses schemas: asked for in words".to_owned(),
            Err(why) => format!("typed      does not work: {why}"),
        });
        let tool = self.trial(preamble, "Call the tool to remember the color blue.", |request| {
            let schema = json!({
                "type": "object", "properties": { "color": { "type": "string" } }, "required": ["color"],
            });
            let function = Function::new(TOOL, "Remembers a color.", &schema);
            request.tools = [Arc::new(function)].into();
            request.may_call = true;
        });
        let tool = tool.await;
        let mode = match learned.profile().tool_mode {
            Some(ToolMode::Typed) => "typed steps",
            Some(ToolMode::Native) | None => "native calls",
        };
        match tool.map(|reply| reply.calls.iter().any(|call| call.name == TOOL)) {
            Ok(true) => lines.push(format!("tools      work, by {mode}")),
            Ok(false) => {
                lines.push(format!("tools      {NOT_CALLED}, by {mode}: a larger one may do better"))
            }
            Err(why) => {
                let (model, works) = (self.label(Hint::Usual), lines.join("\n"));
                return Err(format!("{model} cannot be asked to call a tool: {why}\n{works}"));
            }
        }
        Ok(lines)
    }

    async fn trial(
        &self,
        preamble: &Preamble,
        question: &str,
        change: impl FnOnce(&mut Request<'_>),
    ) -> Result<Reply, String> {
        let messages = [Message::user(question)];
        let mut request = Request {
            purpose: Purpose::Turn(0),
            system: Layers::default().compose(preamble),
            messages: &messages,
            tools: Arc::from([]),
            may_call: false,
            output_schema: None,
            temperature: 0.0,
            is_default_temperature: true,
            max_tokens: Some(MAX_TOKENS),
            hint: Hint::Usual,
            lease: None,
        };
        change(&mut request);
        let asked = timeout(MAX_WAIT, self.ask(&request, &Deaf)).await;
        let asked = asked.map_err(|_| format!("no reply within {} s", MAX_WAIT.as_secs()))?;
        asked.map_err(|fault| match fault {
            Fault::Transient { why, .. }
            | Fault::Unauthorized(why)
            | Fault::Denied { why, .. }
            | Fault::TooLong { why, .. }
            | Fault::Permanent(why)
            | Fault::Unusable(why) => why,
        })
    }
}

fn has_sum(reply: &Reply) -> Result<(), String> {
    let object: Option<Map<String, Value>> = super::steps::first_object(&reply.content);
    let sum = object.and_then(|object| object.get("sum").and_then(Value::as_i64));
    sum.map(|_| ()).ok_or_else(|| "the reply is not of the form asked for".to_owned())
}

/// No client reads the text while it is streamed.
struct Deaf;

impl Listener for Deaf {
    fn on_try(&self, _: u32) {}

    fn on_text(&self, _: &str) {}
}
