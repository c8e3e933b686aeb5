//! Jobs from their creation to their end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use subjects::{
    Subject,
    job::{End, LogExtent, Record},
    streams,
};
use testkit::{GatewayProcess, eventually};

use super::support::{World, id_of};
use crate::administration::support::{manager, seen};

const CLASS: &str = "jobs.class.default_bwrap";

/// The whole way: queued, taken, started, logged, files stored, ended; the files are artifacts then.
#[tokio::test]
async fn job_runs_and_leaves_artifacts_and_a_log() {
    let world = World::new().await;
    let node = world.node("one").await;
    let job = world.run(json!({ "outputs": ["*.txt"] })).await;
    let queued = world.get(job).await;
    assert!(queued["waiting_because"].as_str().expect("why").contains("no node"), "{queued}");
    let message = node.queued(CLASS).await;
    assert_eq!(message.job_id, job);
    let claimed = node.claim(job, 1, 0).await.expect("claimed");
    let running = world.until(job, "running").await;
    assert_eq!(running["node_id"], "one");
    let started = node.record(job, Record::Started, claimed).await.expect("started");
    node.log(job, 1, b"building\n").await;
    let so_far = world.ok("sandbox.job.logs", json!({ "job_id": job })).await;
    assert_eq!((&so_far["content"], &so_far["is_complete"]), (&json!("building\n"), &json!(false)));
    node.log(job, 2, "done \u{20ac}\n".as_bytes()).await;
    let mut result = node.result(job, End::Exited { code: 0 });
    result.log = LogExtent { chunks: 2, bytes: 18 };
    result.files.push(node.store(&world.gateway, &message.lease, "report.txt", b"all is well").await);
    node.end(&result, started).await.expect("ended");
    let ended = world.until(job, "completed").await;
    assert_eq!((&ended["exit_code"], &ended["log_tail"]), (&json!(0), &json!("building\ndone \u{20ac}\n")));
    assert_eq!(ended["files"][0]["path"], "report.txt");
    let report = json!({ "task_id": world.task, "path": "report.txt" });
    assert_eq!(world.ok("artifact.get", report).await["content"], "all is well");
    let rest = json!({ "job_id": job, "after": so_far["next"], "limit": 6 });
    let rest = world.ok("sandbox.job.logs", rest).await;
    assert_eq!(
        (&rest["content"], &rest["has_more"]),
        (&json!("done "), &json!(true)),
        "not within a character"
    );
    let rest = world.ok("sandbox.job.logs", json!({ "job_id": job, "after": rest["next"] })).await;
    assert_eq!((&rest["content"], &rest["is_complete"]), (&json!("\u{20ac}\n"), &json!(true)));
    // The lease ended with the job.
    let again = node.call(&world.gateway, Some(&message.lease), "help.list", json!({})).await;
    assert!(again.is_err() || again.is_ok_and(|reply| reply.is_error));
}

