//! What a node decides on by itself, and what it passes on.

use std::time::Duration;

use edge::EdgeLimits;
use serde_json::json;
use testkit::eventually;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::support::{Agent, NODE, World, call};

#[tokio::test]
async fn local_tool_is_called_on_the_node_and_every_call_has_one_row() {
    let world = World::start().await;
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    assert_ne!(lease, held.lease.lease_id, "it is a lease of its own");

    let answer = call(&endpoint, "local.echo", json!({ "text": "hi" })).await;
    assert_eq!(answer["result"]["structuredContent"]["said"], "hi", "{answer}");
    assert_eq!(answer["result"]["_meta"]["dev.cynode/untrusted"], true);
    // Passed on: the gateway decides, and records it.
    let answer = call(&endpoint, "help.list", json!({})).await;
    assert!(answer["result"]["isError"] != true && answer["error"].is_null(), "{answer}");
    // Denied on the node: outside the task of the lease, unknown, and not for agents.
    let answer = call(&endpoint, "local.echo", json!({ "task_id": "t-2" })).await;
    assert_eq!(answer["error"]["data"]["reason"], "mismatched_id", "{answer}");
    for tool in ["local.nothing", "lease.revoke", "lease.bind", "sandbox.job.store", "db.task.get", "nodots"]
    {
        let answer = call(&endpoint, tool, json!({})).await;
        assert_eq!(answer["error"]["message"], format!("Unknown tool: {tool}"), "{answer}");
    }
    let listed = Agent::new(endpoint.socket()).request("tools/list", json!({})).await.unwrap();
    let names: Vec<&str> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert!(names.contains(&"local.echo") && names.contains(&"help.list"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("lease.") || name.starts_with("sandbox.job.")));

    endpoint.close().await;
    world.ship(&edge).await;
    let closed = world.wait_until_closed(&lease).await;
    assert_eq!((&closed["close_reason"], &closed["node"]), (&json!("done"), &json!(NODE)));
    let rows = world.rows_of_node().await;
    let of = |status: &str| rows.iter().filter(|row| row["status"] == status).count();
    assert_eq!((rows.len(), of("success"), of("denied")), (8, 1, 7), "{rows:#?}");
    let done = rows.iter().find(|row| row["status"] == "success").unwrap();
    for (field, expected) in [
        ("agent", "sandbox"),
        ("user_id", "ada"),
        ("task_id", "t-1"),
        ("job_id", "j-1"),
        ("tool", "local.echo"),
        ("lease_id", &lease),
        ("subject", &world.token_id),
        ("node", NODE),
    ] {
        assert_eq!(done[field], expected, "{field}");
    }
    assert_eq!(world.server.calls().len(), 1);
    let passed_on = world.gateway.audit("tool=help.list").await;
    assert_eq!((passed_on.len(), &passed_on[0]["lease_id"]), (1, &json!(lease)), "{passed_on:?}");
    let (is_ok, said) = world.verify();
    assert!(is_ok && said.contains("the audit of nodes is intact"), "{said}");
}

#[tokio::test]
async fn lease_limits_tools_and_access_rules_apply_on_the_node() {
    let world = World::start().await;
    let rule = json!({
        "effect": "deny", "tool": "local.*", "argument": "/text", "matches": "*secret*", "note": "",
    });
    world.gateway.must("POST", "/api/v1/rules", Some(rule)).await;
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    let held = world.job_lease(Some(&["local.*"])).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let answer = call(&endpoint, "local.echo", json!({ "text": "a secret" })).await;
    assert_eq!(answer["error"]["data"]["reason"], "rule", "{answer}");
    let answer = call(&endpoint, "local.echo", json!({ "text": "hi" })).await;
    assert!(answer["error"].is_null(), "{answer}");
    let answer = call(&endpoint, "help.list", json!({})).await;
    assert_eq!(answer["error"]["message"], "Unknown tool: help.list", "{answer}");
    assert!(world.gateway.audit("tool=help.list").await.is_empty(), "it was not passed on");

    let other = world.job_lease(Some(&["help.*"])).await;
    let endpoint = edge.serve_job(&other, &world.path("s2")).await.unwrap();
    let answer = call(&endpoint, "local.echo", json!({})).await;
    assert_eq!(answer["error"]["message"], "Unknown tool: local.echo", "{answer}");
}

