//! What a node may still do while it is cut off, and for how long.

use std::{collections::BTreeSet, time::Duration};

use edge::{EdgeLimits, Error};
use serde_json::json;
use testkit::{Link, eventually};

use super::support::{NODE, World, call};

#[tokio::test]
async fn node_that_is_cut_off_goes_on_until_its_lease_ends_and_then_denies() {
    let mut world = World::start().await;
    let limits = EdgeLimits { lifetime: Duration::from_secs(4), ..EdgeLimits::default() };
    let edge = world.open("edge", &world.key, NODE, limits);
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    // Longer than the lease lasts without renewals.
    eventually("the lease was renewed twice", async || {
        let answer = call(&endpoint, "local.echo", json!({})).await;
        assert!(answer["error"].is_null(), "{answer}");
        let audit = world.node_audit().await;
        let lease = &audit["leases"][0];
        let lasted = lease["expires_at"].as_i64()? - lease["bound_at"].as_i64()?;
        (lasted > 7_500_000).then_some(())
    })
    .await;
    world.gateway.kill();
    let answer = call(&endpoint, "local.echo", json!({ "text": "alone" })).await;
    assert_eq!(answer["result"]["structuredContent"]["said"], "alone", "{answer}");
    let answer = call(&endpoint, "help.list", json!({})).await;
    assert_eq!(answer["error"]["message"], "the gateway cannot be reached", "{answer}");
    eventually("the lease ends", async || {
        let answer = call(&endpoint, "local.echo", json!({})).await;
        (answer["error"]["data"]["reason"] == "expired_lease").then_some(())
    })
    .await;
    let made = world.server.calls().len();
    let answer = call(&endpoint, "local.echo", json!({})).await;
    assert_eq!(answer["error"]["data"]["reason"], "expired_lease", "{answer}");
    assert_eq!(world.server.calls().len(), made);

    // The gateway misses the last line of the lease, and says so until it has come.
    endpoint.close().await;
    world.gateway.start_again().await;
    let alarm = world.wait_for_alarm("not_closed").await;
    assert_eq!((&alarm["lease_id"], &alarm["resolved_at"]), (&json!(lease), &json!(null)));
    let (is_ok, said) = world.verify();
    assert!(!is_ok && said.contains("its last line did not come"), "{said}");
    world.ship(&edge).await;
    assert_eq!(world.wait_until_closed(&lease).await["close_reason"], "expired");
    let (is_ok, said) = world.verify();
    assert!(is_ok, "{said}");
    let rows = world.rows_of_node().await;
    let success = rows.iter().filter(|row| row["status"] == "success").count();
    assert_eq!(success, made);
}

/// The gateway may have the call, and then its own row of it.
#[tokio::test]
async fn call_that_may_have_reached_the_gateway_has_no_row_of_the_node() {
    let world = World::start().await;
    let url = world.gateway.url();
    let server = url.trim_start_matches("http://").trim_end_matches("/mcp");
    let link = Link::to(server).await;
    let client = mcp::Client::new(mcp::Options {
        url: format!("http://{}/mcp", link.address()),
        token_file: Some(world.path("token")),
        connect_timeout: Duration::from_secs(2),
        call_timeout: Duration::from_secs(2),
        max_result_bytes: 1 << 20,
        fast_path: true,
        profile: None,
    });
    let edge = world.open_with(client.unwrap(), "edge", &world.key, NODE, EdgeLimits::default());
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    let answer = call(&endpoint, "help.list", json!({})).await;
    assert!(answer["error"].is_null(), "{answer}");
    link.cut();
    let answer = call(&endpoint, "help.list", json!({})).await;
    let said = "the gateway did not answer; it is unknown whether the call had its effect";
    assert_eq!(answer["error"]["message"], said, "{answer}");
    // Nobody listens any more. The first call may notice it only when it is sent.
    drop(link);
    for _ in 0..2 {
        let answer = call(&endpoint, "artifact.list", json!({})).await;
        assert_eq!(answer["error"]["message"], "the gateway cannot be reached", "{answer}");
    }
    endpoint.close().await;
    world.ship(&edge).await;
    world.wait_until_closed(&lease).await;
    let rows = world.rows_of_node().await;
    let not_made = |row: &serde_json::Value| {
        (&row["tool"], &row["error_type"]) == (&json!("artifact.list"), &json!("gateway_unavailable"))
    };
    assert!(!rows.is_empty() && rows.iter().all(not_made), "{rows:?}");
}

