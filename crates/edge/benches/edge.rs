//! Measures what enforcement on a node costs: `cargo bench -p edge`.

#![expect(clippy::unwrap_used, reason = "a measurement that cannot be made must stop")]

use std::{
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use edge::{Call, Edge, EdgeLimits, EdgeSettings};
use leased::HeldLease;
use nkeys::KeyPair;
use serde_json::json;
use testkit::{Answer, Gateway, GatewayProcess, Goal, Report, Tool};

const CALLS: usize = 5000;
const ROUNDS: usize = 5;
/// A decision and its line, in the median.
const MAX_DECISION_MS: f64 = 0.2;

#[tokio::main]
async fn main() -> ExitCode {
    let gateway = GatewayProcess::start().await;
    let (_, token) = gateway.issue(json!({ "label": "node", "agent": "node", "node": "node-1" })).await;
    let echo = Tool::new("echo", "Repeats.", json!({ "type": "object" }), |_| Answer::text("ok"));
    let server = Gateway::start(vec![echo]).await;
    let folder = tempfile::tempdir().unwrap();
    let edge = Edge::open(EdgeSettings {
        folder: folder.path().join("edge"),
        node: "node-1".parse().unwrap(),
        key: KeyPair::new_user(),
        gateway: gateway.agent(&token),
        trusted_keys: Vec::new(),
        upstreams: vec![
            serde_json::from_value(json!({ "namespace": "local", "url": server.url() })).unwrap(),
        ],
        limits: EdgeLimits { lifetime: Duration::from_secs(900), ..EdgeLimits::default() },
    })
    .unwrap();
    let lease = json!({ "agent": "sandbox", "user_id": "ada", "task_id": "t-1" });
    let mut report = Report::new("edge");
    let (mut decisions, mut calls) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (_, text) = gateway.lease(lease.clone()).await;
        let held = Arc::new(HeldLease::read(&text).unwrap());
        let endpoint = edge.serve_job(&held, &folder.path().join(format!("s{round}"))).await.unwrap();
        let arguments = json!({ "path": "/srv/data/report.txt", "limit": 100 }).as_object().unwrap().clone();
        let call = Call { tool: "local.echo".to_owned(), arguments, ..Call::default() };
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let started = Instant::now();
            endpoint.session().decide_and_record(&call).await.unwrap();
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        decisions.push(median(times));
        let mut times = Vec::new();
        for _ in 0..CALLS / 10 {
            let started = Instant::now();
            endpoint.session().call(call.clone()).await;
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        calls.push(median(times));
        endpoint.close().await;
    }
    let goal = Some(Goal::AtMost(MAX_DECISION_MS));
    report.add("edge: a decision with its audit line, p50", "ms", decisions, goal);
    report.add("edge: a call of a local MCP server over HTTP, p50", "ms", calls, None);
    report.finish()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
