//! Nobody gets in without a certificate, and three nodes are one.

use std::time::Duration;

use subjects::{Kind, Role, streams};
use testkit::{Worker, chat, eventually_within};

use crate::stage::{Stage, certificates};

const UNAVAILABLE: i32 = 69;

/// Starts a worker that should be refused, and gives its last words.
fn refused(settings: &testkit::WorkerBuilder) -> String {
    let mut worker = settings.spawn();
    let status = worker.process.wait(Duration::from_secs(20));
    assert_eq!(status.code(), Some(UNAVAILABLE), "{}", worker.log());
    worker.log()
}

/// A worker with its key and a certificate gets in; without either, or with one of another authority, it does not.
#[tokio::test]
async fn a_worker_needs_its_key_and_a_certificate() {
    let stage = Stage::start().await;
    let worker = stage.worker(Role::ProjectManager).start().await;
    assert_eq!(worker.get("/readyz").await.0, 200);

    let with_ca = || Worker::manager_at(&stage.url()).set("nats.tls.ca_file", stage.path("tls/ca.crt"));
    let no_certificate = with_ca().set("nats.nkey_file", stage.path("project_manager.nk"));
    assert!(!gets_in(&no_certificate).await, "it got in without a certificate");

    let certified = |worker: testkit::WorkerBuilder, folder: &str| {
        let (certificate, key) =
            (stage.path(&format!("{folder}/tls.crt")), stage.path(&format!("{folder}/tls.key")));
        worker.set("nats.tls.cert_file", certificate).set("nats.tls.key_file", key)
    };
    let no_key = certified(with_ca(), "tls");
    assert!(refused(&no_key).contains("rejected the credentials"));

    certificates(std::path::Path::new(&stage.path("others")));
    let of_another = certified(with_ca(), "others").set("nats.nkey_file", stage.path("project_manager.nk"));
    assert!(!gets_in(&of_another).await, "it got in with a certificate of another authority");
    let another_server =
        Worker::manager_at(&stage.url()).set("nats.tls.ca_file", stage.path("others/ca.crt"));
    assert!(
        refused(&another_server).contains("TLS handshake with NATS"),
        "it trusts a server that it does not know"
    );
}

/// With TLS 1.3 a client hears only after its handshake that its certificate was not liked: it may take that for a
/// server that is not there, and wait.
async fn gets_in(settings: &testkit::WorkerBuilder) -> bool {
    let mut worker = settings.spawn();
    let told = ["TLS handshake with NATS", "NATS not reachable yet"];
    eventually_within(Duration::from_secs(20), "it to be kept out", async || {
        let log = worker.log();
        (log.contains("\"Ready.\"") || told.iter().any(|said| log.contains(said))).then_some(())
    })
    .await;
    let got_in = worker.log().contains("\"Ready.\"");
    worker.process.kill();
    got_in
}

/// The three nodes of the files find each other by TLS, keep three copies, and go on when one dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_are_one_and_go_on_when_one_dies() {
    let mut stage = Stage::unprovisioned(3).await;
    eventually_within(Duration::from_secs(60), "the cluster to form", async || {
        (stage.ctl("provisioner", &["provision", "--replicas", "3"]).code == 0).then_some(())
    })
    .await;
    let _manager = stage.worker(Role::ProjectManager).set("nats.replicas", "3").start().await;
    let orchestrator = stage.orchestrator().await;
    let id = orchestrator.publish(&chat("hello")).await;
    orchestrator.answered(Kind::Chat, id).await;
    let runs = orchestrator.jetstream.get_stream(streams::RUNS).await.unwrap();
    assert_eq!(runs.cached_info().config.num_replicas, 3);

    stage.kill(0);
    let id = eventually_within(Duration::from_secs(60), "a handoff to be taken", async || {
        let handoff = chat("still there?");
        let (subject, body) = (handoff.subject().to_string(), handoff.encode(subjects::Encoding::Json).ok()?);
        let sent = orchestrator.jetstream.publish(subject, body.into()).await.ok()?;
        sent.await.ok().map(|_| handoff.id)
    })
    .await;
    orchestrator.answered_within(Duration::from_secs(60), Kind::Chat, id).await;
}
