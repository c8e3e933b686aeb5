//! Streams and consumers are created, verified or left alone; unsuitable servers are refused.

use std::time::Duration;

use futures_util::StreamExt;
use subjects::{
    Kind, Role,
    streams::{self, Layout},
};
use testkit::{Nats, Orchestrator, Worker, WorkerBuilder, chat, cynodectl, old_nats_server, run, verify};

const UNAVAILABLE: i32 = 69;
const WINDOW: Duration = Duration::from_secs(120);

/// Starts a worker that must refuse to start, and returns its log.
fn refused(settings: &WorkerBuilder) -> String {
    let mut worker = settings.spawn();
    let status = worker.process.wait(Duration::from_secs(10));
    assert_eq!(status.code(), Some(UNAVAILABLE), "{}", worker.log());
    worker.log()
}

/// `create` creates what is missing as the contract defines it, and `verify` accepts it.
#[tokio::test]
async fn verify_accepts_streams_that_create_made() {
    let nats = Nats::start();
    drop(Worker::manager(&nats).start().await);
    drop(Worker::analyst(&nats).start().await);
    let manager = Worker::manager(&nats).set("nats.provision", "verify").start().await;
    let _analyst = Worker::analyst(&nats).set("nats.provision", "verify").start().await;
    assert_eq!(manager.metric("pma_config_drift").await, Some(0.0));
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("hello")).await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;
}

/// A server whose disk is full, or whose limit is low, cannot reserve what the logs of jobs need: the error
/// says what to do.
#[tokio::test]
async fn server_without_free_space_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let limit = format!(
        "jetstream {{ store_dir: {:?}, max_file_store: 100MB }}",
        folder.path().display().to_string()
    );
    let nats = Nats::start_with(&limit);
    let made = run(&cynodectl(), folder.path(), &["--server", &nats.url(), "provision"], &[]);
    assert_eq!(made.code, UNAVAILABLE, "{made:?}");
    for part in ["no room for stream CYNODE_JOB_LOGS", "1024 MiB", "max_file_store"] {
        assert!(made.stderr.contains(part), "{part} is not in:\n{}", made.stderr);
    }
}

/// `verify` refuses to start without streams and names each missing one; it creates none.
#[tokio::test]
async fn verify_names_what_is_missing() {
    let nats = Nats::start();
    let words = refused(&Worker::manager(&nats).set("nats.provision", "verify"));
    for part in [
        "stream CYNODE_HANDOFFS",
        "stream CYNODE_DEAD",
        "object store CYNODE_SPILL",
        "consumer pma-chat",
        "missing",
    ] {
        assert!(words.contains(part), "{part} is not in:\n{words}");
    }
    let orchestrator = Orchestrator::connect(&nats).await;
    assert!(orchestrator.jetstream.get_stream(streams::HANDOFFS).await.is_err(), "verify created a stream");
}

/// The same for analysts with their own streams: they check those, and none of a manager's.
#[tokio::test]
async fn analyst_verifies_only_its_own_streams() {
    let nats = Nats::start();
    let analyst = Worker::analyst(&nats).laid_out(Layout::ByRole).set("nats.provision", "verify");
    let words = refused(&analyst);
    for part in ["stream CYNODE_PA_HANDOFFS", "stream CYNODE_PA_RUNS", "object store CYNODE_PA_SPILL"] {
        assert!(words.contains(part), "{part} is not in:\n{words}");
    }
    assert!(!words.contains("CYNODE_HANDOFFS") && !words.contains("CYNODE_SPILL"), "{words}");
    // `create` creates the streams of both roles.
    drop(Worker::manager(&nats).laid_out(Layout::ByRole).start().await);
    drop(Worker::analyst(&nats).laid_out(Layout::ByRole).start().await);
    let analyst = analyst.start().await;
    assert_eq!(analyst.metric("pma_config_drift").await, Some(0.0));
}