/// A call waits for the end of its job, without holding the store, and not longer than it said.
#[tokio::test]
async fn call_waits_for_the_end_of_its_job() {
    let world = World::new().await;
    let node = world.node("one").await;
    let arguments = json!({ "task_id": world.task, "command": ["true"], "wait_seconds": 15 });
    let work = async {
        let message = node.queued(CLASS).await;
        // Other calls write meanwhile.
        world.ok("db.task.create", json!({ "title": "meanwhile", "user_id": "ada" })).await;
        let claimed = node.claim(message.job_id, 1, 0).await.expect("claimed");
        node.end(&node.result(message.job_id, End::Signalled { signal: 9 }), claimed).await.expect("ended");
    };
    let (ended, ()) = tokio::join!(world.ok("sandbox.run", arguments), work);
    assert_eq!((&ended["status"], &ended["end"]["signal"]), (&json!("failed"), &json!(9)));
    let began = Instant::now();
    let arguments = json!({ "task_id": world.task, "command": ["true"], "wait_seconds": 1 });
    let waiting = world.ok("sandbox.run", arguments).await;
    assert_eq!(waiting["status"], "queued");
    assert!((1..10).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
}

/// A call that is repeated under its key returns the same job, as it is then.
#[tokio::test]
async fn repeated_call_returns_the_same_job() {
    let world = World::new().await;
    let node = world.node("one").await;
    let call = async || {
        let Value::Object(arguments) = json!({ "task_id": world.task, "command": ["true"] }) else {
            panic!()
        };
        let call = mcp::Call {
            name: "sandbox.run",
            arguments,
            idempotency_key: Some("key-1"),
            traceparent: None,
            lease: None,
        };
        world.manager.call(call).await.expect("an answer").structured.expect("a job")
    };
    let first = call().await;
    let job = id_of(&first);
    let claimed = node.claim(job, 1, 0).await.expect("claimed");
    node.end(&node.result(job, End::Exited { code: 0 }), claimed).await.expect("ended");
    world.until(job, "completed").await;
    let second = call().await;
    assert_eq!((&second["job_id"], &second["status"]), (&first["job_id"], &json!("completed")));
    assert_eq!(world.ok("sandbox.job.list", json!({})).await["items"].as_array().map(Vec::len), Some(1));
}

/// What a node is too late with is refused by the chain, and changes nothing.
#[tokio::test]
async fn late_result_of_a_lost_node_is_refused() {
    let world = World::new().await;
    let (lost, other) = (world.node("lost").await, world.node("other").await);
    let job = world.run(json!({})).await;
    let claimed = lost.claim(job, 1, 0).await.expect("claimed");
    let started = lost.record(job, Record::Started, claimed).await.expect("started");
    let taken = other.claim(job, 2, started).await.expect("taken over");
    let mut result = other.result(job, End::Exited { code: 0 });
    result.attempt = 2;
    other.end(&result, taken).await.expect("ended");
    let late = lost.end(&lost.result(job, End::Exited { code: 1 }), started).await;
    assert!(late.is_err(), "{late:?}");
    let ended = world.until(job, "completed").await;
    assert_eq!((&ended["node_id"], &ended["attempt"]), (&json!("other"), &json!(2)));
    // Also if it writes past the chain's condition, as a broken node might.
    let subject = Subject::JobResult(job, lost.id.clone());
    let body = lost.result(job, End::Exited { code: 1 }).encode();
    broker::publish(&lost.client, &subject, async_nats::HeaderMap::new(), body.into(), None)
        .await
        .expect("stored");
    eventually("all of it was read", async || {
        let consumer: async_nats::jetstream::consumer::PullConsumer = lost
            .jetstream
            .get_consumer_from_stream(streams::JOB_RESULTS_CONSUMER, streams::JOB_RUNS)
            .await
            .ok()?;
        let info = consumer.cached_info();
        (info.num_pending == 0 && info.num_ack_pending == 0).then_some(())
    })
    .await;
    assert_eq!(world.get(job).await["exit_code"], 0);
}

/// A token of a node alone can do nothing; under the lease of a job only what its sandbox may.
#[tokio::test]
async fn node_acts_only_under_the_lease_of_a_job() {
    let world = World::new().await;
    let node = world.node("one").await;
    let job = world.run(json!({ "tools": ["artifact.put"] })).await;
    let lease = node.queued(CLASS).await.lease;
    let piece =
        json!({ "attempt": 1, "path": "a", "size": 0, "sha256": super::support::digest(b""), "content": "" });
    let try_call = async |lease: Option<&str>, tool: &str, arguments: Value| {
        let reply = node.call(&world.gateway, lease, tool, arguments).await;
        reply.is_ok_and(|reply| !reply.is_error)
    };
    for tool in ["sandbox.job.store", "help.list", "lease.renew", "node.list", "sandbox.run", "db.task.list"]
    {
        assert!(!try_call(None, tool, json!({})).await, "{tool} without a lease");
    }
    let put = |task: &str| json!({ "task_id": task, "path": "a.txt", "content": "x" });
    for (tool, arguments, expected) in [
        ("sandbox.job.store", piece.clone(), true),
        ("artifact.put", put(&world.task), true),
        ("artifact.put", put("other"), false),
        ("artifact.list", json!({ "task_id": world.task }), false),
        ("sandbox.run", json!({ "task_id": world.task, "command": ["true"] }), false),
        ("sandbox.job.get", json!({ "job_id": job }), false),
        ("db.task.get", json!({ "task_id": world.task }), false),
        ("lease.renew", json!({}), true),
    ] {
        assert_eq!(try_call(Some(&lease), tool, arguments).await, expected, "{tool}");
    }
    // The lease is of no use to another kind of agent.
    let stolen = world.gateway.call_under(&world.manager, Some(&lease), "sandbox.job.store", piece).await;
    assert!(stolen.is_err() || stolen.is_ok_and(|reply| reply.is_error));
}

/// Without NATS there is no way to a node, so no tool that needs one is offered.
#[tokio::test]
async fn without_nats_no_sandbox_is_offered() {
    let gateway = GatewayProcess::start().await;
    let tools = seen(&manager(&gateway).await).await;
    assert!(!tools.iter().any(|tool| tool.starts_with("sandbox.")), "{tools:?}");
    assert!(tools.contains(&"node.list".to_owned()) && tools.contains(&"db.job.create".to_owned()));
    let world = World::new().await;
    let tools = seen(&world.manager).await;
    for tool in
        ["sandbox.run", "sandbox.job.get", "sandbox.job.list", "sandbox.job.logs", "sandbox.job.cancel"]
    {
        assert!(tools.contains(&tool.to_owned()), "{tool}");
    }
    assert!(!tools.contains(&"sandbox.job.store".to_owned()), "only nodes store files");
}

/// A call that waits does not hold up a gateway that stops; it is answered.
#[tokio::test]
async fn gateway_stops_while_a_call_waits() {
    let mut world = World::with(&[("grace", "5s")]).await;
    let arguments = json!({ "task_id": world.task, "command": ["true"], "wait_seconds": 50 });
    let call = world.gateway.call(&world.manager, "sandbox.run", arguments);
    let began = Instant::now();
    let stop = async {
        eventually("the job is created", async || {
            let jobs = world.gateway.must("GET", "/api/v1/jobs", None).await;
            (!jobs.as_array()?.is_empty()).then_some(())
        })
        .await;
        world.gateway.process.signal(nix::sys::signal::Signal::SIGTERM);
    };
    let (answer, ()) = tokio::join!(call, stop);
    assert!(answer.is_ok_and(|reply| reply.structured.is_some_and(|job| job["status"] == "queued")));
    assert!(world.gateway.process.wait(Duration::from_secs(15)).success());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}
