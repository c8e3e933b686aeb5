//! Tests the fake gateway that the worker tests use.

use std::time::{Duration, Instant};

use mcp::{Call, Client, Options};
use serde_json::{Map, json};
use testkit::{Answer, Gateway, Tool};

fn client(gateway: &Gateway) -> Client {
    Client::new(Options {
        url: gateway.url(),
        token_file: None,
        connect_timeout: Duration::from_secs(2),
        call_timeout: Duration::from_secs(10),
        max_result_bytes: 4096,
        fast_path: true,
        profile: None,
    })
    .unwrap()
}

fn keyed<'a>(name: &'a str, key: &'a str) -> Call<'a> {
    Call { name, arguments: Map::new(), idempotency_key: Some(key), traceparent: None, lease: None }
}

#[tokio::test]
async fn a_repeated_idempotency_key_gets_the_same_answer() {
    let numbers = std::sync::atomic::AtomicU64::new(0);
    let gateway = Gateway::start(vec![Tool::new("count", "Counts", json!({"type": "object"}), move |_| {
        let number = numbers.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Answer::after(Duration::from_millis(200), Answer::structured(json!({"number": number})))
    })])
    .await;
    let client = client(&gateway);
    client.tools().await.unwrap();
    let started = Instant::now();
    // The second call arrives while the first runs, and waits for the same answer.
    let (first, again) = tokio::join!(client.call(keyed("count", "a")), client.call(keyed("count", "a")));
    assert!(started.elapsed() >= Duration::from_millis(200));
    let other = client.call(keyed("count", "b")).await.unwrap();
    let first = first.unwrap().structured;
    assert_eq!((&first, &again.unwrap().structured), (&Some(json!({"number": 0})), &first));
    assert_eq!(other.structured, Some(json!({"number": 1})));
    let repeated: Vec<_> = gateway.calls().iter().map(|called| called.repeated).collect();
    assert_eq!(repeated, [false, true, false]);
}
