//! The outbox: what a tool sends is published exactly once, in order, whatever dies in between.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use async_nats::jetstream;
use futures_util::future::join_all;
use serde_json::{Map, Value, json};
use store::{Durability, NewMessage, Outbox, Store};
use subjects::{headers, lease::Revoked, streams};
use testkit::{GatewayProcess, Nats, Postgres, eventually, eventually_within};
use tokio::time::sleep;

use crate::administration::support::ctl;

const CLIENTS: usize = 16;

/// An agent that calls again, with the same key, until the gateway answers.
struct Client {
    number: usize,
    agent: mcp::Client,
}

impl Client {
    async fn call(&self, tool: &str, key: &str, arguments: &Value) -> Value {
        let arguments: Map<String, Value> = arguments.as_object().expect("an object").clone();
        loop {
            let arguments = arguments.clone();
            let call = mcp::Call {
                name: tool,
                arguments,
                idempotency_key: Some(key),
                traceparent: None,
                lease: None,
            };
            match self.agent.call(call).await {
                Ok(reply) if !reply.is_error => return reply.structured.expect("a result"),
                Ok(reply) => panic!("{tool}: {}", reply.text),
                Err(error) if error.is_transient() => sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{tool}: {error}"),
            }
        }
    }

    /// Issues and revokes leases, one after the other. Returns their ids in order.
    async fn revoke_leases(&self, count: usize, revoked: &AtomicUsize) -> Vec<String> {
        let mut ids = Vec::new();
        for turn in 0..count {
            let wanted = json!({ "agent": "project_manager", "user_id": format!("user-{}", self.number) });
            let key = format!("issue-{}-{turn}", self.number);
            let issued = self.call("lease.issue", &key, &wanted).await;
            let id = issued["lease_id"].as_str().expect("an id").to_owned();
            let key = format!("revoke-{}-{turn}", self.number);
            self.call("lease.revoke", &key, &json!({ "lease_id": id })).await;
            revoked.fetch_add(1, Ordering::Relaxed);
            ids.push(id);
        }
        ids
    }
}

/// All messages of the stream, in order, with their ids.
async fn published(nats: &Nats) -> Vec<(String, Revoked)> {
    let jetstream = jetstream::new(nats.client().await);
    let last =
        jetstream.get_stream(streams::EVENTS).await.expect("the stream").cached_info().state.last_sequence;
    let mut found = Vec::new();
    let mut next = 1;
    while next <= last {
        let subject = subjects::lease::REVOKED_SUBJECT;
        let batch =
            broker::read_batch(&jetstream, streams::EVENTS, subject, next, 512).await.expect("messages");
        for message in batch {
            next = message.sequence + 1;
            let id = message.headers.get(headers::MSG_ID).expect("an id").to_string();
            found.push((id, serde_json::from_slice(&message.payload).expect("a message")));
        }
    }
    found
}

/// Asserts that each lease was reported once, and those of each client in the order of its calls.
fn assert_once_and_in_order(published: &[(String, Revoked)], revoked: &[Vec<String>]) {
    let ids: BTreeSet<&String> = published.iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), published.len(), "a message is stored twice");
    let mut by_user: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for (_, message) in published {
        by_user.entry(&message.user_id).or_default().push(&message.lease_id);
    }
    for (number, expected) in revoked.iter().enumerate() {
        let found = by_user.remove(&*format!("user-{number}")).unwrap_or_default();
        let differs = found.iter().zip(expected).position(|(found, expected)| *found != expected);
        assert_eq!(
            (found.len(), differs),
            (expected.len(), None),
            "messages of client {number}, and the first that is out of order"
        );
    }
    assert!(by_user.is_empty(), "messages of no client: {by_user:?}");
}

async fn wait_until_empty(gateway: &GatewayProcess) {
    eventually_within(Duration::from_secs(60), "all messages are published", async || {
        (gateway.must("GET", "/api/v1/outbox", None).await == json!([])).then_some(())
    })
    .await;
}

