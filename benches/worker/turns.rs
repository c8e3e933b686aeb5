//! The overhead of the worker per turn: everything except the time of the model and the tools.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::Response,
    routing::post,
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use subjects::{Delta, Pattern, Work};
use testkit::{Goal, Nats, Orchestrator, Report, Worker, chat, typical};
use tokio::net::TcpListener;

const IN_FLIGHT: usize = 64;
const TURNS: usize = 2_000;
/// Fast for a model; with 64 in flight it gives more than a hundred turns per second.
const THINKING: Duration = Duration::from_millis(500);

/// Measures composing a context of 200 messages and 64 KiB, from the handoff to the request body.
pub(crate) fn compose(report: &mut Report) {
    const ROUNDS: usize = 2_000;
    println!("composing a context of 200 messages, 64 KiB");
    let mut compose = cynode_pma::measure::request_composer(200, 64 * 1_024);
    let mut samples: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let started = Instant::now();
            std::hint::black_box(compose());
            started.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    report.add("compose 200 messages, 64 KiB, p50", "us", vec![samples[ROUNDS / 2]], None);
    report.add("compose 200 messages, 64 KiB, p99", "us", vec![samples[ROUNDS * 99 / 100]], None);
}

/// When a request reached the model, and when the first and the last piece of its reply were sent.
#[derive(Clone, Copy, Debug)]
struct TurnTimes {
    arrived: Instant,
    first: Instant,
    last: Instant,
}

type ModelTimes = Arc<Mutex<HashMap<String, TurnTimes>>>;

/// Measures turns against a model of known speed. The rest of the time is overhead, including NATS.
pub(crate) async fn measure(report: &mut Report) {
    println!("turns: {TURNS} with {IN_FLIGHT} in flight, a model that takes {THINKING:?} to twice that");
    let times = ModelTimes::default();
    let address = serve(Arc::clone(&times)).await;
    let nats = Nats::start();
    let _worker = Worker::manager(&nats)
        .set("inference.base_url", format!("http://{address}/v1"))
        .set("inference.model", "bench")
        // More slots than turns, so that the wait for a slot is not measured.
        .set("worker.concurrency.chat", (2 * IN_FLIGHT).to_string())
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let deltas = tokio::task::JoinSet::from_iter([first_deltas(orchestrator.clone())]);
    let ours = (0..TURNS).map(|number| turn(&orchestrator, &times, number));
    let mut ours: Vec<f64> = stream::iter(ours).buffer_unordered(IN_FLIGHT).collect().await;
    // Ignores the first turns, which establish the connections.
    ours.drain(..IN_FLIGHT);
    let mut forwarded = deltas.join_all().await.pop().unwrap_or_default();
    let answered = times.lock().unwrap();
    let mut forwarded: Vec<f64> = forwarded
        .drain(..)
        .filter_map(|(text, heard)| {
            Some(heard.duration_since(answered.get(&text)?.first).as_secs_f64() * 1e3)
        })
        .skip(IN_FLIGHT)
        .collect();
    ours.sort_by(f64::total_cmp);
    forwarded.sort_by(f64::total_cmp);
    let at = |sorted: &[f64], share: usize| vec![sorted[sorted.len() * share / 100]];
    report.add("turn overhead, p50", "ms", at(&ours, 50), Some(Goal::AtMost(2.0)));
    report.add("turn overhead, p99", "ms", at(&ours, 99), Some(Goal::AtMost(10.0)));
    report.add("first delta forwarded, p50", "ms", at(&forwarded, 50), Some(Goal::AtMost(1.0)));
    report.add("first delta forwarded, p99", "ms", at(&forwarded, 99), None);
}

