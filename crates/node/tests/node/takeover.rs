//! Nodes that die, freeze or lose their connection: their jobs run elsewhere, and each has one result.

use std::time::Duration;

use serde_json::{Value, json};
use subjects::{
    job::{Entry, Record},
    streams::{self, Sizing},
};
use testkit::{Link, NodeBuilder, NodeProcess, eventually_within};

use crate::{
    host::{is_running, wait_until_clean},
    stage::Stage,
};

/// A node that reaches NATS and the gateway only over paths that can be cut.
struct Remote {
    builder: NodeBuilder,
    node: NodeProcess,
    paths: [Link; 2],
}

impl Remote {
    async fn start(stage: &Stage, id: &str, ack_wait: &str) -> Self {
        let address_of = |url: &str| {
            let rest = url.split_once("://").unwrap().1;
            rest.split('/').next().unwrap().to_owned()
        };
        let nats = Link::to(&address_of(&stage.nats.url())).await;
        let gateway = Link::to(&address_of(&stage.gateway.url())).await;
        let builder = stage.node(id).await.set("node.ack_wait", ack_wait);
        let builder = builder.at_nats(&format!("nats://{}", nats.address()));
        let builder = builder.at_gateway(&format!("http://{}/mcp", gateway.address()));
        let node = builder.start().await;
        Self { builder, node, paths: [nats, gateway] }
    }

    fn cut(&self) {
        self.paths.iter().for_each(Link::cut);
    }

    fn mend(&self) {
        self.paths.iter().for_each(Link::mend);
    }
}

/// Returns the artifacts of the task: path and digest.
async fn artifacts(stage: &Stage) -> Vec<(Value, Value)> {
    let listed = stage.call("artifact.list", json!({ "task_id": stage.task })).await;
    let items = listed["items"].as_array().unwrap().iter();
    items.map(|item| (item["path"].clone(), item["sha256"].clone())).collect()
}

/// An operator who creates a lost stream again does not know the consumers of nodes: nodes create these.
#[tokio::test]
async fn node_takes_jobs_again_after_its_queue_was_lost() {
    let stage = Stage::start().await;
    let _node = stage.node("n1").await.start().await;
    let before = stage.script("true", json!({})).await;
    stage.ended(&before).await;
    let sizing =
        Sizing { replicas: 1, ack_wait: Duration::from_secs(30), dedupe_window: Duration::from_secs(120) };
    let [jobs, ..] = streams::of_jobs(sizing);
    stage.nats.lose_stream(jobs).await;
    let after = stage.script("echo here", json!({})).await;
    let job = stage.ended(&after).await;
    assert_eq!(job["exit_code"], 0, "{job}");
}

#[tokio::test]
async fn job_of_a_killed_node_is_run_by_another() {
    let stage = Stage::start().await;
    let builders = [stage.node("n1").await, stage.node("n2").await];
    let mut nodes = [builders[0].start().await, builders[1].start().await];
    let id = stage.script("echo started; sleep 2; echo done", json!({})).await;
    stage.wait_for_log(&id, "started").await;
    let first = stage.running_on(&id).await;
    let dead = nodes.iter().position(|node| node.id == first).unwrap();
    nodes[dead].process.kill();
    let job = stage.ended(&id).await;
    assert_eq!((&job["exit_code"], &job["attempt"]), (&json!(0), &json!(2)), "{job}");
    assert_ne!(job["node_id"], first.as_str());
    assert_eq!(stage.results(&id).await, 1);
    // What the dead node left is removed when it starts again.
    let _again = builders[dead].start().await;
    for builder in &builders {
        wait_until_clean(&builder.data(), std::slice::from_ref(&id)).await;
    }
}