/// Tool calls that each send a message, 10,000 with `make storm`; the gateway is killed 20 times and NATS 5
/// times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storm_of_kills_neither_loses_nor_doubles_nor_reorders_a_message() {
    const GATEWAY_KILLS: usize = 20;
    const NATS_KILLS: usize = 5;
    let calls = std::env::var("OUTBOX_CALLS").map_or(2_000, |calls| calls.parse().expect("a number"));
    let mut nats = Nats::start();
    let mut gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let token = gateway.unbound("orchestrator").await;
    let clients: Vec<Client> =
        (0..CLIENTS).map(|number| Client { number, agent: gateway.agent(&token) }).collect();
    let done = AtomicUsize::new(0);
    let work = join_all(clients.iter().map(|client| client.revoke_leases(calls / CLIENTS, &done)));
    let reach = async |part: usize, of: usize| {
        let wanted = calls * part / of;
        eventually_within(Duration::from_secs(300), "the calls go on", async || {
            (done.load(Ordering::Relaxed) >= wanted).then_some(())
        })
        .await;
    };
    let kill_gateway = async {
        for kill in 1..=GATEWAY_KILLS {
            reach(kill, GATEWAY_KILLS + 1).await;
            gateway.start_again().await;
        }
    };
    let kill_nats = async {
        for kill in 1..=NATS_KILLS {
            reach(kill, NATS_KILLS + 1).await;
            nats.kill();
            // It stays away while calls go on.
            reach(kill * 20 + 1, (NATS_KILLS + 1) * 20).await;
            nats.start_again();
        }
    };
    let (revoked, (), ()) = tokio::join!(work, kill_gateway, kill_nats);
    wait_until_empty(&gateway).await;
    let published = published(&nats).await;
    println!("{} messages after {GATEWAY_KILLS} and {NATS_KILLS} kills", published.len());
    assert_once_and_in_order(&published, &revoked);
}

/// Two gateways on one database publish each message once and in order, also when one of them is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_publish_each_message_once() {
    const EACH: usize = 25;
    let (nats, postgres) = (Nats::start(), Postgres::start());
    let (url, database) = (nats.url(), postgres.database());
    let settings = [("nats.url", &*url), ("store.url", &*database), ("store.max_connections", "4")];
    let mut first = GatewayProcess::start_with(&settings).await;
    let second = GatewayProcess::start_with(&settings).await;
    let token = first.unbound("orchestrator").await;
    let clients: Vec<Client> = (0..CLIENTS)
        .map(|number| {
            let gateway = if number % 2 == 0 { &first } else { &second };
            Client { number, agent: gateway.agent(&token) }
        })
        .collect();
    let done = AtomicUsize::new(0);
    let work = join_all(clients.iter().map(|client| client.revoke_leases(EACH, &done)));
    let kill = async {
        eventually_within(Duration::from_secs(120), "half of the calls", async || {
            (done.load(Ordering::Relaxed) >= CLIENTS * EACH / 2).then_some(())
        })
        .await;
        first.start_again().await;
    };
    let (revoked, ()) = tokio::join!(work, kill);
    wait_until_empty(&second).await;
    assert_once_and_in_order(&published(&nats).await, &revoked);
}

