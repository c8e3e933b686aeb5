//! The store is down or slow when a call ends.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use sea_orm::{ConnectOptions, ConnectionTrait, Database, TransactionTrait};
use serde_json::{Value, json};
use testkit::{Answer, Gateway, GatewayProcess, Postgres, Tool, eventually};
use tokio::task::JoinSet;

use super::support::{assert_audit_is_whole, call, gateways, outcomes, text};

/// An upstream whose tool ends when the test says so.
struct Held {
    server: Gateway,
    open: Arc<AtomicBool>,
}

impl Held {
    async fn start() -> Self {
        let open = Arc::new(AtomicBool::new(false));
        let seen = open.clone();
        let tool = Tool::new("pay", "Pays.", json!({ "type": "object" }), move |_| {
            let until = Instant::now() + Duration::from_secs(30);
            // Blocks a thread of the upstream's own runtime; one call at a time.
            while !seen.load(Ordering::SeqCst) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
            Answer::text("paid")
        });
        Self { server: Gateway::start(vec![tool]).await, open }
    }

    async fn install(&self, gateway: &GatewayProcess) {
        let new = json!({
            "namespace": "bank", "transport": { "http": { "url": self.server.url() } }, "trust_first": true,
            "call_timeout": "30s", "concurrency": 8,
        });
        gateway.must("POST", "/api/v1/upstreams", Some(new)).await;
    }

    /// Sends a call and waits until its tool runs.
    async fn send(&self, gateway: &GatewayProcess, token: &str, key: Option<&str>) -> JoinSet<Value> {
        let before = self.server.calls().len();
        let request = gateway
            .http()
            .post(gateway.url())
            .bearer_auth(token)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(call("bank.pay", &json!({}), key));
        let mut sent = JoinSet::new();
        sent.spawn(async move {
            let text = request.send().await.expect("an answer").text().await.expect("a body");
            serde_json::from_str(&text).expect("JSON")
        });
        eventually("the tool to run", async || (self.server.calls().len() > before).then_some(())).await;
        sent
    }
}

/// The store dies while a tool runs. The caller gets `in_doubt`, and when the store is back the audit gets
/// the outcome.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_ends_while_postgres_is_down_is_never_denied() {
    let mut postgres = Postgres::start();
    let url = postgres.database();
    let gateway = gateways(1, &url, &[("store.patience", "3s")]).await.remove(0);
    let manager = gateway.manager().await;
    for key in [None, Some("run/1")] {
        let held = Held::start().await;
        if key.is_none() {
            held.install(&gateway).await;
        } else {
            gateway.must("DELETE", "/api/v1/upstreams/bank", None).await;
            held.install(&gateway).await;
        }
        let mut sent = held.send(&gateway, &manager, key).await;
        postgres.kill();
        held.open.store(true, Ordering::SeqCst);
        let answer = sent.join_next().await.unwrap().unwrap();
        assert_eq!(answer["error"]["data"]["reason"], "in_doubt", "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("was called"), "{answer}");
        postgres.start_again();
        let expected = usize::from(key.is_some()) + 1;
        eventually("the call to have its row", async || {
            let rows = gateway.ask("GET", "/api/v1/audit?tool=bank.pay", None).await.body;
            (rows.as_array()?.len() == expected).then_some(())
        })
        .await;
        let rows = BTreeMap::from([("allow/success/-".to_owned(), expected)]);
        assert_eq!(outcomes(&gateway, "bank.pay").await, rows);
        if key.is_some() {
            let (_, again) = gateway.post(Some(&manager), call("bank.pay", &json!({}), key)).await;
            assert_eq!(text(&again), Ok("paid".to_owned()), "the recorded answer is returned");
            assert_eq!(held.server.calls().len(), 1, "one effect");
        }
    }
    assert_audit_is_whole(&gateway).await;
}

/// A database that accepts no writes, as on a full disk: every call is denied, so the gateway is not ready
/// and says why. It is ready again by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_is_not_ready_while_the_store_accepts_no_writes() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let gateway = gateways(1, &url, &[]).await.remove(0);
    let probe = async || {
        let response =
            gateway.http().get(format!("{}/readyz", gateway.admin_url())).send().await.expect("an answer");
        (response.status().as_u16(), response.text().await.expect("a body"))
    };
    for (read_only, expected) in [
        ("off", (200, "ok\n")),
        ("on", (503, "store accepts no writes; is its disk full?\n")),
        ("off", (200, "ok\n")),
    ] {
        postgres.sql(&url, &format!("ALTER SYSTEM SET default_transaction_read_only = '{read_only}'"));
        postgres.sql(&url, "SELECT pg_reload_conf()");
        eventually(&format!("read only {read_only}"), async || {
            let (status, body) = probe().await;
            ((status, body.as_str()) == expected).then_some(())
        })
        .await;
    }
}