/// Publishes one handoff and returns the time from publish to answer, minus the time of the model, in
/// milliseconds.
async fn turn(orchestrator: &Orchestrator, times: &ModelTimes, number: usize) -> f64 {
    let text = format!("turn {number}");
    let mut question = chat(&text);
    if let Work::Chat(chat) = &mut question.work {
        chat.stream = true;
    }
    let subject = subjects::Subject::Completion(question.id).to_string();
    let mut answers = orchestrator.client.subscribe(subject).await.expect("subscribed");
    orchestrator.client.flush().await.expect("flushed");
    let started = Instant::now();
    orchestrator.publish(&question).await;
    answers.next().await.expect("an answer");
    let all = started.elapsed();
    let answered = times.lock().unwrap()[&text];
    let models = answered.last.duration_since(answered.arrived);
    all.saturating_sub(models).as_secs_f64() * 1e3
}

/// Returns the text of the first delta of each handoff, and when it was received.
async fn first_deltas(orchestrator: Orchestrator) -> Vec<(String, Instant)> {
    let mut deltas = orchestrator.client.subscribe(Pattern::Deltas.to_string()).await.expect("subscribed");
    let mut seen = Vec::with_capacity(TURNS);
    while seen.len() < TURNS {
        let Ok(Some(message)) = tokio::time::timeout(Duration::from_secs(20), deltas.next()).await else {
            break;
        };
        let heard = Instant::now();
        let delta: Delta = serde_json::from_slice(&message.payload).expect("a delta");
        if delta.sequence == 0 {
            seen.push((delta.text, heard));
        }
    }
    assert!(seen.len() > TURNS / 2, "only {} first deltas were heard", seen.len());
    seen
}

/// Starts a model that waits and then echoes the question in two pieces.
async fn serve(times: ModelTimes) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let app = Router::new().route("/v1/chat/completions", post(answer)).with_state(times);
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        stream.set_nodelay(true).expect("TCP_NODELAY");
    });
    let serving = async move { axum::serve(listener, app).await.expect("it serves") };
    #[expect(clippy::disallowed_methods, reason = "it serves until the benchmark ends")]
    tokio::spawn(serving);
    address
}

/// Returns the delay of the model for a question. It varies, since otherwise all turns would start and end
/// together and compete with each other.
fn thinking(text: &str) -> Duration {
    let spread =
        text.bytes().fold(7_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte))) % 500;
    THINKING + Duration::from_millis(spread)
}

async fn answer(State(times): State<ModelTimes>, body: Bytes) -> Response<Body> {
    let arrived = Instant::now();
    let body: Value = serde_json::from_slice(&body).expect("JSON");
    let event = |delta: Value, finish: Option<&str>| {
        let chunk = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
        Bytes::from(format!("data: {chunk}\n\n"))
    };
    let done = Bytes::from("data: [DONE]\n\n");
    let respond =
        |body: Body| Response::builder().header("content-type", "text/event-stream").body(body).unwrap();
    if let Some(form) = body.pointer("/response_format/json_schema/name").and_then(Value::as_str) {
        let all = [event(json!({ "content": typical(form).to_string() }), Some("stop")), done];
        return respond(Body::from(all.concat()));
    }
    let text = body["messages"].as_array().and_then(|all| all.last()).expect("a message")["content"].clone();
    let text = text.as_str().expect("text").to_owned();
    let (first_half, second_half) = (text.clone(), " indeed");
    let pieces = [
        (thinking(&text), event(json!({ "content": first_half }), None)),
        (Duration::from_millis(20), event(json!({ "content": second_half }), Some("stop"))),
        (Duration::ZERO, done),
    ];
    let times = Arc::new((times, text, arrived));
    let pieces = stream::iter(pieces.into_iter().enumerate()).then(move |(number, (wait, piece))| {
        let times = Arc::clone(&times);
        async move {
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            let now = Instant::now();
            let (times, text, arrived) = &*times;
            let mut times = times.lock().unwrap();
            let entry =
                times.entry(text.clone()).or_insert(TurnTimes { arrived: *arrived, first: now, last: now });
            if number > 0 {
                entry.last = now;
            }
            Ok::<Bytes, std::io::Error>(piece)
        }
    });
    respond(Body::from_stream(pieces))
}
