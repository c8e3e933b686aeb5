//! Jobs and nodes in the console.

use serde_json::json;
use subjects::job::{End, LogExtent, Record};

use super::support::World;
use crate::console::support::Gateway;

const EVIL: &str = "<script>alert(1)</script>";

#[tokio::test]
async fn pages_show_why_a_job_waits_its_log_and_why_it_ended() {
    let world = World::new().await;
    let console = Gateway::of(&world.gateway);
    let admin = console.administrator().await;
    assert!(admin.get("/console/jobs").await.shows("No matching jobs."));
    assert!(admin.get("/console/nodes").await.shows("No node has reported"));
    let job = world.run(json!({ "command": ["echo", EVIL] })).await;
    let page = format!("/console/jobs/{job}");
    let waiting = admin.get(&page).await;
    assert!(waiting.shows("no node of the pool") && waiting.shows("Cancel this job"), "{}", waiting.body);
    assert!(waiting.shows("data-follow") && !waiting.shows(EVIL));
    let node = world.node("one").await;
    let claimed = node.claim(job, 1, 0).await.expect("claimed");
    let started = node.record(job, Record::Started, claimed).await.expect("started");
    node.log(job, 1, format!("first line\n{EVIL}\n").as_bytes()).await;
    world.until(job, "running").await;
    let running = admin.get(&page).await;
    assert!(running.shows("first line") && running.shows("Running") && !running.shows(EVIL));
    node.log(job, 2, b"last line\n").await;
    let mut result = node.result(job, End::EngineFailed { why: EVIL.to_owned() });
    result.log = LogExtent { chunks: 2, bytes: 47 };
    result.problems = vec![EVIL.to_owned()];
    node.end(&result, started).await.expect("ended");
    world.until(job, "failed").await;
    let ended = admin.get(&page).await;
    assert!(ended.shows("last line") && ended.shows("No process could be started"), "{}", ended.body);
    assert!(!ended.shows(EVIL) && !ended.shows("Cancel this job") && !ended.shows("data-follow"));
    let listed = admin.get("/console/jobs?status=failed").await;
    assert!(listed.shows(&page) && !listed.shows(EVIL));
    assert!(!admin.get("/console/jobs?status=queued").await.shows(&page));
    assert_eq!(admin.get("/console/jobs/none").await.status, 404);
}

#[tokio::test]
async fn buttons_cordon_drain_and_remove_nodes_and_cancel_jobs() {
    let world = World::new().await;
    let console = Gateway::of(&world.gateway);
    let admin = console.administrator().await;
    let node = world.node("one").await;
    let mut status = node.status("i-1");
    status.labels.insert("note".to_owned(), EVIL.to_owned());
    node.report(&status).await;
    let page = "/console/nodes/node?id=one";
    let shown = admin.get(page).await;
    assert!(shown.shows("Engine bwrap") && shown.shows("Offered") && !shown.shows(EVIL), "{}", shown.body);
    assert!(!shown.shows("Remove this node"), "it is present");
    for (form, expected) in [("cordon", "Cordoned"), ("drain", "Hands back its jobs"), ("uncordon", "Ready")]
    {
        let answer = admin.post(&format!("/console/nodes/{form}"), &[("id", "one")]).await;
        assert_eq!(answer.status, 303, "{form}");
        assert!(admin.get(page).await.shows(expected), "{form}");
    }
    let job = world.run(json!({})).await.to_string();
    assert_eq!(admin.post("/console/jobs/cancel", &[("id", &job)]).await.status, 303);
    world.until(job.parse().expect("an id"), "canceled").await;
    status.state = subjects::node::NodeState::Stopping;
    node.report(&status).await;
    assert!(admin.get(page).await.shows("Remove this node"));
    assert_eq!(admin.post("/console/nodes/remove", &[("id", "one")]).await.status, 303);
    assert_eq!(admin.get(page).await.status, 404);
}
