//! A direct model through the orchestrator, without it, and through LiteLLM.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{
    ChatClient, ChatEvent, GatewayProcess, Goal, Model, ModelRequest, Nats, OrchestratorBuilder, Report,
    Script,
};
use tokio::task::JoinSet;

use super::{litellm::LiteLlm, times::Times};

const ROUNDS: usize = 5;
const REQUESTS: usize = 300;
const CONNECTIONS: usize = 64;
const MEASURE_TIME: Duration = Duration::from_secs(5);
pub(crate) const MODEL_ID: &str = "local";
const ANSWER: &str = "A short answer.";

pub(crate) async fn measure(report: &mut Report) {
    let model = Model::start_answering(answer, answer).await;
    let (nats, gateway) = (Nats::start(), GatewayProcess::start().await);
    let models = format!(r#"[{{ id = "{MODEL_ID}", url = "{}" }}]"#, model.url());
    let builder = OrchestratorBuilder::new(&nats, &gateway).await;
    let builder = builder.set("direct.models", models).set("rate_limits.concurrent_turns", "1000");
    let orchestrator = builder.start().await;
    let key = gateway.api_key("ada").await.1;
    let (alone, through) = (ChatClient::new(&model.url(), ""), orchestrator.client(&key));
    first_tokens(&alone, &through, report).await;
    let peer = LiteLlm::start(&model.url()).await;
    let mut ratios = Vec::new();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    println!("{CONNECTIONS} connections to a direct model");
    for _ in 0..ROUNDS {
        let own = answers_per_second(&through).await;
        ours.push(own);
        if let Some(peer) = &peer {
            let other = answers_per_second(&peer.client()).await;
            theirs.push(other);
            ratios.push(own / other);
        }
    }
    report.add("direct model, answers per second", "1/s", ours, None);
    match peer {
        Some(_) => {
            report.add("LiteLLM, answers per second", "1/s", theirs, None);
            report.add("direct model, times LiteLLM's throughput", "x", ratios, Some(Goal::AtLeast(5.0)));
        }
        None => println!("LiteLLM is not there (scripts/get_litellm.py); not compared"),
    }
}

/// Answers as a stream or as one document, as it was asked to.
fn answer(request: &ModelRequest) -> Script {
    if request.body["stream"] == true {
        return Script::say(ANSWER);
    }
    let message = json!({ "role": "assistant", "content": ANSWER });
    Script::Json(json!({
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": MODEL_ID,
        "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16 },
    }))
}

/// Measures what the orchestrator adds to the time until the first token.
async fn first_tokens(alone: &ChatClient, through: &ChatClient, report: &mut Report) {
    println!("one direct chat at a time");
    let (mut added, mut direct) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (mut without, mut with) = (Times::default(), Times::default());
        for _ in 0..REQUESTS {
            without.add(first_token(alone).await);
            with.add(first_token(through).await);
        }
        added.push(with.quantile(0.5) - without.quantile(0.5));
        direct.push(without.quantile(0.5));
    }
    report.add("direct model alone, first token, p50", "ms", direct, None);
    report.add("door adds to the first token of a direct model, p50", "ms", added, Some(Goal::AtMost(1.0)));
}

fn body(streams: bool) -> Value {
    json!({ "model": MODEL_ID, "messages": [{ "role": "user", "content": "hello" }], "stream": streams })
}

async fn first_token(client: &ChatClient) -> Duration {
    let began = Instant::now();
    let mut stream = client.open("/chat/completions", &body(true)).await.unwrap();
    let has_text = |event: &ChatEvent| match event {
        ChatEvent::Data(data) => data.pointer("/choices/0/delta/content").is_some_and(|text| *text != ""),
        event => panic!("no text: {event:?}"),
    };
    while !has_text(&stream.next().await) {}
    let took = began.elapsed();
    stream.read().await;
    took
}

/// Returns the answers per second over many connections, each waiting for its answer before it asks again.
async fn answers_per_second(client: &ChatClient) -> f64 {
    let mut tasks = JoinSet::new();
    let end = Instant::now() + MEASURE_TIME;
    for _ in 0..CONNECTIONS {
        let client = client.clone();
        tasks.spawn(async move {
            let mut count = 0_u32;
            while Instant::now() < end {
                let answer = client.send("POST", "/chat/completions", Some(body(false))).await;
                assert_eq!(answer.content(), ANSWER);
                count += 1;
            }
            count
        });
    }
    f64::from(tasks.join_all().await.iter().sum::<u32>()) / MEASURE_TIME.as_secs_f64()
}
