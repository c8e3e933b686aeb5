//! The fast path of the client changes nothing but the time: the same random calls, with the fast path
//! switched on and off, get the same replies and errors, and servers receive the same calls.
//!
//! `FAST_PATHS_SEED` chooses other calls than the usual ones; a failure tells the seed.

use std::{error::Error as _, time::Duration};

use mcp::{Call, Client, Error, Options, Reply};
use rand::{Rng, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use serde_json::{Map, Value, json};
use testkit::{Answer, Gateway, ScriptedServer, Tool};

const CALLS: usize = 300;
const FIRST_DIRECT_ID: i64 = 1 << 32;

fn seed() -> u64 {
    std::env::var("FAST_PATHS_SEED").map_or(20_260_728, |seed| seed.parse().expect("a number"))
}

fn pick<T: Clone>(rng: &mut SmallRng, from: &[T]) -> T {
    from.choose(rng).expect("not empty").clone()
}

fn client(url: String, fast_path: bool) -> Client {
    Client::new(Options {
        url,
        token_file: None,
        connect_timeout: Duration::from_secs(2),
        call_timeout: Duration::from_secs(20),
        max_result_bytes: 8 * 1024,
        fast_path,
        profile: None,
    })
    .unwrap()
}

/// A random call.
#[derive(Clone, Debug)]
struct RandomCall {
    name: &'static str,
    arguments: Map<String, Value>,
    key: Option<String>,
    traceparent: Option<String>,
}

impl RandomCall {
    fn new(rng: &mut SmallRng, names: &[&'static str]) -> Self {
        let text = pick(rng, &["", "hello", "\u{e9}\u{1f600}\u{202e}", "\"quoted\" \\ \u{7}\n", "a\u{0}b"]);
        let text = text.repeat(pick(rng, &[1, 1, 1, 3, 4000]));
        let number: i64 = rng.random();
        let deep = json!({ "d": [{ "a": 1.5, "b": 1e300, "c": u64::MAX, "d": text, "e": [[], {}, null] }] });
        let arguments = [
            json!({}),
            json!({ "text": text }),
            json!({ "text": number }),
            json!({ "\u{e9}": text, "n": number }),
            json!({ "region": "north" }),
            deep,
        ];
        let Value::Object(arguments) = pick(rng, &arguments) else { panic!("not an object") };
        Self {
            name: pick(rng, names),
            arguments,
            // Few, so that they are repeated.
            key: rng.random_bool(0.3).then(|| format!("key-{}", rng.random_range(0..20))),
            traceparent: rng.random_bool(0.3).then(|| {
                pick(rng, &["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "", "\u{e9}"])
                    .to_string()
            }),
        }
    }

    async fn send(&self, client: &Client) -> Result<Reply, String> {
        let call = Call {
            name: self.name,
            arguments: self.arguments.clone(),
            idempotency_key: self.key.as_deref(),
            traceparent: self.traceparent.as_deref(),
            lease: None,
        };
        client.call(call).await.map_err(|error| described(&error))
    }
}

/// Describes an error with all its sources and with what follows from it.
fn described(error: &Error) -> String {
    let mut text = format!("{error} (transient: {})", error.is_transient());
    if let Error::Rejected { code, .. } = error {
        text = format!("{text} {code:?}");
    }
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

fn tools() -> Vec<Tool> {
    let schema = || json!({ "type": "object", "properties": { "text": { "type": "string" } } });
    let region = json!({ "type": "string", "x-mcp-header": "Region" });
    let placed = json!({ "type": "object", "properties": { "region": region } });
    vec![
        Tool::new("say", "", schema(), |_| Answer::text("said \u{1f600}")),
        Tool::new("back", "", schema(), |arguments| Answer::structured(Value::Object(arguments.clone()))),
        Tool::new("long", "", schema(), |_| Answer::text("\u{e9}".repeat(10_000))),
        Tool::new("fail", "", schema(), |_| Answer::error("broken")),
        Tool::new("reject", "", schema(), |_| Answer::rejected(-32602, "no\u{1b}[2J\n")),
        Tool::new("deny", "", schema(), |_| Answer::rejected(-32003, "not yours")),
        Tool::new("break", "", schema(), |_| Answer::rejected(-32603, "out of memory")),
        Tool::new("place", "", placed, |_| Answer::text("placed")),
        Tool::new("\u{e9}t\u{e9}", "", schema(), |_| Answer::text("summer")),
        Tool::new("two words", "", schema(), |_| Answer::text("two")),
    ]
}

const NAMES: [&str; 13] = [
    "say",
    "say",
    "back",
    "back",
    "long",
    "fail",
    "reject",
    "deny",
    "break",
    "place",
    "\u{e9}t\u{e9}",
    "two words",
    "no.such",
];

/// Makes the same calls at two servers of rmcp, and compares replies and what the servers received.
async fn compare_at(start: impl AsyncFn() -> Gateway) {
    let seed = seed();
    let mut rng = SmallRng::seed_from_u64(seed);
    let servers = [start().await, start().await];
    let clients = [client(servers[0].url(), true), client(servers[1].url(), false)];
    for number in 0..CALLS {
        // Now and then a proxy before the server answers instead of it, or the tools are listed.
        let status =
            (rng.random_range(0..20) == 0).then(|| pick(&mut rng, &[400, 403, 404, 413, 429, 500, 503]));
        servers.iter().for_each(|server| server.fail_with(status));
        if rng.random_range(0..30) == 0 {
            let listed = [clients[0].tools().await, clients[1].tools().await];
            let listed = listed.map(|listed| listed.map_err(|error| described(&error)));
            assert_eq!(listed[0], listed[1], "seed {seed}, listing before call {number}");
        }
        let call = RandomCall::new(&mut rng, &NAMES);
        let (on, off) = (call.send(&clients[0]).await, call.send(&clients[1]).await);
        assert_eq!(on, off, "seed {seed}, call {number}, status {status:?}: {call:?}");
    }
    let received = servers.each_ref().map(|server| {
        let calls = server.calls().into_iter();
        let calls = calls
            .map(|call| (call.name, call.arguments, call.idempotency_key, call.traceparent, call.version));
        calls.collect::<Vec<_>>()
    });
    assert_eq!(received[0], received[1], "seed {seed}");
}

#[tokio::test]
async fn replies_are_the_same_without_the_fast_path() {
    compare_at(async || Gateway::start(tools()).await).await;
}

/// There is no fast path in the older era, so the switch must have no effect.
#[tokio::test]
async fn replies_of_the_older_era_are_the_same_without_the_fast_path() {
    compare_at(async || Gateway::start_legacy(tools()).await).await;
}

/// Results of many kinds, in the order of the calls; also some that are no results of a call.
fn results(seed: u64) -> Vec<Value> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let text = |text: &str| json!({ "type": "text", "text": text });
    let progress = json!({
        "jsonrpc": "2.0", "method": "notifications/progress",
        "params": { "progressToken": 1, "progress": 1, "message": "so far" },
    });
    let data = json!({ "level": "info", "data": 1 });
    let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": data });
    let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
    let kinds = [
        json!({ "content": [text("fine")], "resultType": "complete" }),
        json!({ "content": [text("a"), text("\u{e9}\u{1f600}")], "_meta": { "a": 1 } }),
        json!({ "content": [text("x".repeat(9000).as_str())], "structuredContent": { "n": [1, 2.5, null] } }),
        json!({ "content": [], "structuredContent": { "text": "x".repeat(9000) } }),
        json!({ "content": [text("no")], "isError": true }),
        json!({ "content": [text("no")], "isError": true, "structuredContent": { "code": "rejected" } }),
        json!({ "content": [{ "type": "image", "data": "AAAA", "mimeType": "image/png" }] }),
        json!({ "content": [{ "type": "resource", "resource": { "uri": "a:b", "text": "t" } }] }),
        json!({ "content": [{ "type": "resource_link", "uri": "a:b", "name": "n" }] }),
        json!({ "content": [text("late")], "before": [progress, log, changed] }),
        json!({ "content": [text("odd")], "before": ["no message", 5, {}] }),
        json!({ "tools": [] }),
        json!({ "unheard": "of" }),
        json!({}),
    ];
    (0..CALLS).map(|_| pick(&mut rng, &kinds)).collect()
}

#[tokio::test]
async fn results_of_all_kinds_are_read_alike_without_the_fast_path() {
    for streamed in [false, true] {
        let seed = seed();
        let start = async || {
            let (results, next) = (results(seed), std::sync::atomic::AtomicUsize::new(0));
            let answer = move |request: &Value| {
                if request["method"] != "tools/call" {
                    return json!({ "tools": [], "resultType": "complete" });
                }
                results[next.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % CALLS].clone()
            };
            ScriptedServer::start(streamed, answer).await
        };
        let servers = [start().await, start().await];
        let clients = [client(servers[0].url(), true), client(servers[1].url(), false)];
        let mut rng = SmallRng::seed_from_u64(seed);
        for number in 0..CALLS {
            let call = RandomCall::new(&mut rng, &["work"]);
            let (on, off) = (call.send(&clients[0]).await, call.send(&clients[1]).await);
            assert_eq!(on, off, "seed {seed}, streamed: {streamed}, call {number}: {call:?}");
        }
        let received = servers.each_ref().map(calls_received);
        assert!(
            received[0].1 >= FIRST_DIRECT_ID && received[1].1 < FIRST_DIRECT_ID,
            "the switch has no effect"
        );
        assert_eq!(received[0].0, received[1].0, "seed {seed}, streamed: {streamed}");
    }
}

/// Returns the calls that a server has received, without their ids, and the largest id.
fn calls_received(server: &ScriptedServer) -> (Vec<Value>, i64) {
    let mut largest = 0;
    let calls = server.seen().into_iter().filter(|message| message["method"] == "tools/call");
    let calls = calls.map(|mut message| {
        largest = largest.max(message["id"].as_i64().unwrap_or_default());
        message["id"] = Value::Null;
        message["params"]["_meta"]["progressToken"] = Value::Null;
        message
    });
    (calls.collect(), largest)
}