/// While NATS is away calls succeed, and REST, `cynodectl`, console and metrics show what waits.
#[tokio::test]
async fn what_waits_for_nats_is_shown_and_published_later() {
    let mut nats = Nats::start();
    let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let (first, _) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    let (second, _) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    gateway.must("DELETE", &format!("/api/v1/leases/{first}"), None).await;
    wait_until_empty(&gateway).await;
    assert_eq!(published(&nats).await.len(), 1);

    nats.kill();
    gateway.must("DELETE", &format!("/api/v1/leases/{second}"), None).await;
    let waiting = gateway.must("GET", "/api/v1/outbox", None).await;
    assert_eq!(waiting[0]["messages"], 1, "{waiting}");
    assert_eq!(waiting[0]["subject"], "cynode.lease.revoked", "{waiting}");
    let listed = ctl(&gateway, &["outbox"]).await;
    assert!(listed.stdout.contains("cynode.lease.revoked"), "{listed:?}");
    eventually("the metric counts it", async || {
        gateway.metrics().await.contains("gateway_outbox_waiting 1").then_some(())
    })
    .await;

    nats.start_again();
    wait_until_empty(&gateway).await;
    let published = published(&nats).await;
    let leases: Vec<&String> = published.iter().map(|(_, message)| &message.lease_id).collect();
    assert_eq!(leases, [&first, &second]);
    // Revoking again sends nothing more.
    gateway.must("DELETE", &format!("/api/v1/leases/{second}"), None).await;
    assert_eq!(gateway.must("GET", "/api/v1/outbox", None).await, json!([]));
}

/// Without NATS nothing is kept for a relay that never comes.
#[tokio::test]
async fn without_nats_nothing_waits() {
    let gateway = GatewayProcess::start().await;
    let (lease, _) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    gateway.must("DELETE", &format!("/api/v1/leases/{lease}"), None).await;
    assert_eq!(gateway.must("GET", "/api/v1/outbox", None).await, json!([]));
}

/// A message that another stream stores is not published: it waits for its own stream.
#[tokio::test]
async fn message_waits_while_another_stream_has_its_subject() {
    let nats = Nats::start();
    let jetstream = jetstream::new(nats.client().await);
    let subjects = vec!["cynode.lease.>".to_owned()];
    let other = jetstream::stream::Config { name: "OTHER".to_owned(), subjects, ..Default::default() };
    jetstream.create_stream(other).await.expect("a stream");
    let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let (lease, _) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    gateway.must("DELETE", &format!("/api/v1/leases/{lease}"), None).await;
    eventually("the relay says what is wrong", async || {
        gateway.log().contains("run `cynodectl provision`").then_some(())
    })
    .await;
    let stored = jetstream.get_stream("OTHER").await.expect("the stream").cached_info().state.messages;
    assert_eq!(stored, 0, "published to another stream");
    assert_eq!(gateway.must("GET", "/api/v1/outbox", None).await[0]["messages"], 1);
    jetstream.delete_stream("OTHER").await.expect("deleted");
    wait_until_empty(&gateway).await;
    assert_eq!(published(&nats).await.len(), 1);
}

async fn open_store(url: &str) -> Store {
    let (max_connections, patience) = (4, Duration::from_secs(10));
    let options =
        store::Options { url: url.to_owned(), max_connections, patience, durability: Durability::Process };
    Store::open(&options).await.expect("a store")
}

