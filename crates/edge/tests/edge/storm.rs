//! Ten thousand calls while everything breaks: each is in the gateway's audit once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use serde_json::json;
use testkit::eventually;
use tokio::time::sleep;

use super::support::{Agent, World};

/// How many calls are made. `EDGE_CALLS` makes it more.
fn number_of_calls() -> usize {
    std::env::var("EDGE_CALLS").map_or(3_000, |text| text.parse().expect("EDGE_CALLS is a number"))
}

/// Makes calls `from..to`, each until it is answered. Returns how often each was sent.
async fn make_calls(world: &World, from: usize, to: usize, sent: &mut BTreeMap<usize, usize>) {
    let socket = world.path("s");
    let mut agent = Agent::new(&socket);
    for number in from..to {
        loop {
            *sent.entry(number).or_default() += 1;
            match agent.call("local.echo", json!({ "text": number.to_string() })).await {
                Some(answer) => {
                    assert_eq!(answer["result"]["structuredContent"]["said"], number.to_string(), "{answer}");
                    break;
                }
                // The process was killed: the call may have been made, and is made again.
                None => {
                    world.wait_for_host().await;
                    agent = Agent::new(&socket);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_is_in_the_audit_once_although_all_parts_are_killed() {
    let mut world = World::start().await;
    world.write_host_settings().await;
    let mut host = world.start_host();
    world.wait_for_host().await;
    let mut sent = BTreeMap::new();
    let wanted = number_of_calls();
    let step = wanted / 10;
    for round in 0..10 {
        let (from, to) = (round * step, (round + 1) * step);
        match round {
            2 => world.nats.kill(),
            3 => world.gateway.kill(),
            5 => world.nats.start_again(),
            6 => world.gateway.start_again().await,
            _ => {}
        }
        if round % 2 == 0 {
            // Killed in the middle of the calls, five times, also while NATS and the gateway are away.
            let calls = make_calls(&world, from, to, &mut sent);
            let kill = async {
                sleep(Duration::from_millis(300)).await;
                host.kill();
                host = world.start_host();
            };
            tokio::join!(calls, kill);
        } else {
            make_calls(&world, from, to, &mut sent).await;
        }
    }
    host.terminate();
    let status = host.wait(Duration::from_secs(60));
    assert!(status.success(), "{}", fs::read_to_string(world.path("host.log")).unwrap_or_default());

    let audit = eventually("all leases are closed", async || {
        let audit = world.node_audit().await;
        let leases = audit["leases"].as_array()?.clone();
        leases.iter().all(|lease| !lease["closed_at"].is_null()).then_some(audit)
    })
    .await;
    assert_eq!(audit["alarms"], json!([]), "{audit:#}");
    let rows = world.rows_of_node().await;
    let ids: BTreeSet<(String, i64)> = rows
        .iter()
        .map(|row| (row["lease_id"].as_str().unwrap().to_owned(), row["node_line"].as_i64().unwrap()))
        .collect();
    assert_eq!(ids.len(), rows.len(), "a line has two rows");
    let calls: BTreeSet<&str> = rows.iter().map(|row| row["call_id"].as_str().unwrap()).collect();
    assert_eq!(calls.len(), rows.len(), "a call has two rows");
    let count = |status: &str| rows.iter().filter(|row| row["status"] == status).count();
    let made = world.server.calls().len();
    let tried: usize = sent.values().sum();
    // What the server saw was recorded before: as done, or as interrupted by a kill.
    assert!(count("success") >= wanted && count("success") <= made, "{} of {made}", count("success"));
    assert!(made <= rows.len() && rows.len() <= tried, "{made} {} {tried}", rows.len());
    assert_eq!(count("success") + count("unknown"), rows.len());
    let (is_ok, said) = world.verify();
    assert!(is_ok && said.contains("the audit of nodes is intact"), "{said}");
}
