//! What a node costs: the overhead of a job, jobs per second, and an idle node.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use testkit::{GatewayProcess, Goal, Nats, NodeBuilder, NodeProcess, Report};

const WARM_UP: usize = 10;
const JOBS: usize = 100;
const MANY_JOBS: usize = 400;
const AT_ONCE: usize = 16;
const IDLE_TIME: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(measure())
}

async fn measure() -> ExitCode {
    let mut report = Report::new("node");
    let nats = Nats::start();
    let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let manager = gateway.agent(&gateway.manager().await);
    let task = call(&manager, "db.task.create", json!({ "title": "Measure", "user_id": "ada" })).await;
    let run = json!({ "task_id": task["task_id"], "command": ["/bin/true"], "wait_seconds": 60 });
    let node = NodeBuilder::new("bench", &nats, &gateway).await.set("node.slots", "4").start().await;
    for _ in 0..WARM_UP {
        call(&manager, "sandbox.run", run.clone()).await;
    }
    println!("one job at a time, from the call to its stored result");
    overhead(&manager, &run, &mut report).await;
    println!("{AT_ONCE} jobs at a time");
    throughput(&manager, &run, &mut report).await;
    println!("an idle node");
    idle(&node, &mut report).await;
    report.finish()
}

async fn overhead(manager: &mcp::Client, run: &Value, report: &mut Report) {
    let mut times = Vec::with_capacity(JOBS);
    for _ in 0..JOBS {
        let began = Instant::now();
        let job = call(manager, "sandbox.run", run.clone()).await;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
        assert_eq!(job["exit_code"], 0, "{job}");
    }
    times.sort_by(f64::total_cmp);
    let (median, late) = (times[JOBS / 2], times[JOBS * 99 / 100]);
    let what = "job of /bin/true in bwrap with limits, from the call to its stored result";
    report.add(&format!("{what}, p50"), "ms", vec![median], Some(Goal::AtMost(60.0)));
    report.add(&format!("{what}, p99"), "ms", vec![late], None);
}

async fn throughput(manager: &mcp::Client, run: &Value, report: &mut Report) {
    let began = Instant::now();
    let jobs = stream::iter(0..MANY_JOBS).map(|_| call(manager, "sandbox.run", run.clone()));
    let failed =
        jobs.buffer_unordered(AT_ONCE).filter(|job| std::future::ready(job["exit_code"] != 0)).count().await;
    assert_eq!(failed, 0);
    let rate = MANY_JOBS as f64 / began.elapsed().as_secs_f64();
    report.add("jobs of /bin/true on one node", "jobs/s", vec![rate], Some(Goal::AtLeast(30.0)));
}

async fn idle(node: &NodeProcess, report: &mut Report) {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = node.process.cpu();
    tokio::time::sleep(IDLE_TIME).await;
    let share = (node.process.cpu() - before) / IDLE_TIME.as_secs_f64() * 100.0;
    report.add("CPU of an idle node", "%", vec![share], Some(Goal::AtMost(1.0)));
}

async fn call(manager: &mcp::Client, tool: &str, arguments: Value) -> Value {
    let Value::Object(arguments) = arguments else { unreachable!("arguments are an object") };
    let call = mcp::Call { name: tool, arguments, idempotency_key: None, traceparent: None, lease: None };
    let reply = manager.call(call).await.unwrap();
    assert!(!reply.is_error, "{}", reply.text);
    reply.structured.unwrap()
}
