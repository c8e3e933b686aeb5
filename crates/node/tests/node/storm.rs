//! Many jobs on three nodes, while nodes are killed and frozen and NATS and the gateway are restarted.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use async_nats::jetstream;
use futures_util::StreamExt;
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use subjects::{
    job::{LogChunk, MAX_ATTEMPTS},
    streams,
};
use testkit::{NodeBuilder, NodeProcess};

use crate::{host::wait_until_clean, stage::Stage};

const NODES: usize = 3;
/// How many jobs wait or run at the same time.
const AT_ONCE: usize = 12;

/// Runs jobs that write a log and leave a file. In the end each job has one result and one file, the log of
/// the attempt that ended it has no gap, and nothing is left on the machine. `NODE_JOBS` makes it longer,
/// `STORM_SEED` repeats a run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_job_has_one_result_and_leaves_nothing_behind() {
    let variable = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = variable("STORM_SEED").unwrap_or_else(|| rand::rng().random());
    let jobs = usize::try_from(variable("NODE_JOBS").unwrap_or(80)).unwrap();
    println!("STORM_SEED={seed} NODE_JOBS={jobs}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut stage = Stage::start().await;
    let mut builders = Vec::new();
    for node in 0..NODES {
        builders.push(stage.node(&format!("node-{node}")).await);
    }
    let mut nodes: Vec<Option<NodeProcess>> = Vec::new();
    for builder in &builders {
        nodes.push(Some(builder.start().await));
    }
    let manager = stage.manager.clone();
    let task = stage.task.clone();
    let mut creating = pin!(create_all(&manager, &task, jobs));
    let mut failures: BTreeMap<&str, u32> = BTreeMap::new();
    let ids = loop {
        tokio::select! {
            ids = &mut creating => break ids,
            () = fail(&mut stage, &builders, &mut nodes, &mut rng, &mut failures) => {}
        }
    };
    println!("{failures:?}");
    for (builder, node) in builders.iter().zip(&mut nodes) {
        match node {
            // It may be frozen still.
            Some(node) => node.process.thaw(),
            None => *node = Some(builder.start().await),
        }
    }
    let jetstream = jetstream::new(stage.nats.client().await);
    let mut given_up = 0;
    for (number, id) in ids.iter().enumerate() {
        let job = stage.ended(id).await;
        assert_eq!(stage.results(id).await, 1, "{job}");
        if job["end"]["how"] == "node_lost" {
            // It was run as often as it may be, and each time its node was killed.
            assert!(job["attempt"].as_u64().unwrap() > u64::from(MAX_ATTEMPTS), "{job}");
            given_up += 1;
            continue;
        }
        assert_eq!(job["exit_code"], 0, "{job}");
        assert_eq!(stage.artifact(&format!("out-{number}.txt")).await, format!("{number}\n").repeat(100));
        assert_log_is_whole(&jetstream, id, &job).await;
    }
    println!("{given_up} jobs were killed as often as they may be run");
    assert!(given_up * 20 <= jobs, "{given_up} of {jobs}");
    for builder in &builders {
        wait_until_clean(&builder.data(), &ids).await;
    }
}

/// Creates jobs, so that a few always wait or run, and waits until the last has ended.
async fn create_all(manager: &mcp::Client, task: &str, jobs: usize) -> Vec<String> {
    let numbers = futures_util::stream::iter(0..jobs);
    let mut ids: Vec<(usize, String)> = numbers
        .map(|number| async move { (number, create_and_await(manager, task, number).await) })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    ids.sort_unstable();
    ids.into_iter().map(|(_, id)| id).collect()
}

/// Calls until the gateway answers: the key makes it one job.
async fn create_and_await(manager: &mcp::Client, task: &str, number: usize) -> String {
    let script = format!(
        "for i in $(seq 100); do echo {number} >> out-{number}.txt; echo line $i of {number}; done
        sleep 0.$(({number} % 9))"
    );
    let run = json!({
        "task_id": task, "script": script, "outputs": [format!("out-{number}.txt")], "repeat": "safe",
    });
    let created = call(manager, "sandbox.run", run, &format!("storm/{number}")).await;
    let id = created["job_id"].as_str().unwrap().to_owned();
    loop {
        let job = call(manager, "sandbox.job.get", json!({ "job_id": id }), &format!("get/{number}")).await;
        if !job["end"].is_null() {
            return id;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn call(manager: &mcp::Client, tool: &str, arguments: Value, key: &str) -> Value {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    let key = (tool == "sandbox.run").then_some(key);
    loop {
        let call = mcp::Call {
            name: tool,
            arguments: arguments.clone(),
            idempotency_key: key,
            traceparent: None,
            lease: None,
        };
        match manager.call(call).await {
            Ok(reply) if !reply.is_error => return reply.structured.unwrap(),
            Ok(reply) if !reply.text.contains("unavailable") => panic!("{tool}: {}", reply.text),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Does one thing that goes wrong in practice, after a moment.
async fn fail(
    stage: &mut Stage,
    builders: &[NodeBuilder],
    nodes: &mut [Option<NodeProcess>],
    rng: &mut StdRng,
    failures: &mut BTreeMap<&'static str, u32>,
) {
    tokio::time::sleep(Duration::from_millis(rng.random_range(200..1200))).await;
    let at = rng.random_range(0..nodes.len());
    let what = match rng.random_range(0..10) {
        0..=4 => {
            if let Some(mut node) = nodes[at].take() {
                node.process.kill();
            }
            nodes[at] = Some(builders[at].start().await);
            "node killed"
        }
        5..=7 => {
            if let Some(node) = &nodes[at] {
                node.process.freeze();
                tokio::time::sleep(Duration::from_millis(rng.random_range(500..4000))).await;
                node.process.thaw();
            }
            "node frozen"
        }
        8 => {
            stage.nats.kill();
            tokio::time::sleep(Duration::from_millis(rng.random_range(100..1000))).await;
            stage.nats.start_again();
            "NATS killed"
        }
        _ => {
            stage.gateway.start_again().await;
            "gateway killed"
        }
    };
    *failures.entry(what).or_default() += 1;
}

/// The chunks of the attempt that ended the job are numbered without a gap and hold all it wrote.
async fn assert_log_is_whole(jetstream: &jetstream::Context, id: &str, job: &Value) {
    let stream = jetstream.get_stream(streams::JOB_LOGS).await.unwrap();
    let subject = format!("job.{id}.{}.log", job["node_id"].as_str().unwrap());
    let attempt = job["attempt"].as_u64().unwrap();
    let mut chunks: BTreeMap<u64, LogChunk> = BTreeMap::new();
    let mut from = 1;
    while let Ok(message) = stream.get_first_raw_message_by_subject(&subject, from).await {
        from = message.sequence + 1;
        let chunk = LogChunk::read(&message.headers, message.payload).unwrap();
        if u64::from(chunk.attempt) == attempt {
            chunks.insert(chunk.number, chunk);
        }
    }
    let numbers: Vec<u64> = chunks.keys().copied().collect();
    let expected: Vec<u64> = (1..=job["log"]["chunks"].as_u64().unwrap()).collect();
    assert_eq!(numbers, expected, "{job}");
    let lines: usize =
        chunks.values().map(|chunk| chunk.bytes.iter().filter(|byte| **byte == b'\n').count()).sum();
    assert_eq!(lines, 100, "{job}");
}