/// Without what the first node recorded, the third attempt would have the number of the second.
#[tokio::test]
async fn journal_that_the_stream_lost_is_written_again_with_the_attempts_before() {
    let stage = Stage::start().await;
    let mut first = stage.node("n1").await.start().await;
    let id = stage.script("echo started; sleep 4", json!({})).await;
    stage.wait_for_log(&id, "started").await;
    first.process.kill();
    let _second = stage.node("n2").await.start().await;
    eventually_within(Duration::from_secs(60), "the second attempt to run", || async {
        is_running(&id, 2).then_some(())
    })
    .await;
    let jetstream = async_nats::jetstream::new(stage.nats.client().await);
    let runs = jetstream.get_stream(streams::JOB_RUNS).await.unwrap();
    runs.purge().filter(format!("job.{id}.>")).await.unwrap();
    let job = stage.ended(&id).await;
    assert_eq!((&job["exit_code"], &job["attempt"]), (&json!(0), &json!(2)), "{job}");
    let journal = format!("job.{id}.*.journal");
    let found = broker::read_batch(&jetstream, streams::JOB_RUNS, &journal, 1, 100).await.unwrap();
    let claims = found.iter().filter_map(|message| match Entry::decode(&message.payload).unwrap().record {
        Record::Claimed(claimed) => Some((claimed.node.to_string(), claimed.attempt)),
        _ => None,
    });
    let claims: Vec<_> = claims.collect();
    assert_eq!(claims, [("n1".to_owned(), 1), ("n2".to_owned(), 2)]);
}

#[tokio::test]
async fn job_that_must_not_run_twice_ends_as_lost() {
    let stage = Stage::start().await;
    let mut first = stage.node("n1").await.start().await;
    let id = stage.script("echo started; sleep 300", json!({ "repeat": "never" })).await;
    stage.wait_for_log(&id, "started").await;
    first.process.kill();
    let _second = stage.node("n2").await.start().await;
    let job = stage.ended(&id).await;
    assert_eq!(job["end"]["how"], "node_lost", "{job}");
    assert!(job["end"]["why"].as_str().unwrap().contains("n1"), "{job}");
    assert_eq!(stage.log(&id).await.matches("started").count(), 1);
    assert_eq!(stage.results(&id).await, 1);
}

/// A node that was frozen while another took its job over finds out when it is thawed.
#[tokio::test]
async fn late_result_of_a_frozen_node_is_refused() {
    let stage = Stage::start().await;
    let builders = [stage.node("n1").await, stage.node("n2").await];
    let nodes = [builders[0].start().await, builders[1].start().await];
    let id =
        stage.script("echo started; sleep 1; hostname > who.txt", json!({ "outputs": ["who.txt"] })).await;
    stage.wait_for_log(&id, "started").await;
    let first = stage.running_on(&id).await;
    let frozen = nodes.iter().find(|node| node.id == first).unwrap();
    frozen.process.freeze();
    let job = stage.ended(&id).await;
    assert_ne!(job["node_id"], first.as_str(), "{job}");
    frozen.process.thaw();
    eventually_within(Duration::from_secs(30), "the thawed node to notice", || async {
        frozen.log().contains("Job fenced").then_some(())
    })
    .await;
    assert_eq!(stage.results(&id).await, 1);
    assert_eq!(stage.job(&id).await, job, "nothing has changed");
    for builder in &builders {
        wait_until_clean(&builder.data(), std::slice::from_ref(&id)).await;
    }
}

/// The node is cut off, not frozen: it and its jobs go on. Another node takes them over meanwhile. What the
/// first has to say when it is back is refused, and what it still runs is ended.
#[tokio::test]
async fn late_result_of_a_node_that_was_cut_off_is_refused() {
    let stage = Stage::start().await;
    let remote = Remote::start(&stage, "n1", "2s").await;
    // Each attempt leaves something else.
    let script = "echo started; sleep 3; head -c 16 /dev/urandom | base64 > out.txt; cat out.txt";
    let id = stage.script(script, json!({ "outputs": ["out.txt"] })).await;
    let once = stage.script("echo started; sleep 300", json!({ "repeat": "never" })).await;
    for id in [&id, &once] {
        stage.wait_for_log(id, "started").await;
    }
    remote.cut();
    let builder = stage.node("n2").await;
    let other = builder.start().await;
    let (job, lost) = (stage.ended(&id).await, stage.ended(&once).await);
    assert_eq!((&job["exit_code"], &job["node_id"]), (&json!(0), &json!("n2")), "{job}");
    assert!(job["attempt"].as_u64().unwrap() > 1, "{job}");
    assert_eq!(lost["end"]["how"], "node_lost", "{lost}");
    assert!(is_running(&once, 1), "a job that must not run twice goes on, and no other node runs it");
    let kept = artifacts(&stage).await;
    assert_eq!(kept, [(json!("out.txt"), job["files"][0]["sha256"].clone())]);
    assert!(!remote.node.log().contains("Job fenced"), "it cannot know yet:\n{}", remote.node.log());

    remote.mend();
    eventually_within(Duration::from_secs(60), "both jobs to be lost to the first node", || async {
        (remote.node.log().matches("Job fenced").count() == 2).then_some(())
    })
    .await;
    wait_until_clean(&remote.builder.data(), &[id.clone(), once.clone()]).await;
    wait_until_clean(&builder.data(), &[id.clone(), once.clone()]).await;
    for (id, before) in [(&id, &job), (&once, &lost)] {
        assert_eq!(stage.results(id).await, 1);
        assert_eq!(&stage.job(id).await, before, "nothing has changed");
    }
    assert_eq!(artifacts(&stage).await, kept);
    // It takes jobs again.
    drop(other);
    let next = stage.script("echo back", json!({})).await;
    assert_eq!(stage.ended(&next).await["node_id"], "n1");
}

