//! The stream is lost and created again, so that its sequences begin anew: what nodes audit is in the
//! gateway's audit once nevertheless.

use std::{collections::BTreeSet, fs, sync::Arc};

use async_nats::HeaderMap;
use edge::{Edge, EdgeLimits, JobEndpoint};
use serde_json::{Value, json};
use subjects::{
    Subject,
    edge::{EdgeCall, Line, Outcome, Record, split_lines},
    streams,
};
use testkit::eventually;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::support::{NODE, World, call};

async fn serve(world: &World, edge: &Arc<Edge>, socket: &str) -> JobEndpoint {
    edge.serve_job(&world.job_lease(None).await, &world.path(socket)).await.unwrap()
}

/// Makes calls, each of which is shipped and taken over before the next, so that each is a message.
async fn make_calls(world: &World, endpoint: &JobEndpoint, calls: usize, expected: &mut usize) {
    for _ in 0..calls {
        let answer = call(endpoint, "local.echo", json!({})).await;
        assert!(answer["error"].is_null(), "{answer}");
        *expected += 1;
        wait_for_rows(world, *expected).await;
    }
}

async fn wait_for_rows(world: &World, count: usize) -> Vec<Value> {
    eventually(&format!("{count} rows of the node"), async || {
        let rows = world.rows_of_node().await;
        assert!(rows.len() <= count, "more rows than calls: {rows:#?}");
        (rows.len() == count).then_some(rows)
    })
    .await
}

#[tokio::test]
async fn each_line_is_taken_over_once_although_the_stream_is_lost() {
    let mut world = World::start().await;
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    let (stop, mut shipping) = (CancellationToken::new(), JoinSet::new());
    let (shipper, broker, stopped) = (edge.clone(), world.broker().await, stop.clone());
    shipping.spawn(async move { shipper.ship(&broker, stopped).await });
    let (first, second) = (serve(&world, &edge, "s1").await, serve(&world, &edge, "s2").await);
    let mut expected = 0;
    make_calls(&world, &first, 5, &mut expected).await;
    make_calls(&world, &second, 5, &mut expected).await;

    // The new stream begins with 1: all sequences in it are smaller than those that the gateway knows.
    world.nats.lose_stream(streams::edge_audit(1)).await;
    make_calls(&world, &first, 2, &mut expected).await;
    // Where the gateway knows a message of one lease, there is now one of the other.
    make_calls(&world, &second, 12, &mut expected).await;
    make_calls(&world, &first, 2, &mut expected).await;

    // The same while the gateway is away, with lines that it had not taken over.
    world.gateway.kill();
    for endpoint in [&first, &second] {
        call(endpoint, "local.echo", json!({})).await;
    }
    world.nats.lose_stream(streams::edge_audit(1)).await;
    for endpoint in [&second, &first] {
        call(endpoint, "local.echo", json!({})).await;
    }
    world.gateway.start_again().await;
    expected += 4;
    wait_for_rows(&world, expected).await;

    let leases = [&first, &second].map(|endpoint| endpoint.lease_id().to_owned());
    first.close().await;
    second.close().await;
    for lease in &leases {
        world.wait_until_closed(lease).await;
    }
    let rows = wait_for_rows(&world, expected).await;
    let lines: BTreeSet<(String, i64)> = rows
        .iter()
        .map(|row| (row["lease_id"].as_str().unwrap().to_owned(), row["node_line"].as_i64().unwrap()))
        .collect();
    assert_eq!(lines.len(), rows.len(), "a line has two rows");
    let audit = world.node_audit().await;
    assert_eq!(audit["alarms"], json!([]), "{audit:#}");
    let (is_ok, said) = world.verify();
    assert!(is_ok && said.contains("the audit of nodes is intact"), "{said}");
    stop.cancel();
    shipping.join_next().await.unwrap().unwrap();
}

/// A node that loses the stream must not use it to rewrite what it had shipped.
#[tokio::test]
async fn lines_that_are_rewritten_when_the_stream_is_lost_are_found() {
    let world = World::start().await;
    let edge = world.open("edge", &world.key, NODE, EdgeLimits::default());
    let endpoint = serve(&world, &edge, "s").await;
    for _ in 0..3 {
        call(&endpoint, "local.echo", json!({})).await;
    }
    world.ship(&edge).await;
    let before = wait_for_rows(&world, 3).await;
    let lease = endpoint.lease_id().to_owned();
    let own = fs::read(world.path("edge").join(format!("{lease}.audit"))).unwrap();
    world.nats.lose_stream(streams::edge_audit(1)).await;

    // Other calls under the same numbers, in a chain of their own, and one more.
    let mut lines = vec![Line::decode(split_lines(&own).next().unwrap()).unwrap().0];
    for number in 0..4 {
        let call_id = format!("rewritten-{number}");
        let call = EdgeCall { call_id, tool: "local.other".into(), ..EdgeCall::default() };
        for record in [
            Record::Began(call),
            Record::Ended {
                of: lines.len() as u64 + 1,
                outcome: Outcome::Success,
                error_type: None,
                duration_us: 1,
            },
        ] {
            let last = lines.last().unwrap();
            lines.push(Line { n: last.n + 1, prev: last.encode().1, at: last.at, record });
        }
    }
    let body: Vec<u8> = lines.iter().flat_map(|line| line.encode().0).collect();
    let subject = Subject::EdgeAudit(NODE.parse().unwrap(), lease.parse().unwrap());
    let broker = world.broker().await;
    broker::publish(&broker.client, &subject, HeaderMap::new(), body.into(), None).await.unwrap();
    let alarm = world.wait_for_alarm("replaced").await;
    assert_eq!((&alarm["lease_id"], &alarm["line"]), (&json!(lease), &json!(7)), "{alarm}");
    let (is_ok, said) = world.verify();
    assert!(!is_ok && said.contains("up to line 7 they are not those that came before"), "{said}");
    // What had been taken over stays; only what is new is added to it.
    let rows = world.rows_of_node().await;
    assert_eq!(rows.len(), 4, "{rows:#?}");
    assert_eq!(rows[..3], before[..]);
    assert_eq!(rows[3]["call_id"], "rewritten-3");
}
