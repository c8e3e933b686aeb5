//! Tries what a model server can do, for `cynode-pma check`: a chat, a typed answer and a tool call.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};
use settings::Report;
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

/// Token limit of a short answer.
const MAX_TOKENS: u32 = 200;
/// Longest wait for one reply. Small models on a busy machine are slow.
const MAX_WAIT: Duration = Duration::from_secs(60);
const NOT_CALLED: &str = "the model answered without calling one";
const TOOL: &str = "remember_color";

impl Inference {
    /// Tries the first configured server and reports what works.
    pub(crate) async fn try_out(&self, preamble: &Preamble, report: &mut Report) {
        let Backend::Routes(routes) = &self.backend else { return };
        match routes.all().next() {
            // The models behind the egress are asked on behalf of a user only.
            Some(route) if route.provider != LOCAL => {
                report.good("egress", "answers; external models are asked under the lease of a handoff");
            }
            Some(route) => route.endpoint.try_out(preamble, report).await,
            None => {}
        }
    }
}

impl Endpoint {
    async fn try_out(&self, preamble: &Preamble, report: &mut Report) {
        let started = Instant::now();
        let chat = match self.trial(preamble, "Say hello in one word.", |_| {}).await {
            Ok(chat) => chat,
            Err(why) => {
                let why = format!("{} does not answer a chat: {why}", self.label(Hint::Usual));
                return report.failed("chat", why, "Correct inference.model; the server may know others.");
            }
        };
        let learned = self.learn(Hint::Usual).await;
        match learned.profile().context_tokens {
            Some(tokens) => report.good("context", format!("{tokens} tokens")),
            None => report.remark("context", "not told by the server; set agent.context_tokens to it"),
        }
        let seconds = started.elapsed().as_secs_f64();
        report.good("chat", format!("works ({seconds:.1} s, {} prompt tokens)", chat.tokens.prompt));
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
            check_sum(&reply).map(|()| is_enforced)
        });
        match typed {
            Ok(true) => report.good("typed", "works"),
            Ok(false) => {
                report.remark("typed", "works, though the server refuses schemas: asked for in words")
            }
            Err(why) => report.remark("typed", format!("does not work: {why}; a larger model may do better")),
        }
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
        let is_called = |reply: Reply| {
            // One that was cut off does not work.
            let is_whole = |arguments: &str| serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
            reply.calls.iter().any(|call| call.name == TOOL && is_whole(&call.arguments))
        };
        match tool.map(is_called) {
            Ok(true) => report.good("tools", format!("work, by {mode}")),
            Ok(false) => {
                report.remark("tools", format!("{NOT_CALLED}, by {mode}: a larger one may do better"))
            }
            Err(why) => report.failed(
                "tools",
                format!("{} cannot be asked to call a tool: {why}", self.label(Hint::Usual)),
                "Set inference.tool_mode, or use another model.",
            ),
        }
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
            time_limit: None,
            max_tokens: Some(MAX_TOKENS),
            hint: Hint::Usual,
            lease: None,
            permit: None,
        };
        change(&mut request);
        let asked = timeout(MAX_WAIT, self.ask(&request, &NullListener)).await;
        let asked = asked.map_err(|_| format!("no reply within {} s", MAX_WAIT.as_secs()))?;
        asked.map_err(|fault| match fault {
            Fault::Transient { why, .. }
            | Fault::Unauthorized(why)
            | Fault::Denied { why, .. }
            | Fault::NoLease { why, .. }
            | Fault::TooLong { why, .. }
            | Fault::Permanent(why)
            | Fault::Unusable(why) => why,
        })
    }
}

fn check_sum(reply: &Reply) -> Result<(), String> {
    let object: Option<Map<String, Value>> = super::steps::first_object(&reply.content);
    let sum = object.and_then(|object| object.get("sum").and_then(Value::as_i64));
    sum.map(|_| ()).ok_or_else(|| "the reply is not of the form asked for".to_owned())
}

/// No client reads the text while it is streamed.
struct NullListener;

impl Listener for NullListener {
    fn on_try(&self, _: u32) {}

    fn on_text(&self, _: &str) {}
}
