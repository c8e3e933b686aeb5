//! A running stack.

use serde_json::{Value, json};
use testkit::{
    ChatClient, GatewayProcess, Model, Nats, OrchestratorBuilder, OrchestratorProcess, Script, TestClock,
    Worker, WorkerBuilder,
};

pub(crate) struct Stage {
    pub(crate) nats: Nats,
    pub(crate) gateway: GatewayProcess,
    pub(crate) model: Model,
    pub(crate) worker: Worker,
    pub(crate) orchestrator: OrchestratorProcess,
    pub(crate) builder: OrchestratorBuilder,
    /// An API key of the user `alice`.
    pub(crate) key: String,
}

impl Stage {
    /// Starts a stack whose model follows this script.
    pub(crate) async fn start(turns: impl IntoIterator<Item = Script>) -> Self {
        Self::start_with(Model::start(turns).await, |builder| builder).await
    }

    /// Starts a stack with a changed orchestrator.
    pub(crate) async fn start_with(
        model: Model,
        change: impl Fn(OrchestratorBuilder) -> OrchestratorBuilder,
    ) -> Self {
        Self::start_with_worker(model, |worker| worker, change).await
    }

    /// Starts a stack with a changed worker and a changed orchestrator.
    pub(crate) async fn start_with_worker(
        model: Model,
        change_worker: impl Fn(WorkerBuilder) -> WorkerBuilder,
        change: impl Fn(OrchestratorBuilder) -> OrchestratorBuilder,
    ) -> Self {
        let nats = Nats::start();
        let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
        Self::start_on(nats, gateway, model, change_worker, change).await
    }

    /// Starts a stack whose gateway has this clock.
    pub(crate) async fn start_at(model: Model, clock: &TestClock) -> Self {
        let nats = Nats::start();
        let settings = [("nats.url", &*nats.url())];
        let gateway = GatewayProcess::start_with_variables(&settings, &[clock.variable()]).await;
        Self::start_on(nats, gateway, model, |worker| worker, |builder| builder).await
    }

    /// Starts a stack on this NATS and this gateway.
    pub(crate) async fn start_on(
        nats: Nats,
        gateway: GatewayProcess,
        model: Model,
        change_worker: impl Fn(WorkerBuilder) -> WorkerBuilder,
        change: impl Fn(OrchestratorBuilder) -> OrchestratorBuilder,
    ) -> Self {
        let manager = change_worker(Worker::manager(&nats).asking(&model).set("worker.ack_wait", "5s"));
        let worker = manager.calling_process(&gateway).await.start().await;
        let builder = change(OrchestratorBuilder::new(&nats, &gateway).await);
        let orchestrator = builder.start().await;
        let key = gateway.api_key("alice").await.1;
        Self { nats, gateway, model, worker, orchestrator, builder, key }
    }

    /// Returns a client of the user `alice`.
    pub(crate) fn client(&self) -> ChatClient {
        self.orchestrator.client(&self.key)
    }

    /// Returns how many handoffs were ever published.
    pub(crate) async fn handoffs(&self) -> u64 {
        let jetstream = async_nats::jetstream::new(self.nats.client().await);
        let stream = jetstream.get_stream(subjects::streams::HANDOFFS).await.unwrap();
        stream.get_info().await.unwrap().state.last_sequence
    }
}

/// A turn in which the model says something and calls a tool.
pub(crate) fn say_and_call(text: &str, tool: &str, arguments: &Value) -> Script {
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }).to_string()
    };
    let function = json!({ "name": tool, "arguments": arguments.to_string() });
    let call = json!({ "index": 0, "id": "call_0", "type": "function", "function": function });
    let letters: Vec<char> = text.chars().collect();
    let pieces = letters.chunks(7).map(|piece| piece.iter().collect::<String>());
    let mut chunks: Vec<String> = pieces.map(|piece| chunk(json!({ "content": piece }), None)).collect();
    chunks.push(chunk(json!({ "tool_calls": [call] }), None));
    chunks.push(chunk(json!({}), Some("tool_calls")));
    Script::Raw(chunks)
}
