//! The memory of many open streams.

use futures_util::{StreamExt, stream};
use testkit::{
    ChatEvent, GatewayProcess, Goal, Nats, OrchestratorBuilder, OrchestratorProcess, Report, Worker,
};

const STREAMS: usize = 2_000;
const KEYS: usize = 20;
const OPENED_AT_ONCE: usize = 32;

pub(crate) async fn measure(report: &mut Report) {
    println!("{STREAMS} open streams");
    let nats = Nats::start();
    let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    // It creates the streams. Without a worker all chats wait.
    drop(Worker::manager(&nats).start().await);
    let builder = OrchestratorBuilder::new(&nats, &gateway).await;
    let orchestrator = builder.set("rate_limits.concurrent_turns", STREAMS.to_string()).start().await;
    orchestrator.wait_until_it_hands_off().await;
    let idle = resident(&orchestrator);
    let mut clients = Vec::new();
    for number in 0..KEYS {
        clients.push(orchestrator.client(&gateway.api_key(&format!("user-{number}")).await.1));
    }
    let opening = (0..STREAMS).map(|number| {
        let client = &clients[number % KEYS];
        async move {
            let text = format!("What is {number}?");
            let mut stream = client.stream(&[("user", &text)]).await;
            assert!(matches!(stream.next().await, ChatEvent::Data(_)), "{stream:?}");
            stream
        }
    });
    let open: Vec<_> = stream::iter(opening).buffer_unordered(OPENED_AT_ONCE).collect().await;
    let used = resident(&orchestrator);
    assert_eq!(open.len(), STREAMS);
    report.add("resident memory, idle", "MiB", vec![idle], None);
    report.add("resident memory, 2,000 open streams", "MiB", vec![used], Some(Goal::AtMost(150.0)));
}

fn resident(orchestrator: &OrchestratorProcess) -> f64 {
    let process = procfs::process::Process::new(i32::try_from(orchestrator.process.id()).unwrap()).unwrap();
    process.status().unwrap().vmrss.unwrap() as f64 / 1_024.0
}