/// Streams of the other layout are refused for every role and every `nats.provision`, and nothing is created.
/// After the steps in the message, the change succeeds.
#[tokio::test]
async fn streams_of_the_other_layout_are_refused_with_instructions() {
    for layout in Layout::ALL {
        let (nats, wanted) = (Nats::start(), layout.other());
        let worker = |role: Role| match role {
            Role::ProjectManager => Worker::manager(&nats),
            Role::ProjectAnalyst => Worker::analyst(&nats),
        };
        for role in Role::ALL {
            drop(worker(role).laid_out(layout).start().await);
        }
        let orchestrator = Orchestrator::connect(&nats).await;
        let (there, runs) = (layout.handoffs(Role::ProjectAnalyst), layout.runs(Role::ProjectAnalyst));
        for (role, provision) in Role::ALL.into_iter().flat_map(|role| [(role, "create"), (role, "verify")]) {
            let words = refused(&worker(role).laid_out(wanted).set("nats.provision", provision));
            for part in [
                &*format!("use the layout `{layout}`, not `{wanted}`"),
                &format!("`pa.verify` is in {there} and should be in"),
                &format!("`pa.run.*.*` is in {runs} and should be in"),
                "wait until the queues are empty",
                "nats stream rm",
                "docs/operations.md",
            ] {
                assert!(words.contains(part), "{role}, {provision}: {part} is not in:\n{words}");
            }
        }
        let mut names: Vec<String> =
            orchestrator.jetstream.stream_names().map(Result::unwrap).collect().await;
        names.retain(|name| !name.starts_with("OBJ_"));
        assert_eq!(names.len(), layout.names().len(), "a stream was created: {names:?}");

        // The layouts differ in these streams; managers' answers stay where they are.
        let jetstream = &orchestrator.jetstream;
        for stream in [streams::ADVISORIES, streams::PA_HANDOFFS, streams::PA_RUNS] {
            jetstream.delete_stream(stream).await.ok();
        }
        let queue = jetstream.get_stream(streams::HANDOFFS).await.unwrap();
        queue.delete_consumer(streams::consumer_name(Kind::Verify)).await.ok();
        let sizing =
            streams::Sizing { replicas: 1, ack_wait: Duration::from_secs(30), dedupe_window: WINDOW };
        for config in wanted.all(sizing).into_iter().filter(|config| !config.name.contains("_PA_")) {
            if config.name == streams::HANDOFFS || config.name == streams::RUNS {
                jetstream.update_stream(config).await.unwrap();
            }
        }
        let _manager = worker(Role::ProjectManager).laid_out(wanted).start().await;
        let _analyst = worker(Role::ProjectAnalyst).laid_out(wanted).start().await;
        let orchestrator = orchestrator.laid_out(wanted);
        for handoff in [chat("hello"), verify("t-1")] {
            let id = orchestrator.publish(&handoff).await;
            orchestrator.wait_for_answer(handoff.kind(), id).await;
        }
    }
}

/// `verify` names each field that differs, with both values; `create` leaves it unchanged, counts it and
/// continues.
#[tokio::test]
async fn each_drifted_field_is_named() {
    let nats = Nats::start();
    drop(Worker::manager(&nats).start().await);
    let orchestrator = Orchestrator::connect(&nats).await;
    let jetstream = &orchestrator.jetstream;
    let mut runs = jetstream.get_stream(streams::RUNS).await.unwrap().cached_info().config.clone();
    runs.max_age = Duration::from_secs(3_600);
    runs.max_messages = 5;
    jetstream.update_stream(runs).await.unwrap();
    let stream = jetstream.get_stream(streams::HANDOFFS).await.unwrap();
    let sizing = streams::Sizing { replicas: 1, ack_wait: Duration::from_secs(7), dedupe_window: WINDOW };
    stream.update_consumer(streams::consumer(Kind::Chat, sizing)).await.unwrap();
    let words = refused(&Worker::manager(&nats).set("nats.provision", "verify"));
    for part in [
        "stream CYNODE_RUNS: max_age is 3600s, should be 604800s",
        "stream CYNODE_RUNS: max_messages is 5, should be -1",
        "consumer pma-chat: ack_wait is 7s, should be 30s",
    ] {
        assert!(words.contains(part), "{part} is not in:\n{words}");
    }
    assert!(!words.contains("consumer pma-plan"), "{words}");
    let worker = Worker::manager(&nats).start().await;
    assert_eq!(worker.metric("pma_config_drift").await, Some(3.0));
    assert_eq!(orchestrator.consumer(Kind::Chat).await.config.ack_wait, Duration::from_secs(7));
}

