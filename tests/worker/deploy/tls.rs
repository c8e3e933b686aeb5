//! A certificate is required to connect, and three nodes form a cluster.

use std::time::Duration;

use subjects::{Kind, Role, streams};
use testkit::{Worker, chat, eventually_within};

use super::stage::{Stage, certificates};

const UNAVAILABLE: i32 = 69;

/// Starts a worker that must be refused, and returns its log.
fn refused(settings: &testkit::WorkerBuilder) -> String {
    let mut worker = settings.spawn();
    let status = worker.process.wait(Duration::from_secs(20));
    assert_eq!(status.code(), Some(UNAVAILABLE), "{}", worker.log());
    worker.log()
}

/// A worker with its key and a certificate connects; without either, or with a certificate of another
/// authority, it does not.
#[tokio::test]
async fn a_worker_needs_its_key_and_a_certificate() {
    let stage = Stage::start().await;
    let worker = stage.worker(Role::ProjectManager).start().await;
    assert_eq!(worker.get("/readyz").await.0, 200);

    let with_ca = || Worker::manager_at(&stage.url()).set("nats.tls.ca_file", stage.path("tls/ca.crt"));
    let no_certificate = with_ca().set("nats.nkey_file", stage.path("project_manager.nk"));
    assert!(!gets_in(&no_certificate).await, "the worker connected without a certificate");

    let certified = |worker: testkit::WorkerBuilder, folder: &str| {
        let (certificate, key) =
            (stage.path(&format!("{folder}/tls.crt")), stage.path(&format!("{folder}/tls.key")));
        worker.set("nats.tls.cert_file", certificate).set("nats.tls.key_file", key)
    };
    let no_key = certified(with_ca(), "tls");
    assert!(refused(&no_key).contains("rejected the credentials"));

    certificates(std::path::Path::new(&stage.path("others")));
    let of_another = certified(with_ca(), "others").set("nats.nkey_file", stage.path("project_manager.nk"));
    assert!(!gets_in(&of_another).await, "the worker connected with a certificate of another authority");
    let another_server =
        Worker::manager_at(&stage.url()).set("nats.tls.ca_file", stage.path("others/ca.crt"));
    assert!(
        refused(&another_server).contains("TLS handshake with NATS"),
        "the worker trusts an unknown server"
    );
}

/// With TLS 1.3 a client learns only after its handshake that its certificate was refused: it may treat that
/// as an unreachable server and wait.
async fn gets_in(settings: &testkit::WorkerBuilder) -> bool {
    let mut worker = settings.spawn();
    let told = ["TLS handshake with NATS", "NATS not reachable yet"];
    eventually_within(Duration::from_secs(20), "the worker to be refused", async || {
        let log = worker.log();
        (log.contains("\"Ready.\"") || told.iter().any(|said| log.contains(said))).then_some(())
    })
    .await;
    let got_in = worker.log().contains("\"Ready.\"");
    worker.process.kill();
    got_in
}

/// Three nodes with the deployed files form a cluster over TLS, keep three replicas, and continue when one
/// dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_form_a_cluster_and_survive_the_loss_of_one() {
    let mut stage = Stage::unprovisioned(3).await;
    eventually_within(Duration::from_secs(60), "the cluster to form", async || {
        (stage.ctl("provisioner", &["provision", "--replicas", "3"]).code == 0).then_some(())
    })
    .await;
    let _manager = stage.worker(Role::ProjectManager).set("nats.replicas", "3").start().await;
    let orchestrator = stage.orchestrator().await;
    let id = orchestrator.publish(&chat("hello")).await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;
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
    orchestrator.wait_for_answer_within(Duration::from_secs(60), Kind::Chat, id).await;
}
