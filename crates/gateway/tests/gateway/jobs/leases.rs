//! The lease of a job: for how long it can be renewed, which tools the code in the sandbox has of it, and
//! whose idempotency keys are whose.

use serde_json::json;
use testkit::TestClock;

use super::support::{TestNode, World, digest, id_of};

const CLASS: &str = "jobs.class.default_bwrap";

async fn may(world: &World, node: &TestNode, lease: &str, tool: &str, more: serde_json::Value) -> bool {
    let reply = node.call(&world.gateway, Some(lease), tool, more).await;
    reply.is_ok_and(|reply| !reply.is_error)
}

/// A job may wait for six days and then run for its seconds. Its lease can be renewed for as long, and not
/// for longer.
#[tokio::test]
async fn lease_can_be_renewed_as_long_as_its_job_may_wait_and_run() {
    let clock = TestClock::at("2026-11-01T10:00:00Z");
    let world = World::with_variables(&[], &[clock.variable()]).await;
    let node = world.node("one").await;
    world.run(json!({ "limits": { "seconds": 3600 } })).await;
    let lease = node.queued(CLASS).await.lease;
    clock.set("2026-11-07T09:59:00Z");
    let renewed = node.call(&world.gateway, Some(&lease), "lease.renew", json!({})).await.expect("a reply");
    let renewed = renewed.structured.expect("a lease")["lease"].as_str().expect("a text").to_owned();
    let piece = json!({ "attempt": 1, "path": "a", "size": 0, "sha256": digest(b""), "content": "" });
    assert!(may(&world, &node, &renewed, "sandbox.job.store", piece).await);
    clock.set("2026-11-07T10:59:59Z");
    assert!(may(&world, &node, &renewed, "lease.renew", json!({})).await, "its seconds are not over");
    clock.set("2026-11-07T11:10:01Z");
    assert!(!may(&world, &node, &renewed, "lease.renew", json!({})).await, "no node runs the job any more");
}

/// The node fetches files with `artifact.get` and stores files; the code in the sandbox may not, unless the
/// caller gave it the tool and had it itself.
#[tokio::test]
async fn code_in_a_sandbox_has_no_tool_that_its_caller_did_not_name() {
    let world = World::new().await;
    let node = world.node("one").await;
    let file = json!({ "task_id": world.task, "path": "secret.txt", "content": "x" });
    world.ok("artifact.put", file).await;
    let limited = json!({
        "agent": "project_manager", "user_id": "ada", "task_id": world.task,
        "tools": ["sandbox.*", "artifact.put"],
    });
    let (_, of_manager) = world.gateway.lease(limited).await;
    let run = async |tools: serde_json::Value| {
        let arguments = json!({
            "task_id": world.task, "command": ["true"], "tools": tools, "artifacts": ["secret.txt"],
        });
        world.gateway.call_under(&world.manager, Some(&of_manager), "sandbox.run", arguments).await
    };
    let refused = run(json!(["artifact.get"])).await.expect("a reply");
    assert!(refused.is_error && refused.text.contains("goes beyond the caller's own lease"));
    let job = id_of(&run(json!(["artifact.put"])).await.expect("a reply").structured.expect("a job"));
    let message = node.queued(CLASS).await;
    assert_eq!(message.job_id, job);
    let read = json!({ "task_id": world.task, "path": "secret.txt" });
    let put = json!({ "task_id": world.task, "path": "out.txt", "content": "y" });
    let piece = json!({ "attempt": 1, "path": "a", "size": 0, "sha256": digest(b""), "content": "" });
    let bound = node.bind(&world.gateway, &message.lease).await;
    for (lease, tool, arguments, expected) in [
        (&message.lease, "artifact.get", &read, true),
        (&message.lease, "sandbox.job.store", &piece, true),
        (&bound, "artifact.put", &put, true),
        (&bound, "artifact.get", &read, false),
        (&bound, "sandbox.job.store", &piece, false),
    ] {
        assert_eq!(may(&world, &node, lease, tool, arguments.clone()).await, expected, "{tool}");
    }
    // A job without tools has a lease for its node alone.
    world.ok("sandbox.job.cancel", json!({ "job_id": job })).await;
    world.run(json!({ "pool": "other" })).await;
    let without = node.queued("jobs.class.other_bwrap").await.lease;
    let bound = node.bind(&world.gateway, &without).await;
    assert!(!may(&world, &node, &bound, "artifact.get", read.clone()).await);
    // Renewed, it has no more.
    let renewed = node.call(&world.gateway, Some(&bound), "lease.renew", json!({})).await.expect("a reply");
    let renewed = renewed.structured.expect("a lease")["lease"].as_str().expect("a text").to_owned();
    assert!(!may(&world, &node, &renewed, "artifact.get", read.clone()).await);
    world.run(json!({ "pool": "third", "tools": ["artifact.get"] })).await;
    let named = node.queued("jobs.class.third_bwrap").await.lease;
    let bound = node.bind(&world.gateway, &named).await;
    assert!(may(&world, &node, &bound, "artifact.get", read).await);
}