/// If the `ack_wait` of a consumer is shorter than the setting, heartbeats follow the consumer; otherwise
/// slow work would be redelivered.
#[tokio::test]
async fn heartbeats_follow_the_ack_wait_of_the_consumer() {
    let nats = Nats::start();
    drop(Worker::manager(&nats).start().await);
    let orchestrator = Orchestrator::connect(&nats).await;
    let stream = orchestrator.jetstream.get_stream(streams::HANDOFFS).await.unwrap();
    let sizing = streams::Sizing { replicas: 1, ack_wait: Duration::from_secs(1), dedupe_window: WINDOW };
    stream.update_consumer(streams::consumer(Kind::Chat, sizing)).await.unwrap();
    let worker = Worker::manager(&nats).thinking(Duration::from_secs(3)).start().await;
    let id = orchestrator.publish(&chat("slowly")).await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;
    assert_eq!(worker.metric("pma_handoffs_received_total{kind=\"chat\"}").await, Some(1.0));
}

/// `none` neither creates nor verifies; without streams the worker is not ready and reports why, and it
/// recovers when they are created.
#[tokio::test]
async fn provision_none_waits_for_missing_streams() {
    let nats = Nats::start();
    let worker = Worker::manager(&nats).set("nats.provision", "none").start().await;
    testkit::eventually("/readyz to give the reason", async || {
        let (status, why) = worker.get("/readyz").await;
        (status == 503 && why.contains("cannot pull chat handoffs")).then_some(())
    })
    .await;
    let maker = Worker::manager(&nats).start().await;
    testkit::eventually("the worker to recover", async || {
        (worker.get("/readyz").await.0 == 200).then_some(())
    })
    .await;
    drop(maker);
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("hello")).await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;
}

/// A server that is too old is refused, with its version.
#[tokio::test]
async fn an_old_server_is_refused_with_its_version() {
    let nats = Nats::start_program(old_nats_server(), "");
    let words = refused(&Worker::manager(&nats));
    assert!(words.contains("nats-server 2.10.26") && words.contains("2.11.0 or newer"), "{words}");
}

/// A server without JetStream, and one that rejects the credentials.
#[tokio::test]
async fn reasons_for_a_refused_connection_are_distinguished() {
    let secured = Nats::start_with("authorization { users = [ { user: a, password: b } ] }");
    let words = refused(&Worker::manager(&secured));
    assert!(words.contains("rejected the credentials"), "{words}");
    let plain = Nats::start_with("accounts { A { users: [ { user: a, password: b } ] } }\nno_auth_user: a");
    let words = refused(&Worker::manager(&plain));
    assert!(words.contains("JetStream is not enabled"), "{words}");
}

/// Creates a certificate for this machine and its key, as files in a folder.
fn certificate(folder: &std::path::Path, name: &str) -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let path = |end: &str| folder.join(format!("{name}.{end}")).display().to_string();
    std::fs::write(path("crt"), made.cert.pem()).unwrap();
    std::fs::write(path("key"), made.signing_key.serialize_pem()).unwrap();
    (path("crt"), path("key"))
}

/// Mutual TLS: a worker verifies the server and presents its certificate; it does not wait for a server that
/// it cannot trust.
#[tokio::test]
async fn tls_is_checked_on_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let (server, server_key) = certificate(folder.path(), "server");
    let (client, client_key) = certificate(folder.path(), "client");
    let nats = Nats::start_with(&format!(
        "tls {{ cert_file: {server:?}, key_file: {server_key:?}, ca_file: {client:?}, verify: true }}"
    ));
    let stranger = Worker::manager(&nats).set("nats.tls.required", "true");
    assert!(refused(&stranger).contains("TLS handshake with NATS"), "the worker trusts an unknown authority");
    let settings = Worker::manager(&nats)
        .set("nats.tls.required", "true")
        .set("nats.tls.ca_file", &server)
        .set("nats.tls.cert_file", &client)
        .set("nats.tls.key_file", &client_key);
    let worker = settings.start().await;
    assert_eq!(worker.get("/readyz").await.0, 200);
}

/// A worker authenticates with an nkey from a file, and the seed appears nowhere.
#[tokio::test]
async fn worker_authenticates_with_an_nkey_file() {
    let key = nkeys::KeyPair::new_user();
    let nats = Nats::start_with(&format!("authorization {{ users = [ {{ nkey: {} }} ] }}", key.public_key()));
    let seed = nats.folder().join("worker.nk");
    std::fs::write(&seed, key.seed().unwrap()).unwrap();
    let settings = Worker::manager(&nats).set("nats.nkey_file", seed.display().to_string());
    assert!(refused(&Worker::manager(&nats)).contains("rejected the credentials"));
    let worker = settings.start().await;
    assert!(!worker.log().contains(&key.seed().unwrap()), "the seed is in the log");
}
