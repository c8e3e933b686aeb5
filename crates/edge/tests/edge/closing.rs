//! The audit of a lease is closed as soon as it can be, and the gateway notices if it is not.

use std::{fs, path::Path, time::Duration};

use edge::EdgeLimits;
use rustix::process::Signal;
use serde_json::json;
use testkit::{Answer, Tool, eventually};
use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    full_disk::limit_files,
    support::{NODE, World, call},
};

fn is_closed(file: &Path) -> bool {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.ends_with('\n'), "half a line was left: {text}");
    text.contains("\"record\":\"closed\"")
}

#[tokio::test]
async fn audit_that_a_full_disk_keeps_open_is_closed_when_there_is_room() {
    let world = World::start().await;
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    for _ in 0..10 {
        assert!(call(&endpoint, "local.echo", json!({})).await["error"].is_null());
    }
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let (closer, stopped) = (edge.clone(), stop.clone());
    tasks.spawn(async move { closer.keep_closing(stopped).await });

    let file = world.path("edge").join(format!("{lease}.audit"));
    // The process would end with the signal otherwise.
    let _caught = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).unwrap();
    // There is room for a part of a line.
    limit_files(Some(fs::metadata(&file).unwrap().len() + 30));
    let answer = call(&endpoint, "local.echo", json!({})).await;
    assert_eq!(answer["error"]["message"], "the audit is not writable", "{answer}");
    endpoint.close().await;
    assert!(!is_closed(&file));
    assert_eq!(edge.retry_closing(), 1);
    // The same job again has a lease of its own: nothing else uses the file meanwhile.
    let again = edge.serve_job(&held, &world.path("t")).await.unwrap();
    assert_ne!(again.lease_id(), lease);
    again.close().await;
    world.ship(&edge).await;
    assert!(!is_closed(&file), "it is kept until it is closed");

    limit_files(None);
    eventually("the audit is closed and shipped", async || {
        world.ship(&edge).await;
        (!file.exists()).then_some(())
    })
    .await;
    assert_eq!(edge.retry_closing(), 0);
    assert_eq!(world.wait_until_closed(&lease).await["close_reason"], "done");
    let (is_ok, said) = world.verify();
    assert!(is_ok, "{said}");
    stop.cancel();
    timeout(Duration::from_secs(5), tasks.join_next()).await.unwrap().unwrap().unwrap();
}

/// A disk that stays full does not keep the task from ending.
#[tokio::test]
async fn closing_ends_with_the_node_and_the_next_start_closes_what_is_open() {
    let world = World::start().await;
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    let (closer, stopped) = (edge.clone(), stop.clone());
    tasks.spawn(async move { closer.keep_closing(stopped).await });
    let file = world.path("edge").join(format!("{lease}.audit"));
    let _caught = signal(SignalKind::from_raw(Signal::XFSZ.as_raw())).unwrap();
    limit_files(Some(fs::metadata(&file).unwrap().len()));
    drop(endpoint);
    assert_eq!(edge.retry_closing(), 1);
    stop.cancel();
    timeout(Duration::from_secs(5), tasks.join_next()).await.unwrap().unwrap().unwrap();
    drop(edge);
    limit_files(None);
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    assert_eq!(edge.reconcile(&[].into()).unwrap(), 1);
    world.ship(&edge).await;
    assert_eq!(world.wait_until_closed(&lease).await["close_reason"], "restarted");
}

#[tokio::test]
async fn alarm_counts_from_the_revocation_of_a_lease_that_would_last_longer() {
    let world = World::start().await;
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    let (held, other) = (world.job_lease(None).await, world.job_lease(None).await);
    let kept = edge.serve_job(&other, &world.path("t")).await.unwrap();
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    assert!(call(&endpoint, "local.echo", json!({})).await["error"].is_null());
    // The node does not hear of it, and the lease lasts ten minutes.
    world.gateway.must("DELETE", &format!("/api/v1/leases/{}", held.lease.lease_id), None).await;
    let alarm = world.wait_for_alarm("not_closed").await;
    assert_eq!((&alarm["lease_id"], &alarm["resolved_at"]), (&json!(lease), &json!(null)), "{alarm}");
    endpoint.close().await;
    world.ship(&edge).await;
    world.wait_until_closed(&lease).await;
    let (is_ok, said) = world.verify();
    assert!(is_ok, "{said}");
    let audit = world.node_audit().await;
    let alarms = audit["alarms"].as_array().unwrap();
    assert!(alarms.iter().all(|alarm| alarm["lease_id"] == lease), "{audit:#}");
    kept.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn audit_of_a_revoked_lease_is_closed_after_its_last_call_although_the_job_goes_on() {
    let slow = Tool::new("slow", "", json!({ "type": "object" }), |_| {
        Answer::after(Duration::from_millis(700), Answer::text("done"))
    });
    let world = World::start_with(vec![slow]).await;
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    let revoke = async {
        eventually("the call is made", async || (!world.server.calls().is_empty()).then_some(())).await;
        edge.revoke_lease(&held.lease.lease_id);
        let denied = call(&endpoint, "local.echo", json!({})).await;
        assert_eq!(denied["error"]["data"]["reason"], "revoked_lease", "{denied}");
    };
    let (answer, ()) = tokio::join!(call(&endpoint, "local.slow", json!({})), revoke);
    assert_eq!(answer["result"]["content"][0]["text"], "done", "{answer}");
    world.ship(&edge).await;
    assert_eq!(world.wait_until_closed(&lease).await["close_reason"], "revoked");
    let denied = call(&endpoint, "local.echo", json!({})).await;
    assert_eq!(denied["error"]["data"]["reason"], "revoked_lease", "{denied}");
    endpoint.close().await;
    let rows = world.rows_of_node().await;
    let statuses: Vec<_> = rows.iter().map(|row| row["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["denied", "success"]);
    assert_eq!(world.server.calls().len(), 1);
    let (is_ok, said) = world.verify();
    assert!(is_ok, "{said}");
}