/// A database restart shorter than `store.patience` affects no call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn short_restart_of_postgres_does_not_affect_a_call() {
    let mut postgres = Postgres::start();
    let url = postgres.database();
    let gateway = gateways(1, &url, &[("store.patience", "20s")]).await.remove(0);
    let (manager, held) = (gateway.manager().await, Held::start().await);
    held.install(&gateway).await;
    let mut sent = held.send(&gateway, &manager, None).await;
    postgres.kill();
    held.open.store(true, Ordering::SeqCst);
    postgres.start_again();
    assert_eq!(text(&sent.join_next().await.unwrap().unwrap()), Ok("paid".to_owned()));
    assert_audit_is_whole(&gateway).await;
}

/// A store that hangs: callers get an answer within their patience; no call is made without a record, and
/// none that was made is denied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_postgres_delays_callers_at_most_by_the_patience() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let gateway = gateways(1, &url, &[("store.patience", "3s")]).await.remove(0);
    let (manager, held) = (gateway.manager().await, Held::start().await);
    held.install(&gateway).await;
    let mut sent = held.send(&gateway, &manager, None).await;
    let locker = Database::connect(&url).await.unwrap();
    let lock = locker.begin().await.unwrap();
    lock.execute_unprepared("LOCK TABLE audit, in_flight IN ACCESS EXCLUSIVE MODE").await.unwrap();
    held.open.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    let answer = sent.join_next().await.unwrap().unwrap();
    assert_eq!(answer["error"]["data"]["reason"], "in_doubt", "{answer}");
    for key in [None, Some("run/1")] {
        let (_, refused) = gateway.post(Some(&manager), call("bank.pay", &json!({}), key)).await;
        assert_eq!(refused["error"]["message"], "not available at the moment", "{refused}");
    }
    // The patience for the first call, twice that for each of the others; the rest is for a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(held.server.calls().len(), 1, "no call is made without a record");
    lock.rollback().await.unwrap();
    // Calls that were made have their rows. So have refused ones, and their start records are removed.
    let expected =
        BTreeMap::from([("allow/success/-".to_owned(), 1), ("deny/failure/audit_unavailable".to_owned(), 2)]);
    eventually("all calls to have their rows", async || {
        (outcomes(&gateway, "bank.pay").await == expected).then_some(())
    })
    .await;
    assert_eq!(postgres.sql(&url, "SELECT count(*) FROM in_flight"), "0");
    let (_, again) = gateway.post(Some(&manager), call("bank.pay", &json!({}), Some("run/1"))).await;
    assert_eq!(text(&again), Ok("paid".to_owned()), "the key of a call that was not made is free");
    assert_audit_is_whole(&gateway).await;
}

/// The same on SQLite: another process locks the file for longer than the patience.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_that_ends_while_the_file_is_locked_is_never_denied() {
    let gateway = GatewayProcess::start_with(&[("store.patience", "1s")]).await;
    let (manager, held) = (gateway.manager().await, Held::start().await);
    held.install(&gateway).await;
    let mut sent = held.send(&gateway, &manager, None).await;
    let mut options = ConnectOptions::new(gateway.store_url());
    options.max_connections(1);
    let locker = Database::connect(options).await.unwrap();
    locker.execute_unprepared("BEGIN IMMEDIATE").await.unwrap();
    held.open.store(true, Ordering::SeqCst);
    let answer = sent.join_next().await.unwrap().unwrap();
    assert_eq!(answer["error"]["data"]["reason"], "in_doubt", "{answer}");
    locker.execute_unprepared("ROLLBACK").await.unwrap();
    let expected = BTreeMap::from([("allow/success/-".to_owned(), 1)]);
    eventually("the call to have its row", async || {
        (outcomes(&gateway, "bank.pay").await == expected).then_some(())
    })
    .await;
    assert_audit_is_whole(&gateway).await;
}
