//! What a hostile node does to its audit is found and named.

use std::{fs, sync::Arc};

use async_nats::HeaderMap;
use edge::{Edge, EdgeLimits, JobEndpoint, Shipment, ship_file};
use nkeys::KeyPair;
use serde_json::json;
use subjects::{Subject, edge::split_lines};
use tokio::task::JoinSet;

use super::support::{NODE, World, call};

/// Serves a job and makes calls. Returns the edge and the endpoint.
async fn with_calls(world: &World, calls: usize) -> (Arc<Edge>, JobEndpoint) {
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    for number in 0..calls {
        let answer = call(&endpoint, "local.echo", json!({ "text": number })).await;
        assert!(answer["error"].is_null(), "{answer}");
    }
    (edge, endpoint)
}

fn file(world: &World, lease: &str) -> std::path::PathBuf {
    world.path("edge").join(format!("{lease}.audit"))
}

fn assert_found(world: &World, what: &str) {
    let (is_ok, said) = world.verify();
    assert!(!is_ok && said.contains(what), "expected `{what}`:\n{said}");
}

#[tokio::test]
async fn changed_and_removed_lines_are_found() {
    let world = World::start().await;
    let (edge, endpoint) = with_calls(&world, 10).await;
    let lease = endpoint.lease_id().to_owned();
    endpoint.close().await;
    let path = file(&world, &lease);
    let text = fs::read_to_string(&path).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // The outcome of a call is embellished, and a later call is left out.
    lines[4] = lines[4].replace("\"success\"", "\"failure\"");
    lines.remove(8);
    fs::write(&path, lines.join("\n") + "\n").unwrap();
    world.ship(&edge).await;
    world.wait_until_closed(&lease).await;
    let changed = world.wait_for_alarm("changed").await;
    assert_eq!((&changed["line"], &changed["detail"]), (&json!(5), &json!("line 5 was changed")));
    assert_eq!(world.wait_for_alarm("gap").await["line"], 9);
    for what in [format!("node {NODE}, lease {lease}: line 5 was changed"), "line 9 is missing".to_owned()] {
        assert_found(&world, &what);
    }
    let page = world.gateway.metrics().await;
    assert!(page.contains("gateway_edge_audit_alarms"), "{page}");
}

#[tokio::test]
async fn cut_tail_is_found_by_what_the_node_stated() {
    let world = World::start().await;
    let limits = EdgeLimits { lifetime: std::time::Duration::from_secs(4), ..EdgeLimits::default() };
    let edge = world.open("edge", &world.key, NODE, limits);
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    for _ in 0..20 {
        call(&endpoint, "local.echo", json!({})).await;
    }
    // The renewal tells the gateway how many lines there are.
    testkit::eventually("the lease is renewed", async || {
        let audit = world.node_audit().await;
        (audit["leases"][0]["stated_lines"].as_i64()? >= 41).then_some(())
    })
    .await;
    // The node removes the last lines, among them those of calls, and the close with them.
    drop(endpoint);
    let path = file(&world, &lease);
    let text = fs::read_to_string(&path).unwrap();
    let kept: Vec<&str> = text.lines().take(20).collect();
    fs::write(&path, kept.join("\n") + "\n").unwrap();
    world.ship(&edge).await;
    let alarm = world.wait_for_alarm("truncated").await;
    assert_eq!(alarm["lease_id"], lease);
    world.wait_for_alarm("not_closed").await;
    assert_found(&world, "lines when it renewed the lease; 20 came");
    assert_found(&world, "its last line did not come");

    // It goes on with other lines than those that it stated.
    drop(edge);
    let edge = world.open("edge", &world.key, NODE, limits);
    edge.reconcile(&[held.lease.lease_id.clone()].into()).unwrap();
    drop(edge.serve_job(&held, &world.path("s")).await);
}

