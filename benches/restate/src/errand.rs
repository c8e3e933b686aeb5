//! The handler: asks the model, calls tools, asks again.

use mcp::Call;
use restate_sdk::prelude::*;
use serde_json::{Value, json};

use crate::model::{Model, Reply, ToolCall};

/// The worker's default.
const MAX_STEPS: usize = 12;

pub(crate) struct Errands {
    pub(crate) model: Model,
    pub(crate) tools: mcp::Client,
}

#[service]
impl Errands {
    #[handler]
    async fn errand(&self, ctx: Context<'_>, name: String) -> Result<String, HandlerError> {
        let mut messages = vec![
            json!({ "role": "system", "content": "You run errands with the tools that you are given." }),
            json!({ "role": "user", "content": format!("Create the tasks of errand {name}") }),
        ];
        let mut called = 0;
        for _ in 0..MAX_STEPS {
            let ask = || async { self.model.ask(&messages).await.map(Json).map_err(HandlerError::from) };
            let reply: Reply = ctx.run(ask).name("model").await?.into_inner();
            if reply.calls.is_empty() {
                return Ok(reply.text);
            }
            messages.push(reply.message());
            // Sequential, since this SDK does not support concurrent runs. Other errands are in flight
            // meanwhile.
            for call in &reply.calls {
                called += 1;
                let key = format!("{}-{called}", ctx.invocation_id());
                let result: String = ctx.run(|| self.call(call, &key)).name("tool").await?;
                messages.push(json!({ "role": "tool", "tool_call_id": call.id, "content": result }));
            }
        }
        Err(TerminalError::new("no answer within its steps").into())
    }
}

impl Errands {
    /// Calls a tool. With the same key the call takes effect once, even if it is repeated after a crash.
    async fn call(&self, call: &ToolCall, key: &str) -> Result<String, HandlerError> {
        let name = call.name.replace("__", ".");
        let Value::Object(arguments) = serde_json::from_str(&call.arguments)? else {
            return Err(TerminalError::new("arguments that are no object").into());
        };
        let call =
            Call { name: &name, arguments, idempotency_key: Some(key), traceparent: None, lease: None };
        Ok(self.tools.call(call).await?.text)
    }
}