/// Programs choose simple keys: those of one job are not those of another, and a job that is run again has
/// its own.
#[tokio::test]
async fn keys_of_a_job_are_its_own_in_all_its_attempts() {
    let world = World::new().await;
    let node = world.node("one").await;
    let mut leases = Vec::new();
    for pool in ["first", "second"] {
        world.run(json!({ "pool": pool, "tools": ["artifact.put"], "repeat": "safe" })).await;
        leases.push(node.queued(&format!("jobs.class.{pool}_bwrap")).await.lease);
    }
    let put = |content: &str| json!({ "task_id": world.task, "path": "out.txt", "content": content });
    let first = node.call_with_key(&leases[0], "1", "artifact.put", put("of the first")).await;
    // The same call too: it is another job's, and has an effect of its own.
    let second = node.call_with_key(&leases[1], "1", "artifact.put", put("of the first")).await;
    assert_eq!((&first["changed"], &second["changed"]), (&json!(true), &json!(false)), "{second}");
    node.call_with_key(&leases[1], "2", "artifact.put", put("of the second")).await;
    // The next attempt binds the lease anew.
    let again = node.bind(&world.gateway, &leases[0]).await;
    let once = node.call_with_key(&again, "1", "artifact.put", put("of the first")).await;
    let other = node.bind(&world.gateway, &leases[0]).await;
    assert_eq!(node.call_with_key(&other, "1", "artifact.put", put("of the first")).await, once);
    assert_eq!(once, first, "the answer of the first attempt");
    let read = json!({ "task_id": world.task, "path": "out.txt" });
    assert_eq!(world.ok("artifact.get", read).await["content"], "of the second", "nothing was put again");
}

/// Whoever revokes the lease of a handoff ends the jobs that were begun under it. A manager that gives its
/// lease back has answered, and its jobs go on until an administrator revokes it too.
#[tokio::test]
async fn job_ends_when_the_lease_of_its_handoff_is_revoked() {
    let world = World::new().await;
    let begin = async |handoff: &str| {
        let wanted = json!({ "agent": "project_manager", "user_id": "ada", "handoff_id": handoff });
        let (id, lease) = world.gateway.lease(wanted).await;
        let run = json!({ "task_id": world.task, "command": ["true"] });
        let begun = world.gateway.call_under(&world.manager, Some(&lease), "sandbox.run", run).await;
        (id, lease, id_of(&begun.expect("a reply").structured.expect("a job")))
    };
    let ((id, _, job), (other_id, other_lease, other)) = (begin("h-1").await, begin("h-2").await);
    let back = world.gateway.call_under(&world.manager, Some(&other_lease), "lease.revoke", json!({})).await;
    assert!(!back.expect("a reply").is_error);
    world.gateway.must("DELETE", &format!("/api/v1/leases/{id}"), None).await;
    assert_eq!(world.until(job, "canceled").await["end"]["how"], "cancelled");
    assert_eq!(world.get(other).await["status"], "queued");
    world.gateway.must("DELETE", &format!("/api/v1/leases/{other_id}"), None).await;
    assert_eq!(world.until(other, "canceled").await["end"]["how"], "cancelled");
}