#[tokio::test]
async fn lease_of_another_node_and_a_replayed_lease_are_found() {
    let world = World::start().await;
    let (edge, endpoint) = with_calls(&world, 5).await;
    let lease = endpoint.lease_id().to_owned();
    endpoint.close().await;
    let body = fs::read(file(&world, &lease)).unwrap();
    world.ship(&edge).await;
    world.wait_until_closed(&lease).await;
    let broker = world.broker().await;
    let publish = async |node: &str, lease: &str, body: Vec<u8>| {
        let subject = Subject::EdgeAudit(node.parse().unwrap(), lease.parse().unwrap());
        broker::publish(&broker.client, &subject, HeaderMap::new(), body.into(), None).await.unwrap();
    };
    // Another node writes under the lease.
    publish("node-2", &lease, body.clone()).await;
    let alarm = world.wait_for_alarm("other_node").await;
    assert_eq!((&alarm["node"], &alarm["lease_id"]), (&json!("node-2"), &json!(lease)));
    assert_found(&world, &format!("the lease is for node {NODE}, but node node-2 wrote under it"));
    // The same lines come again, after the last one.
    publish(NODE, &lease, body.clone()).await;
    world.wait_for_alarm("changed").await;
    // A lease that the gateway never bound.
    publish(NODE, "0123", body.clone()).await;
    world.wait_for_alarm("unknown_lease").await;
    assert_found(&world, "lease 0123: the gateway knows no such lease of a node");
    // Nothing of it became a row.
    assert_eq!(world.rows_of_node().await.len(), 5);

    // A second holder uses a copy of the lease under the name of the node.
    let held = world.job_lease(None).await;
    let edge = world.open("edge2", &world.key, NODE, EdgeLimits::default());
    let endpoint = edge.serve_job(&held, &world.path("s2")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    call(&endpoint, "local.echo", json!({})).await;
    let own = fs::read(world.path("edge2").join(format!("{lease}.audit"))).unwrap();
    let (opened, hash, _) = subjects::edge::Line::decode(split_lines(&own).next().unwrap()).unwrap();
    let thief = KeyPair::new_user();
    let head = subjects::edge::Signature::sign(&thief, &lease, 2, &hash).unwrap();
    let why = subjects::edge::CloseReason::Done;
    let record = subjects::edge::Record::Closed { why, head };
    let forged = subjects::edge::Line { n: 2, prev: hash, at: opened.at, record };
    let body = [opened.encode().0, forged.encode().0].concat();
    publish(NODE, &lease, body).await;
    let alarm = world.wait_for_alarm("other_holder").await;
    assert_eq!(alarm["lease_id"], lease);
    assert_found(&world, &format!("line 2 is signed by {}", thief.public_key()));
    // The node finds that the stream holds other lines than its own, and uses the lease no more.
    let broker = world.broker().await;
    edge.ship_once(&broker).await;
    let answer = call(&endpoint, "local.echo", json!({})).await;
    assert_eq!(answer["error"]["data"]["reason"], "revoked_lease", "{answer}");
}

#[tokio::test]
async fn several_writers_ship_each_line_once() {
    let world = World::start().await;
    let (_edge, endpoint) = with_calls(&world, 100).await;
    let lease = endpoint.lease_id().to_owned();
    // Kept: the edge is not shipping.
    let path = world.path("copy");
    fs::copy(file(&world, &lease), &path).unwrap();
    let mut writers = JoinSet::new();
    for _ in 0..4 {
        let (broker, path, lease) = (world.broker().await, path.clone(), lease.clone());
        writers.spawn(async move {
            for _ in 0..5 {
                // Each starts as after a crash: it knows nothing of what is shipped.
                let mut shipment = Shipment::default();
                let (node, lease) = (NODE.parse().unwrap(), lease.parse().unwrap());
                while !ship_file(&broker, &node, &lease, &path, &mut shipment).await {}
                assert!(!shipment.is_forked());
            }
        });
    }
    while let Some(written) = writers.join_next().await {
        written.unwrap();
    }
    testkit::eventually("all lines are taken over", async || {
        (world.rows_of_node().await.len() == 100).then_some(())
    })
    .await;
    let audit = world.node_audit().await;
    assert_eq!(audit["alarms"], json!([]), "{audit:#}");
    let (is_ok, said) = world.verify();
    assert!(is_ok, "{said}");
}
