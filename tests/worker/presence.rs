//! Discovery of instances, their status, and cancellation.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::Value;
use subjects::{Answer, ErrorCode, InstanceState, InstanceStatus, Kind, Role, Status, Subject, streams};
use testkit::{Nats, Orchestrator, Worker, chat, eventually};

/// `$SRV.PING`, `INFO` and `STATS` find every instance with its role and version.
#[tokio::test]
async fn instances_are_found_by_the_micro_protocol() {
    let nats = Nats::start();
    let _manager = Worker::manager(&nats).set("instance", "pm-one").start().await;
    let _analyst = Worker::analyst(&nats).set("instance", "pa-one").start().await;
    let client = nats.client().await;
    for verb in ["PING", "INFO", "STATS"] {
        let inbox = client.new_inbox();
        let mut replies = client.subscribe(inbox.clone()).await.unwrap();
        client.publish_with_reply(format!("$SRV.{verb}.cynode-pma"), inbox, "".into()).await.unwrap();
        let mut found = Vec::new();
        while found.len() < 2 {
            let reply =
                tokio::time::timeout(Duration::from_secs(5), replies.next()).await.expect(verb).unwrap();
            let reply: Value = serde_json::from_slice(&reply.payload).unwrap();
            assert_eq!(reply["name"], "cynode-pma", "{verb}");
            assert_eq!(reply["version"], env!("CARGO_PKG_VERSION"), "{verb}");
            if verb != "STATS" {
                found
                    .push((reply["metadata"]["instance"].to_string(), reply["metadata"]["role"].to_string()));
            } else {
                found.push((String::new(), String::new()));
            }
        }
        if verb != "STATS" {
            found.sort();
            assert_eq!(found[0], ("\"pa-one\"".into(), "\"project_analyst\"".into()), "{verb}");
            assert_eq!(found[1], ("\"pm-one\"".into(), "\"project_manager\"".into()), "{verb}");
        }
    }
}

/// P20: an instance announces itself when it is ready and when it leaves, and reports its status on request.
#[tokio::test]
async fn instance_announces_itself_and_reports_its_status() {
    let nats = Nats::start();
    let client = nats.client().await;
    let mut announced = client.subscribe(Subject::Presence.to_string()).await.unwrap();
    client.flush().await.unwrap();
    let worker = Worker::manager(&nats)
        .set("instance", "pm-one")
        .set("worker.grace", "0s")
        .thinking(Duration::from_secs(60))
        .start()
        .await;
    let read = |message: async_nats::Message| -> InstanceStatus {
        serde_json::from_slice(&message.payload).unwrap()
    };
    let ready = read(announced.next().await.unwrap());
    assert_eq!((ready.role, ready.state), (Role::ProjectManager, InstanceState::Ready));
    let orchestrator = Orchestrator::connect(&nats).await;
    orchestrator.publish(&chat("long")).await;
    worker.wait_for_in_flight(Kind::Chat, 1).await;
    let subject = Subject::Instance("pm-one".parse().unwrap()).to_string();
    let status = read(client.request(subject, "".into()).await.unwrap());
    assert_eq!(status.in_flight[&Kind::Chat].running, 1);
    assert_eq!(status.in_flight[&Kind::Chat].slots, 16);
    assert_eq!((status.model_route.as_str(), status.bundle.len()), ("offline", 64));
    worker.process.terminate();
    let leaving = read(announced.next().await.unwrap());
    assert_eq!(leaving.state, InstanceState::Draining);
}

