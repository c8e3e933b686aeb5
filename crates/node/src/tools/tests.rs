use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

use intake::Gate;
use serde_json::json;
use testkit::{GatewayProcess, eventually};

use super::*;
use crate::health::{Blocker, Health};

/// A job that calls tools is handed back meanwhile, and the gateway tells other nodes to take it.
#[tokio::test]
async fn node_takes_no_jobs_while_the_audit_of_what_they_call_cannot_be_written() {
    let gateway = GatewayProcess::start().await;
    let token = gateway.node_token("n1").await;
    let new = json!({ "agent": "sandbox", "user_id": "ada", "task_id": "t-1", "job_id": "j-1" });
    let held = Arc::new(HeldLease::read(&gateway.lease(new).await.1).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let edge = Edge::open(EdgeSettings {
        folder: path("edge"),
        node: "n1".parse().unwrap(),
        key: signing_key::read_or_create(&path("node.nk")).unwrap(),
        gateway: gateway.agent(&token),
        trusted_keys: Vec::new(),
        upstreams: Vec::new(),
        limits: EdgeLimits::default(),
    });
    let tools = JobTools { edge: edge.unwrap(), sockets: path(""), address: None };
    let health = Arc::new(Health::starting());
    health.unset(&Blocker::Starting);
    let (breakers, _gate) = Gate::new();
    let breaker = Breaker::new(Blocker::Audit, breakers, Arc::clone(&health));
    let (background, stop) = (TaskTracker::new(), CancellationToken::new());
    tools.watch_audit(&breaker, &background, &stop);

    fs::rename(path("edge"), path("away")).unwrap();
    fs::write(path("edge"), "not a folder").unwrap();
    let refused = tools.edge.serve_job(&held, &path("s")).await.unwrap_err();
    assert!(refused.is_transient(), "the job would end: {refused}");
    eventually("the node is not ready", async || {
        health.reasons().first()?.contains("cannot write the audit of what jobs call").then_some(())
    })
    .await;
    assert!(breaker.is_open());
    fs::remove_file(path("edge")).unwrap();
    fs::rename(path("away"), path("edge")).unwrap();
    eventually("the node is ready again", async || health.reasons().is_empty().then_some(())).await;
    tools.edge.serve_job(&held, &path("s")).await.unwrap().close().await;
    stop.cancel();
    background.close();
    background.wait().await;
}

#[test]
fn sockets_of_jobs_are_reached_by_the_node_alone() {
    let folder = tempfile::tempdir().unwrap();
    let sockets = folder.path().join("sockets");
    let mode = || fs::metadata(&sockets).unwrap().permissions().mode() & 0o777;
    make_folder(&sockets).unwrap();
    assert_eq!(mode(), 0o700);
    // As an earlier release made it.
    fs::set_permissions(&sockets, Permissions::from_mode(0o755)).unwrap();
    make_folder(&sockets).unwrap();
    assert_eq!(mode(), 0o700);
}