#[tokio::test]
async fn full_audit_denies_every_further_call() {
    let world = World::start().await;
    let limits = EdgeLimits { audit_lines: 20, ..EdgeLimits::default() };
    let edge = world.open("edge", &world.key, NODE, limits);
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    let mut made = 0;
    for _ in 0..20 {
        let answer = call(&endpoint, "local.echo", json!({})).await;
        if answer["error"].is_null() {
            made += 1;
        } else {
            assert_eq!(answer["error"]["message"], "the audit of this lease is full");
        }
    }
    assert!((5..10).contains(&made), "{made}");
    assert_eq!(world.server.calls().len(), made, "a call that is not recorded is not made");
    endpoint.close().await;
    world.ship(&edge).await;
    let closed = world.wait_until_closed(&lease).await;
    assert_eq!(closed["close_reason"], "full");
    assert_eq!(world.rows_of_node().await.len(), made);
    let (is_ok, said) = world.verify();
    assert!(is_ok, "{said}");
}

#[tokio::test]
async fn revoked_lease_ends_at_once() {
    let world = World::start().await;
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let (stop, broker) = (CancellationToken::new(), world.broker().await);
    let mut tasks = JoinSet::new();
    let (follower, stopped) = (edge.clone(), stop.clone());
    tasks.spawn(async move { follower.follow_revocations(&broker.client, stopped).await });
    assert!(call(&endpoint, "local.echo", json!({})).await["error"].is_null());
    // The lease of the job: those under it end with it.
    let path = format!("/api/v1/leases/{}", held.lease.lease_id);
    world.gateway.must("DELETE", &path, None).await;
    eventually("the revocation is heard", async || {
        let answer = call(&endpoint, "local.echo", json!({})).await;
        (answer["error"]["data"]["reason"] == "revoked_lease").then_some(())
    })
    .await;
    let lease = endpoint.lease_id().to_owned();
    endpoint.close().await;
    world.ship(&edge).await;
    assert_eq!(world.wait_until_closed(&lease).await["close_reason"], "revoked");
    stop.cancel();
}

#[tokio::test]
async fn agents_outside_a_sandbox_call_on_loopback_with_a_token() {
    let world = World::start().await;
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let stop = CancellationToken::new();
    assert!(edge.listen_loopback("0.0.0.0:0".parse().unwrap(), stop.clone()).await.is_err());
    let (address, serving) =
        edge.listen_loopback("127.0.0.1:0".parse().unwrap(), stop.clone()).await.unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(serving);
    let file = world.path("agent.token");
    let client = |secret: &str| {
        std::fs::write(&file, secret).unwrap();
        mcp::Client::new(mcp::Options {
            url: format!("http://{address}/mcp"),
            token_file: Some(file.clone()),
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(10),
            max_result_bytes: 1 << 20,
            fast_path: true,
            profile: None,
        })
        .unwrap()
    };
    let say = || mcp::Call {
        name: "local.echo",
        arguments: json!({ "text": "hi" }).as_object().unwrap().clone(),
        idempotency_key: None,
        traceparent: None,
        lease: None,
    };
    // The newer era, as our own client speaks it.
    let reply = client(endpoint.token()).call(say()).await.unwrap();
    assert_eq!(reply.structured, Some(json!({ "said": "hi" })));
    let refused = client("wrong").call(say()).await;
    assert!(matches!(refused, Err(mcp::Error::Unauthorized(_))), "{refused:?}");
    let token = endpoint.token().to_owned();
    endpoint.close().await;
    let refused = client(&token).call(say()).await;
    assert!(matches!(refused, Err(mcp::Error::Unauthorized(_))), "{refused:?}");
    stop.cancel();
}