/// A job that reaches out and may be repeated would have its effects twice at the same time.
#[tokio::test]
async fn node_that_is_cut_off_stops_a_job_before_another_may_start_it() {
    let stage = Stage::start().await;
    let remote = Remote::start(&stage, "n1", "4s").await;
    let reaches_out = json!({ "tools": ["artifact.get"], "repeat": "safe" });
    let id = stage.script("echo started; sleep 6; echo done", reaches_out).await;
    stage.wait_for_log(&id, "started").await;
    let builder = stage.node("n2").await;
    let _other = builder.start().await;
    assert!(is_running(&id, 1));
    remote.cut();
    eventually_within(Duration::from_secs(60), "the second attempt to run", || async {
        let (first, second) = (is_running(&id, 1), is_running(&id, 2));
        assert!(!(first && second), "both attempts run");
        second.then_some(())
    })
    .await;
    assert!(remote.node.log().contains("Job stopped: NATS does not answer"), "{}", remote.node.log());
    let job = stage.ended(&id).await;
    assert_eq!((&job["exit_code"], &job["node_id"]), (&json!(0), &json!("n2")), "{job}");
    remote.mend();
    remote.node.wait_for_log("Job fenced").await;
    wait_until_clean(&remote.builder.data(), std::slice::from_ref(&id)).await;
    assert_eq!(stage.results(&id).await, 1);
    assert_eq!(stage.job(&id).await, job, "nothing has changed");
}

/// A short interruption is not noticed: heartbeats that were lost are sent again in time.
#[tokio::test]
async fn node_that_is_cut_off_for_a_moment_keeps_its_jobs() {
    let stage = Stage::start().await;
    let remote = Remote::start(&stage, "n1", "6s").await;
    let reaches_out = json!({ "tools": ["artifact.get"], "repeat": "safe" });
    let id = stage.script("echo started; sleep 7; echo done", reaches_out).await;
    stage.wait_for_log(&id, "started").await;
    let _other = stage.node("n2").await.start().await;
    remote.cut();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    remote.mend();
    let job = stage.ended(&id).await;
    let ended = (&job["exit_code"], &job["node_id"], &job["attempt"]);
    assert_eq!(ended, (&json!(0), &json!("n1"), &json!(1)), "{job}");
}

#[tokio::test]
async fn job_waits_while_nats_restarts_and_ends_once() {
    let mut stage = Stage::start().await;
    let _node = stage.node("n1").await.start().await;
    let script = "for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.3; done; echo whole > out.txt";
    let id = stage.script(script, json!({ "outputs": ["out.txt"] })).await;
    stage.wait_for_log(&id, "line 1").await;
    stage.nats.kill();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    stage.nats.start_again();
    let job = stage.ended(&id).await;
    assert_eq!((&job["exit_code"], &job["attempt"]), (&json!(0), &json!(1)), "{job}");
    let expected: String = (1..=8).map(|line| format!("line {line}\n")).collect();
    assert_eq!(stage.log(&id).await, expected);
    assert_eq!(stage.artifact("out.txt").await, "whole\n");
    assert_eq!(stage.results(&id).await, 1);
}

#[tokio::test]
async fn files_are_stored_when_the_gateway_is_back() {
    let mut stage = Stage::start().await;
    let _node = stage.node("n1").await.start().await;
    let id = stage.script("sleep 1; echo whole > out.txt", json!({ "outputs": ["out.txt"] })).await;
    stage.running_on(&id).await;
    stage.gateway.kill();
    tokio::time::sleep(Duration::from_millis(2500)).await;
    stage.gateway.start_again().await;
    let job = stage.ended(&id).await;
    assert_eq!((&job["exit_code"], &job["attempt"]), (&json!(0), &json!(1)), "{job}");
    assert_eq!(stage.artifact("out.txt").await, "whole\n");
}

