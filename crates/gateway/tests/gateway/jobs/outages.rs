//! Jobs while gateways and NATS come and go.

use serde_json::json;
use subjects::{
    JobId,
    job::{End, Job, Record},
    node::NodeStatus,
    streams,
};
use testkit::{GatewayProcess, Nats, Postgres, TestClock, eventually};

use super::support::{TestNode, World, id_of, ok};

/// A gateway that is killed between any two steps misses nothing.
#[tokio::test]
async fn nothing_is_missed_while_the_gateway_is_away() {
    let mut world = World::new().await;
    let node = world.node("one").await;
    let job = world.run(json!({ "outputs": ["*.txt"] })).await;
    let message = node.queued("jobs.class.default_bwrap").await;
    let claimed = node.claim(job, 1, 0).await.expect("claimed");
    let file = node.store(&world.gateway, &message.lease, "report.txt", b"kept").await;
    world.gateway.kill();
    let started = node.record(job, Record::Started, claimed).await.expect("started");
    let mut result = node.result(job, End::Exited { code: 0 });
    result.files.push(file);
    node.end(&result, started).await.expect("ended");
    world.gateway.start_again().await;
    world.until(job, "completed").await;
    let report = json!({ "task_id": world.task, "path": "report.txt" });
    assert_eq!(world.ok("artifact.get", report).await["version"], 1);
    world.gateway.start_again().await;
    assert_eq!(world.get(job).await["status"], "completed");
}

/// A job that is created while NATS is away is queued when it is back, once.
#[tokio::test]
async fn job_is_queued_once_when_nats_is_back() {
    let mut world = World::new().await;
    let first = world.run(json!({})).await;
    world.until(first, "queued").await;
    world.nats.kill();
    let job = world.run(json!({})).await;
    world.ok("sandbox.job.cancel", json!({ "job_id": job })).await;
    assert_eq!(world.get(job).await["status"], "queued");
    world.nats.start_again();
    let cancelled = eventually("the job is cancelled", async || {
        let found = world.get(job).await;
        (found["status"] == "canceled").then_some(found)
    })
    .await;
    assert_eq!(cancelled["end"]["how"], "cancelled");
    let node = world.node("one").await;
    let subject = "jobs.class.default_bwrap";
    // The first may have been on its way when NATS was killed: then it is sent again, beside the second.
    let queued = eventually("both jobs are queued", async || {
        let found = broker::read_batch(&node.jetstream, subjects::streams::JOBS, subject, 1, 10).await;
        found.ok().filter(|found| found.len() > 1)
    })
    .await;
    assert_eq!(queued.len(), 2, "each job once");
}

/// Messages that are lost with their stream: what waits for the database is queued again, and what is in its
/// queue is not.
#[tokio::test]
async fn lost_messages_of_jobs_are_sent_again() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let mut world = World::with_variables(&[], &[clock.variable()]).await;
    let node = world.node("one").await;
    node.report(&node.status("i-1")).await;
    let of_class = world.run(json!({})).await;
    let of_node = world.run(json!({ "node_id": "one" })).await;
    let class = "jobs.class.default_bwrap";
    let places = [(class, of_class), ("jobs.node.one", of_node)];
    for (queue, job) in places {
        assert_eq!(node.queued(queue).await.job_id, job);
    }
    clock.set("2026-11-18T10:06:00Z");
    world.gateway.start_again().await;
    let kept = world.run(json!({})).await;
    eventually("the third job is queued", async || (node.queued(class).await.job_id == kept).then_some(()))
        .await;
    assert!(!world.gateway.log().contains("Lost jobs sent again"), "{}", world.gateway.log());

    // The third one stays, as if only a part was lost.
    let stream = node.jetstream.get_stream(streams::JOBS).await.expect("the stream");
    for (queue, job) in places {
        let found = broker::read_batch(&node.jetstream, streams::JOBS, queue, 1, 10).await.expect("read");
        let lost = found.iter().find(|found| Job::decode(&found.payload).expect("a job").job_id == job);
        stream.delete_message(lost.expect("its message").sequence).await.expect("deleted");
    }
    clock.set("2026-11-18T10:12:00Z");
    world.gateway.start_again().await;
    for (queue, job) in places {
        let again = eventually("the job is queued again", async || {
            let queued = node.queued(queue).await;
            (queued.job_id == job).then_some(queued)
        })
        .await;
        assert!(!again.lease.is_empty());
    }
    let of_class_queue = broker::read_batch(&node.jetstream, streams::JOBS, class, 1, 10).await;
    assert_eq!(of_class_queue.expect("read").len(), 2, "the third job has its one message");
    // Both run as ever.
    for (_, job) in places {
        let claimed = node.claim(job, 1, 0).await.expect("claimed");
        node.end(&node.result(job, End::Exited { code: 0 }), claimed).await.expect("ended");
        world.until(job, "completed").await;
    }
}