#[tokio::test]
async fn clock_that_goes_back_does_not_extend_a_lease() {
    let world = World::start().await;
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    assert!(call(&endpoint, "local.echo", json!({})).await["error"].is_null());
    edge.clock().shift(-60_000_000);
    let answer = call(&endpoint, "local.echo", json!({})).await;
    assert_eq!(answer["error"]["data"]["reason"], "expired_lease", "{answer}");
    edge.clock().shift(60_000_000);
    assert!(call(&endpoint, "local.echo", json!({})).await["error"].is_null());
    // The lease lasts ten minutes.
    edge.clock().shift(601_000_000);
    let answer = call(&endpoint, "local.echo", json!({})).await;
    assert_eq!(answer["error"]["data"]["reason"], "expired_lease", "{answer}");
}

#[tokio::test]
async fn lease_of_another_node_is_refused_before_it_is_used() {
    let world = World::start().await;
    let other = nkeys::KeyPair::new_user();
    let limits = EdgeLimits::default();
    let edge = world.open("edge", &world.key, NODE, limits);
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    // The files of a node are copied to another one, and to one with the same name and another key.
    for (folder, key, node) in [("a", &world.key, "node-2"), ("b", &other, NODE)] {
        std::fs::create_dir(world.path(folder)).unwrap();
        for end in ["audit", "json"] {
            let name = format!("{lease}.{end}");
            std::fs::copy(world.path("edge").join(&name), world.path(folder).join(&name)).unwrap();
        }
        let client = world.gateway.agent(&world.gateway.node_token(node).await);
        let thief = world.open_with(client, folder, key, node, limits);
        let endpoint = thief.serve_job(&held, &world.path("t")).await.unwrap();
        assert_ne!(endpoint.lease_id(), lease, "the gateway bound a lease of its own");
    }
    // A second process does not use the same folder.
    let again = edge::Edge::open(edge::EdgeSettings {
        folder: world.path("edge"),
        node: NODE.parse().unwrap(),
        key: world.key.clone(),
        gateway: world.client(),
        trusted_keys: Vec::new(),
        upstreams: Vec::new(),
        limits,
    });
    assert!(matches!(again, Err(Error::InUse(_))), "{again:?}");
}

#[tokio::test]
async fn what_a_killed_process_left_is_closed_at_the_next_start() {
    let world = World::start().await;
    let limits = EdgeLimits::default();
    let edge = world.open("edge", &world.key, NODE, limits);
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    assert!(call(&endpoint, "local.echo", json!({})).await["error"].is_null());
    // As after a crash: a copy of the folder as it is now, with half a line at its end.
    let file = format!("{lease}.audit");
    std::fs::create_dir(world.path("crashed")).unwrap();
    let mut left = std::fs::read(world.path("edge").join(&file)).unwrap();
    left.extend_from_slice(b"0011 {\"n\":");
    std::fs::write(world.path("crashed").join(&file), left).unwrap();
    drop((endpoint, edge));
    let edge = world.open("crashed", &world.key, NODE, limits);
    assert_eq!(edge.reconcile(&BTreeSet::new()).unwrap(), 1);
    assert_eq!(edge.reconcile(&BTreeSet::new()).unwrap(), 0);
    world.ship(&edge).await;
    assert_eq!(world.wait_until_closed(&lease).await["close_reason"], "restarted");
    let (is_ok, said) = world.verify();
    assert!(is_ok, "{said}");
    assert_eq!(std::fs::read_dir(world.path("crashed")).unwrap().count(), 1, "only the lock is left");
}
