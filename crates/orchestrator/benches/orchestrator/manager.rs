//! The project manager through the orchestrator, and by a handoff that a client publishes itself.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use serde_json::json;
use subjects::{Subject, Work};
use testkit::{
    ChatClient, ChatEvent, GatewayProcess, Goal, Model, Nats, Orchestrator, OrchestratorBuilder, Report,
    Script, Worker, chat,
};
use tokio::{sync::oneshot, task::JoinSet};

use super::times::Times;

const ROUNDS: usize = 5;
const STREAMS: usize = 64;
const TURNS: usize = 6;
/// The model thinks for so long, which keeps the cores from being the bottleneck.
const THINKING: Duration = Duration::from_millis(800);

/// Publishes handoffs as an orchestrator of one's own would: a lease, a handoff, live text.
struct Bare {
    gateway: GatewayProcess,
    agent: mcp::Client,
    publisher: Orchestrator,
    waiting: Arc<Mutex<HashMap<String, oneshot::Sender<Instant>>>>,
}

pub(crate) async fn measure(report: &mut Report) {
    println!("{STREAMS} chats with the project manager at a time");
    let nats = Nats::start();
    let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let thinks = Script::After(THINKING, Box::new(Script::say("A short answer.")));
    let model = Model::start([thinks]).await;
    let manager = Worker::manager(&nats).asking(&model).set("agent.assess_input", "false");
    let manager = manager.set("worker.concurrency.chat", (2 * STREAMS).to_string());
    let _worker = manager.calling_process(&gateway).await.start().await;
    let builder = OrchestratorBuilder::new(&nats, &gateway).await;
    let orchestrator = builder.set("rate_limits.concurrent_turns", "1000").start().await;
    orchestrator.wait_until_it_hands_off().await;
    let mut clients = Vec::new();
    for number in 0..STREAMS {
        clients.push(orchestrator.client(&gateway.api_key(&format!("user-{number}")).await.1));
    }
    let bare = Arc::new(Bare::new(&nats, gateway).await);
    let (mut added, mut added_99, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let mut without = Times::default();
        let mut tasks: JoinSet<Times> =
            (0..STREAMS).map(|number| Bare::take_turns(Arc::clone(&bare), number)).collect();
        while let Some(times) = tasks.join_next().await {
            without.extend(times.unwrap());
        }
        let mut with = Times::default();
        let mut tasks: JoinSet<Times> =
            clients.iter().cloned().enumerate().map(|(number, client)| take_turns(client, number)).collect();
        while let Some(times) = tasks.join_next().await {
            with.extend(times.unwrap());
        }
        // The first round opens connections and fills caches.
        if round > 0 {
            added.push(with.quantile(0.5) - without.quantile(0.5));
            added_99.push(with.quantile(0.99) - without.quantile(0.99));
            alone.push(without.quantile(0.5) - THINKING.as_secs_f64() * 1_000.0);
        }
    }
    report.add("bare handoff without the model's time, first token, p50", "ms", alone, None);
    let what = "door adds to the first token of the project manager";
    report.add(&format!("{what}, p50"), "ms", added, Some(Goal::AtMost(2.0)));
    report.add(&format!("{what}, p99"), "ms", added_99, Some(Goal::AtMost(5.0)));
}

/// Waits for a chat's turn to begin. Chats that begin in the same instant would wait for each other on two
/// cores, which says nothing about what the orchestrator adds.
async fn spread(number: usize) {
    let share = u32::try_from(number).unwrap() * THINKING / u32::try_from(STREAMS).unwrap();
    tokio::time::sleep(share).await;
}

/// Chats through the orchestrator.
async fn take_turns(client: ChatClient, number: usize) -> Times {
    let mut times = Times::default();
    spread(number).await;
    for _ in 0..TURNS {
        let began = Instant::now();
        let mut stream = client.stream(&[("user", "hello")]).await;
        loop {
            match stream.next().await {
                ChatEvent::Data(data)
                    if data.pointer("/choices/0/delta/content").is_some_and(|text| *text != "") =>
                {
                    break;
                }
                ChatEvent::Data(_) | ChatEvent::Comment(_) => {}
                event => panic!("no text: {event:?}"),
            }
        }
        times.add(began.elapsed());
        stream.read().await;
    }
    times
}

impl Bare {
    async fn new(nats: &Nats, gateway: GatewayProcess) -> Self {
        let agent = gateway.agent(&gateway.unbound("orchestrator").await);
        let waiting = Arc::new(Mutex::new(HashMap::<String, oneshot::Sender<Instant>>::new()));
        let mut deltas = nats.client().await.subscribe("pma.delta.*").await.unwrap();
        let waiters = Arc::clone(&waiting);
        #[expect(clippy::disallowed_methods, reason = "it ends with the measurement")]
        tokio::spawn(async move {
            while let Some(delta) = deltas.next().await {
                let waiter = waiters.lock().unwrap().remove(delta.subject.as_str());
                if let Some(waiter) = waiter {
                    waiter.send(Instant::now()).expect("a turn waits for its text");
                }
            }
        });
        Self { gateway, agent, publisher: Orchestrator::connect(nats).await, waiting }
    }

    async fn take_turns(bare: Arc<Self>, number: usize) -> Times {
        let mut times = Times::default();
        spread(number).await;
        for _ in 0..TURNS {
            let mut handoff = chat("hello");
            if let Work::Chat(chat) = &mut handoff.work {
                chat.stream = true;
            }
            let (sender, receiver) = oneshot::channel();
            bare.waiting.lock().unwrap().insert(Subject::Delta(handoff.id).to_string(), sender);
            let began = Instant::now();
            let wanted = json!({
                "agent": "project_manager", "user_id": format!("user-{number}"),
                "handoff_id": handoff.id.to_string(),
            });
            let issued = bare.gateway.call(&bare.agent, "lease.issue", wanted).await.unwrap();
            let issued = issued.structured.unwrap_or_else(|| panic!("{}", issued.text));
            bare.publisher.publish_under(&handoff, issued["lease"].as_str().unwrap()).await;
            times.add(receiver.await.unwrap() - began);
        }
        times
    }
}