/// A job that runs when its queue and its chain are lost has an end: no node could store its result. One
/// whose chain is there goes on.
#[tokio::test]
async fn job_that_the_streams_lost_while_it_ran_is_ended() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let mut world = World::with_variables(&[], &[clock.variable()]).await;
    let node = world.node("one").await;
    node.report(&node.status("i-1")).await;
    let (lost, kept) = (world.run(json!({})).await, world.run(json!({})).await);
    for job in [lost, kept] {
        let claimed = node.claim(job, 1, 0).await.expect("claimed");
        node.record(job, Record::Started, claimed).await.expect("started");
        world.until(job, "running").await;
    }
    node.jetstream.get_stream(streams::JOBS).await.expect("the queue").purge().await.expect("emptied");
    let runs = node.jetstream.get_stream(streams::JOB_RUNS).await.expect("the chains");
    runs.purge().filter(format!("job.{lost}.>")).await.expect("the chain is lost");
    clock.set("2026-11-18T10:06:00Z");
    world.gateway.start_again().await;
    let ended = world.until(lost, "failed").await;
    assert_eq!(ended["end"]["how"], "node_lost", "{ended}");
    assert!(ended["end"]["why"].as_str().is_some_and(|why| why.contains("the streams lost")), "{ended}");
    assert_eq!(world.ok("sandbox.job.get", json!({ "job_id": kept })).await["status"], "running");
}

/// No node is given a job again whose message is lost. If its node was removed, or runs others since it came
/// back, nobody ends it but the gateway. A job that its node still runs goes on.
#[tokio::test]
async fn started_job_that_the_queue_lost_ends_if_its_node_has_left_it() {
    let clock = TestClock::at("2026-11-18T10:00:00Z");
    let mut world = World::with_variables(&[], &[clock.variable()]).await;
    let (node, removed) = (world.node("one").await, world.node("two").await);
    for node in [&node, &removed] {
        node.report(&node.status("i-1")).await;
    }
    let (kept, left) = (world.run(json!({})).await, world.run(json!({})).await);
    let of_removed = world.run(json!({})).await;
    for (job, node) in [(kept, &node), (left, &node), (of_removed, &removed)] {
        let claimed = node.claim(job, 1, 0).await.expect("claimed");
        node.record(job, Record::Started, claimed).await.expect("started");
        world.until(job, "running").await;
    }
    node.jetstream.get_stream(streams::JOBS).await.expect("the queue").purge().await.expect("emptied");
    clock.set("2026-11-18T10:05:50Z");
    world.gateway.must("DELETE", "/api/v1/nodes/two", None).await;
    node.report(&NodeStatus { running: vec![kept], ..node.status("i-2") }).await;
    clock.set("2026-11-18T10:06:00Z");
    world.gateway.start_again().await;
    for job in [left, of_removed] {
        let ended = world.until(job, "failed").await;
        assert_eq!(ended["end"]["how"], "node_lost", "{ended}");
        assert!(ended["end"]["why"].as_str().is_some_and(|why| why.contains("no longer runs it")), "{ended}");
    }
    assert_eq!(world.get(kept).await["status"], "running");
}

/// Two gateways on one store apply each message once, whichever receives it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_share_the_work_and_one_is_killed() {
    const JOBS: usize = 12;
    let (nats, postgres) = (Nats::start(), Postgres::start());
    let (url, database) = (nats.url(), postgres.database());
    let settings = [("nats.url", &*url), ("store.url", &*database), ("store.max_connections", "6")];
    let mut first = GatewayProcess::start_with(&settings).await;
    let second = GatewayProcess::start_with(&settings).await;
    let agent = second.agent(&first.issue(json!({ "label": "pm", "agent": "project_manager" })).await.1);
    let task = ok(&second, &agent, "db.task.create", json!({ "title": "t", "user_id": "ada" })).await;
    let node = TestNode::new("one", &nats, &second).await;
    let mut jobs: Vec<JobId> = Vec::new();
    for number in 0..JOBS {
        let run = json!({ "task_id": task["task_id"], "command": ["true"] });
        let job = id_of(&ok(&second, &agent, "sandbox.run", run).await);
        let claimed = node.claim(job, 1, 0).await.expect("claimed");
        let started = node.record(job, Record::Started, claimed).await.expect("started");
        if number == JOBS / 2 {
            first.kill();
        }
        node.end(&node.result(job, End::Exited { code: 0 }), started).await.expect("ended");
        jobs.push(job);
    }
    first.start_again().await;
    for job in jobs {
        let ended = eventually("the job has ended", async || {
            let found = ok(&second, &agent, "sandbox.job.get", json!({ "job_id": job })).await;
            (found["status"] == "completed").then_some(found)
        })
        .await;
        assert_eq!(ended["node_id"], "one");
    }
}
