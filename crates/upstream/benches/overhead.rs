//! Measures the cost of a call in addition to the bare HTTP exchange: `cargo bench -p upstream`.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that cannot be made must stop")]

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use testkit::ScriptedServer;
use upstream::{Breaker, Options, Transport, Upstream};

const CALLS: usize = 4000;

#[tokio::main]
async fn main() {
    for (streamed, bytes) in [(false, 20), (false, 20_000), (true, 20)] {
        let text = "x".repeat(bytes);
        // In a separate runtime, as a real server would be.
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let result = json!({"content": [{"type": "text", "text": text}], "resultType": "complete"});
                let server = ScriptedServer::start(streamed, move |_| result.clone()).await;
                sender.send(server.url()).unwrap();
                std::future::pending::<()>().await;
                drop(server);
            });
        });
        let url = receiver.recv().unwrap();
        let kind = if streamed { "streamed" } else { "plain" };
        for at_once in [1, 8, 64] {
            println!("{kind}, results of {bytes} bytes, {at_once} at a time:");
            // Also installs the TLS provider that the bare client needs.
            let upstream = connected(&url);
            let client = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build().unwrap();
            let bare = measure(at_once, async || exchange(&client, &url).await).await;
            let ours = measure(at_once, async || {
                upstream.call("echo", Map::new(), Map::new(), None).await.unwrap();
            })
            .await;
            println!("  bare {bare:?}\n  ours {ours:?}");
        }
    }
}

fn connected(url: &str) -> Upstream {
    Upstream::new(Options {
        name: "bench".to_owned(),
        transport: Transport::Http { url: url.to_owned(), token_file: None, addresses: None },
        connect_timeout: Duration::from_secs(5),
        call_timeout: Duration::from_secs(30),
        concurrency: 64,
        max_result_bytes: 1 << 20,
        fast_path: true,
        breaker: Breaker { failures: 5, open_for: Duration::from_secs(5) },
    })
    .unwrap()
}

async fn exchange(client: &reqwest::Client, url: &str) {
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo", "arguments": {}},
    });
    let answer = client.post(url).body(body.to_string()).send().await.unwrap().bytes().await.unwrap();
    let start = answer.iter().position(|byte| *byte == b'{').unwrap();
    serde_json::from_slice::<Value>(answer[start..].trim_ascii()).unwrap();
}

#[derive(Debug)]
#[expect(dead_code, reason = "it is printed")]
struct Times {
    p50: Duration,
    p99: Duration,
    per_second: u64,
}

async fn measure(at_once: usize, work: impl AsyncFn()) -> Times {
    for _ in 0..100 {
        work().await;
    }
    let start = Instant::now();
    let lanes = (0..at_once).map(|_| async {
        let mut times = Vec::new();
        for _ in 0..CALLS / at_once {
            let start = Instant::now();
            work().await;
            times.push(start.elapsed());
        }
        times
    });
    let mut times: Vec<Duration> = join_all(lanes).await.into_iter().flatten().collect();
    let per_second = (times.len() as f64 / start.elapsed().as_secs_f64()) as u64;
    times.sort_unstable();
    Times { p50: times[times.len() / 2], p99: times[times.len() * 99 / 100], per_second }
}