/// A running handoff stops when it is cancelled, and is answered as cancelled.
#[tokio::test]
async fn a_running_handoff_is_cancelled() {
    let nats = Nats::start();
    let worker = Worker::manager(&nats).thinking(Duration::from_secs(60)).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("never mind")).await;
    worker.wait_for_in_flight(Kind::Chat, 1).await;
    orchestrator.client.publish(Subject::Cancel(id).to_string(), "".into()).await.unwrap();
    let Answer::Completion(answer) =
        orchestrator.wait_for_answer_within(Duration::from_secs(5), Kind::Chat, id).await
    else {
        panic!()
    };
    assert_eq!(answer.status, Status::Cancelled);
    assert_eq!(answer.error.map(|error| error.code), Some(ErrorCode::Cancelled));
    assert_eq!(orchestrator.stored(streams::DEAD).await, 0);
    worker.wait_for_in_flight(Kind::Chat, 0).await;
}

/// A handoff that is cancelled while it waits in the queue is never started.
#[tokio::test]
async fn a_queued_handoff_is_cancelled_before_it_starts() {
    let nats = Nats::start();
    let worker = Worker::manager(&nats)
        .set("worker.concurrency.chat", "1")
        .thinking(Duration::from_secs(2))
        .start()
        .await;
    let orchestrator = Orchestrator::connect(&nats).await;
    orchestrator.publish(&chat("occupies the slot")).await;
    worker.wait_for_in_flight(Kind::Chat, 1).await;
    let id = orchestrator.publish(&chat("waits")).await;
    let reply = orchestrator.client.request(Subject::Cancel(id).to_string(), "".into()).await.unwrap();
    let reply: Value = serde_json::from_slice(&reply.payload).unwrap();
    assert_eq!(reply["state"], "remembered");
    let answer = orchestrator.completion(Kind::Chat, id).await;
    assert_eq!((answer.status, answer.usage.model_calls), (Status::Cancelled, 0));
}

/// `/healthz`, `/readyz` and `/metrics` return what probes and scrapers expect.
#[tokio::test]
async fn health_and_metrics_are_served() {
    let nats = Nats::start();
    let worker = Worker::manager(&nats).start().await;
    let orchestrator = Orchestrator::connect(&nats).await;
    let id = orchestrator.publish(&chat("count me")).await;
    orchestrator.wait_for_answer(Kind::Chat, id).await;
    assert_eq!(worker.get("/healthz").await, (200, "alive\n".to_owned()));
    assert_eq!(worker.get("/readyz").await, (200, "ready\n".to_owned()));
    assert_eq!(worker.get("/nothing").await.0, 404);
    // The health check of the image.
    let listen = worker.http().unwrap();
    for (arguments, code, answer) in [
        (vec!["health", "--http-listen", &listen], 0, "alive\n"),
        (vec!["health", "--ready", "--http-listen", &listen], 0, "ready\n"),
        (vec!["health", "--http-listen", "127.0.0.1:1"], 69, ""),
        (vec!["health"], 64, ""),
    ] {
        let asked = testkit::run(&testkit::binary("cynode-pma"), testkit::workspace(), &arguments, &[]);
        assert_eq!((asked.code, asked.stdout.as_str()), (code, answer), "{arguments:?}: {}", asked.stderr);
    }
    let settled = "pma_handoffs_settled_total{kind=\"chat\",outcome=\"answered\"}";
    eventually("the handoff to be counted", async || {
        worker.metric(settled).await.filter(|count| *count == 1.0)
    })
    .await;
    assert_eq!(worker.metric("pma_ready").await, Some(1.0));
    let (_, text) = worker.get("/metrics").await;
    assert!(text.ends_with("# EOF\n"));
    assert!(text.contains("pma_handoff_duration_seconds_bucket{le="), "{text}");
    orchestrator.publish_raw(Kind::Chat, async_nats::HeaderMap::new(), b"{".to_vec()).await;
    eventually("the invalid handoff to be dead-lettered", async || {
        (orchestrator.stored(streams::DEAD).await == 1).then_some(())
    })
    .await;
    eventually("the invalid handoff to be settled", async || {
        (orchestrator.queued().await == 0).then_some(())
    })
    .await;
    let (_, text) = worker.get("/metrics").await;
    // Every metric by name and type, as dashboards use them.
    let vocabulary: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
    insta::assert_snapshot!(vocabulary.join("\n"));
}