/// Adds messages, each with a subject and a key, in this order.
async fn add(
    store: &Store,
    stream: &'static str,
    messages: impl IntoIterator<Item = (&'static str, String)>,
) {
    let (outbox, write) = (Outbox::new(true), store.write().await.expect("a transaction"));
    for (subject, key) in messages {
        let id = format!("{subject}/{key}");
        let message = NewMessage::new(stream, subject.to_owned(), id, "{}".to_owned());
        let message = NewMessage { ordering: Some(key), ..message };
        outbox.add(&*write, message).await.expect("added");
    }
    write.commit().await.expect("committed");
}

/// A stream that acknowledges nothing has many messages, older than that of another subject: the latter is
/// published meanwhile. Afterwards the stream has each message once.
async fn subject_without_acknowledgements_delays_no_other(nats: Nats, gateway: GatewayProcess, store: &str) {
    const STREAM: &str = "SLOW";
    const SUBJECT: &str = "cynode.test.slow";
    const MESSAGES: u64 = 300;
    let jetstream = jetstream::new(nats.client().await);
    let mut slow = jetstream::stream::Config {
        name: STREAM.to_owned(),
        subjects: vec![SUBJECT.to_owned()],
        no_ack: true,
        ..Default::default()
    };
    jetstream.create_stream(slow.clone()).await.expect("a stream");
    let (lease, _) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    let store = open_store(store).await;
    add(&store, STREAM, (0..MESSAGES).map(|key| (SUBJECT, format!("key-{key}")))).await;
    gateway.must("DELETE", &format!("/api/v1/leases/{lease}"), None).await;
    eventually("the other subject is published", async || {
        let waiting = gateway.must("GET", "/api/v1/outbox", None).await;
        let waiting = waiting.as_array().expect("a list");
        let is_gone = waiting.iter().all(|it| it["subject"] != "cynode.lease.revoked");
        is_gone.then(|| assert_eq!(waiting[0]["messages"], MESSAGES, "{waiting:?}"))
    })
    .await;
    assert_eq!(published(&nats).await.len(), 1);
    slow.no_ack = false;
    jetstream.update_stream(slow).await.expect("updated");
    wait_until_empty(&gateway).await;
    let stored = jetstream.get_stream(STREAM).await.expect("the stream").cached_info().state.messages;
    assert_eq!(stored, MESSAGES, "each message is stored once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subject_that_is_refused_delays_no_other() {
    let nats = Nats::start();
    let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let store = gateway.store_url();
    subject_without_acknowledgements_delays_no_other(nats, gateway, &store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subject_that_is_refused_delays_no_other_on_postgres() {
    let (nats, postgres) = (Nats::start(), Postgres::start());
    let (url, database) = (nats.url(), postgres.database());
    let settings = [("nats.url", &*url), ("store.url", &*database), ("store.max_connections", "4")];
    let gateway = GatewayProcess::start_with(&settings).await;
    subject_without_acknowledgements_delays_no_other(nats, gateway, &database).await;
}

/// What is read from the outbox while keys are in flight and a subject is paused.
async fn assert_reads_what_may_be_published(store: &Store) {
    const PAUSED: &str = "cynode.test.paused";
    const OTHER: &str = "cynode.test.other";
    let read = async |keys: &[&str], subjects: &[&str], limit: u64| -> Vec<String> {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let found = store.oldest_messages(list(keys), list(subjects), limit).await.expect("messages");
        found.into_iter().map(|message| message.message_id).collect()
    };
    add(store, "TEST", (0..20).map(|key| (PAUSED, format!("paused-{key}")))).await;
    // The first message of this key need not wait, the third may not overtake the second.
    add(store, "TEST", [(OTHER, "mixed".to_owned()), (PAUSED, "mixed".to_owned())]).await;
    add(store, "TEST", [("cynode.test.last", "mixed".to_owned()), (OTHER, "other".to_owned())]).await;
    let all = read(&[], &[], 100).await;
    assert_eq!((all.len(), &*all[0]), (24, "cynode.test.paused/paused-0"), "{all:?}");
    let [mixed, other] = ["cynode.test.other/mixed", "cynode.test.other/other"];
    assert_eq!(read(&[], &[PAUSED], 4).await, [mixed, other], "they fill no batch");
    assert_eq!(read(&["mixed"], &[PAUSED], 4).await, [other]);
    assert_eq!(read(&["other"], &["cynode.test.unknown", PAUSED], 4).await, [mixed]);
    let rest = read(&["mixed", "paused-0"], &[], 2).await;
    assert_eq!(rest, ["cynode.test.paused/paused-1", "cynode.test.paused/paused-2"]);
}

#[tokio::test]
async fn paused_subjects_fill_no_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open_store(&format!("sqlite://{}", folder.path().join("store.db").display())).await;
    assert_reads_what_may_be_published(&store).await;
}

#[tokio::test]
async fn paused_subjects_fill_no_batch_on_postgres() {
    let postgres = Postgres::start();
    assert_reads_what_may_be_published(&open_store(&postgres.database()).await).await;
}