/// How the process ended is known, although its file is lost with the gateway.
#[tokio::test]
async fn job_that_must_not_run_twice_keeps_its_end_while_the_gateway_is_away() {
    let mut stage = Stage::start().await;
    let node = stage.node("n1").await.set("gateway.patience", "1s").start().await;
    let more = json!({ "outputs": ["out"], "repeat": "never" });
    let id = stage.script("sleep 1; echo x > out; exit 7", more).await;
    stage.running_on(&id).await;
    stage.gateway.kill();
    node.wait_for_log("Job ended.").await;
    stage.gateway.start_again().await;
    let job = stage.ended(&id).await;
    assert_eq!((&job["end"], &job["attempt"]), (&json!({ "how": "exited", "code": 7 }), &json!(1)), "{job}");
    assert!(job["problems"][0].as_str().unwrap().contains("1 files are not stored"), "{job}");
}

/// No other node could end it, so the request is repeated once the node counts as away.
#[tokio::test]
async fn job_of_a_lost_node_can_be_cancelled_without_it() {
    let stage = Stage::start().await;
    let mut node = stage.node("n1").await.start().await;
    let id = stage.script("echo started; sleep 300", json!({})).await;
    stage.wait_for_log(&id, "started").await;
    node.process.kill();
    let asked = stage.call("sandbox.job.cancel", json!({ "job_id": id })).await;
    assert_eq!(asked["status"], "running", "{asked}");
    eventually_within(Duration::from_secs(30), "the node to be away", || async {
        let shown = stage.call("node.get", json!({ "node_id": "n1" })).await;
        (shown["state"] == "away").then_some(())
    })
    .await;
    stage.call("sandbox.job.cancel", json!({ "job_id": id })).await;
    assert_eq!(stage.ended(&id).await["end"]["how"], "cancelled");
    assert_eq!(stage.results(&id).await, 1);
}

/// Makes a node unable to start sandboxes, and able again.
struct Breakage(std::path::PathBuf);

impl Breakage {
    fn of(builder: &NodeBuilder) -> Self {
        let jobs = builder.data().join("jobs");
        std::fs::remove_dir_all(&jobs).unwrap();
        std::fs::write(&jobs, "not a folder").unwrap();
        Self(jobs)
    }

    fn mend(self) {
        std::fs::remove_file(&self.0).unwrap();
        std::fs::create_dir(&self.0).unwrap();
    }
}

/// The healthy node is busy, so the broken one is offered the job again and again.
#[tokio::test]
async fn broken_node_leaves_a_job_that_it_could_not_run_to_the_others() {
    let stage = Stage::start().await;
    let _healthy = stage.node("healthy").await.set("node.slots", "1").start().await;
    let long = stage.script("echo started; sleep 8", json!({})).await;
    stage.wait_for_log(&long, "started").await;
    // It knows of the other one before it takes its first job.
    let builder = stage.node("broken").await;
    let broken = builder.start().await;
    let _breakage = Breakage::of(&builder);
    let id = stage.script("true", json!({})).await;
    broken.wait_for_log("Job not run; handing it back.").await;
    let job = stage.ended(&id).await;
    let ended = (&job["exit_code"], &job["node_id"], &job["attempt"]);
    assert_eq!(ended, (&json!(0), &json!("healthy"), &json!(2)), "{job}");
    assert_eq!(broken.log().matches("Job not run").count(), 1, "{}", broken.log());
}

#[tokio::test]
async fn broken_node_that_is_the_only_one_tries_again_until_the_attempts_are_used_up() {
    let stage = Stage::start().await;
    let builder = stage.node("n1").await;
    let node = builder.start().await;
    let breakage = Breakage::of(&builder);
    let failing = stage.script("true", json!({})).await;
    let job = stage.ended(&failing).await;
    assert_eq!(job["end"]["how"], "engine_failed", "{job}");
    assert!(job["end"]["why"].as_str().unwrap().contains("cannot start the sandbox"), "{job}");
    assert_eq!(node.log().matches("Job not run").count(), 3, "{}", node.log());
    let mended = stage.script("true", json!({})).await;
    eventually_within(Duration::from_secs(60), "the node to try it", || async {
        (node.log().matches("Job not run").count() > 3).then_some(())
    })
    .await;
    breakage.mend();
    let job = stage.ended(&mended).await;
    assert_eq!(job["exit_code"], 0, "{job} {}", node.log());
}
