//! Jobs in sandboxes: what is taken, what is refused, and what becomes of them.

mod arguments;
mod chain;
mod files;

use std::collections::BTreeMap;

use futures_util::future::join_all;
use policy::{Agent, AgentKind, Caller, Lease, LeaseStanding, MemoryProfile};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use serde_json::{Value, json};
use store::entity::{job, outbox};
use subjects::{
    job::{Job, Repeat},
    node::NodeStatus,
};

use crate::{
    nodes::{present, report, silence},
    stage::{Stage, each, on_both},
};

on_both![
    job_is_stored_with_its_message_and_a_lease,
    job_says_why_it_waits,
    cancel_sends_its_request_before_the_result,
    jobs_of_other_users_are_not_found,
    jobs_of_sandboxes_are_not_changed_by_hand,
    nodes_with_the_same_labels_are_chosen_in_turn,
];

pub(crate) async fn task(stage: &Stage) -> String {
    let task = stage.ok("db.task.create", json!({ "title": "one", "user_id": "ada" })).await;
    task["task_id"].as_str().unwrap().to_owned()
}

/// Creates a job of a new task and returns it.
async fn job(stage: &Stage) -> Value {
    let task = task(stage).await;
    stage.ok("sandbox.run", json!({ "task_id": task, "command": ["true"], "outputs": ["*.txt"] })).await
}

fn id_of(job: &Value) -> &str {
    job["job_id"].as_str().unwrap()
}

/// The messages of a job that wait to be published, in order.
async fn messages(stage: &Stage, job: &str) -> Vec<outbox::Model> {
    let query = outbox::Entity::find().filter(outbox::Column::Ordering.eq(job));
    query.order_by_asc(outbox::Column::Id).all(stage.store.read()).await.unwrap()
}

/// A caller under a lease of a user.
fn under_lease(agent: Agent, user: &str, task: Option<&str>, job: Option<&str>) -> Caller {
    let kind = agent.acts_as();
    let tools = (kind == AgentKind::ProjectManager).then_some(["sandbox.*", "web.fetch"]);
    let lease = json!({
        "lease_id": "l-1", "agent": kind, "user_id": user, "task_id": task, "job_id": job, "tools": tools,
        "not_before": 0, "expires_at": i64::MAX, "key": "",
    });
    let lease: Lease = serde_json::from_value(lease).unwrap();
    let (token, profile) = ("tok-1".to_owned(), MemoryProfile::default());
    Caller { token, agent, lease: LeaseStanding::Valid(lease), profile }
}

/// A manager under a signed lease.
pub(crate) fn manager_under(lease: &str) -> Caller {
    let lease = LeaseStanding::Valid(Lease::read(lease).unwrap());
    let (token, profile) = ("tok-1".to_owned(), MemoryProfile::default());
    Caller { token, agent: Agent::Manager, lease, profile }
}

/// Begins a job of a new task as a manager under a lease, and returns its id.
pub(crate) async fn job_under(stage: &Stage, lease: &str) -> String {
    let caller = manager_under(lease);
    let task = json!({ "title": "one", "user_id": caller.user() });
    let task = stage.ok("db.task.create", task).await;
    let run = json!({ "task_id": task["task_id"], "command": ["true"] });
    let created = stage.call(&caller, "sandbox.run", run).await.unwrap();
    id_of(&created).to_owned()
}

/// Returns whether a job was asked to end.
pub(crate) async fn is_to_end(stage: &Stage, job: &str) -> bool {
    let found = stage.ok("sandbox.job.get", json!({ "job_id": job })).await;
    found["cancel_requested_at"].is_string()
}

async fn job_is_stored_with_its_message_and_a_lease(stage: Stage) {
    let task = task(&stage).await;
    let put = json!({ "task_id": task, "path": "data.csv", "content": "a,b\n" });
    let artifact = stage.ok("artifact.put", put).await;
    let run = json!({
        "task_id": task, "script": "cat data.csv > out.txt\n", "env": { "LANG": "C" },
        "files": [
            { "path": "data.csv", "artifact_path": "data.csv" },
            { "path": "bin/run", "text": "#!/bin/sh\n", "executable": true },
        ],
        "limits": { "cpu": 0.5, "seconds": 30 }, "outputs": ["*.txt"], "tools": ["artifact.put"],
    });
    let created = stage.ok("sandbox.run", run).await;
    assert_eq!((&created["status"], &created["queue"]), (&json!("queued"), &json!("pool default")));
    let sent = messages(&stage, id_of(&created)).await;
    assert_eq!((sent.len(), &*sent[0].subject), (1, "jobs.class.default_bwrap"));
    assert_eq!((&*sent[0].stream, &*sent[0].message_id), ("CYNODE_JOBS", id_of(&created)));
    let message = Job::decode(sent[0].body.as_bytes()).unwrap();
    assert_eq!(message.spec.command, ["/bin/sh", "-c", "cat data.csv > out.txt\n"]);
    assert_eq!((message.spec.limits.cpu_milli, message.spec.limits.seconds), (500, 30));
    assert_eq!(message.spec.repeat, Repeat::Never, "a job that calls tools may have an effect");
    let content = serde_json::to_value(&message.spec.files[0].content).unwrap();
    assert_eq!(content["artifact_id"], artifact["artifact_id"]);
    assert_eq!(content["sha256"], artifact["sha256"]);
    let lease = Lease::read(&message.lease).unwrap();
    assert_eq!((lease.agent, &*lease.user_id), (AgentKind::Sandbox, "ada"));
    assert_eq!((lease.task_id.as_deref(), lease.job_id.as_deref()), (Some(&*task), Some(id_of(&created))));
    assert_eq!(lease.tools.unwrap(), ["sandbox.job.store", "artifact.get", "artifact.put"]);
    let listed = stage.ok("sandbox.job.list", json!({ "task_id": task, "status": "queued" })).await;
    assert_eq!(each(&listed, "items", "job_id"), [id_of(&created)]);
}

async fn job_says_why_it_waits(stage: Stage) {
    let created = job(&stage).await;
    let why = async || {
        let job = stage.ok("sandbox.job.get", json!({ "job_id": created["job_id"] })).await;
        job.get("waiting_because").map(|why| why.as_str().unwrap().to_owned())
    };
    let none = created["waiting_because"].as_str().unwrap();
    assert!(none.contains("no node") && none.contains("is present; the job waits"), "{none}");
    present(&stage, &report("one", &[])).await;
    assert_eq!(why().await, None);
    let mut busy = report("one", &[]);
    busy.running = vec![subjects::JobId::now(), subjects::JobId::now()];
    present(&stage, &busy).await;
    assert!(why().await.unwrap().contains("slots"));
    silence(&stage, "one").await;
    assert!(why().await.unwrap().contains("no node"));
}

async fn cancel_sends_its_request_before_the_result(stage: Stage) {
    let created = job(&stage).await;
    let cancel = json!({ "job_id": created["job_id"] });
    let canceled = stage.ok("sandbox.job.cancel", cancel.clone()).await;
    assert_eq!(canceled["status"], "queued", "it ends when its result is in the chain");
    assert!(canceled["cancel_requested_at"].is_string());
    stage.ok("sandbox.job.cancel", cancel).await;
    let sent = messages(&stage, id_of(&created)).await;
    let subjects: Vec<String> =
        sent.iter().map(|message| message.subject.replace(id_of(&created), "<job>")).collect();
    let pair = ["jobs.cancel.<job>", "job.<job>.gateway.result"];
    assert_eq!(subjects[..3], ["jobs.class.default_bwrap", pair[0], pair[1]]);
    assert_eq!(subjects[3..], pair, "asked again, it is sent again: the stream keeps one");
    assert_eq!(sent[1].message_id, sent[3].message_id);
    assert_eq!((sent[1].only_if.as_deref(), sent[2].only_if.as_deref()), (None, Some("unclaimed")));
    assert_eq!(sent[2].stream, "CYNODE_JOB_RUNS");
}

async fn jobs_of_other_users_are_not_found(stage: Stage) {
    let created = job(&stage).await;
    let (eve, ada) =
        (under_lease(Agent::Manager, "eve", None, None), under_lease(Agent::Manager, "ada", None, None));
    for tool in ["sandbox.job.get", "sandbox.job.cancel", "sandbox.job.logs"] {
        let named = json!({ "job_id": created["job_id"] });
        assert_eq!(stage.fails_for(&eve, tool, named).await.0, "not_found", "{tool}");
    }
    assert_eq!(stage.call(&eve, "sandbox.job.list", json!({})).await.unwrap()["items"], json!([]));
    let own = stage.call(&ada, "sandbox.job.list", json!({})).await.unwrap();
    assert_eq!(each(&own, "items", "job_id"), [id_of(&created)]);
    let running = vec![id_of(&created).parse().unwrap()];
    present(&stage, &NodeStatus { running, ..report("one", &[]) }).await;
    for (caller, expected) in [(&eve, json!([])), (&ada, json!([created["job_id"]]))] {
        let listed = stage.call(caller, "node.list", json!({})).await.unwrap()["items"][0].clone();
        let got = stage.call(caller, "node.get", json!({ "node_id": "one" })).await.unwrap();
        for node in [listed, got] {
            assert_eq!((&node["running"], &node["busy"]), (&expected, &json!(1)));
        }
    }
    let run = json!({ "task_id": created["task_id"], "command": ["true"] });
    assert_eq!(stage.fails_for(&eve, "sandbox.run", run).await.0, "not_found");
    let elsewhere = json!({ "job_id": created["job_id"], "task_id": "t-2" });
    assert_eq!(stage.fails("sandbox.job.get", elsewhere).await.0, "not_found");
}

async fn jobs_of_sandboxes_are_not_changed_by_hand(stage: Stage) {
    let created = job(&stage).await;
    let change = json!({ "job_id": created["job_id"], "status": "completed" });
    let (code, why) = stage.fails("db.job.update_status", change).await;
    assert_eq!(code, "conflict");
    assert!(why.contains("sandbox.job.cancel"), "{why}");
    stage.ok("db.job.get", json!({ "job_id": created["job_id"] })).await;
    let by_hand = json!({ "task_id": created["task_id"], "kind": "sandbox" });
    let (code, why) = stage.fails("db.job.create", by_hand).await;
    assert!(code == "invalid_arguments" && why.contains("sandbox.run"), "{why}");
    let build = json!({ "task_id": created["task_id"], "kind": "build" });
    let other = stage.ok("db.job.create", build).await;
    assert_eq!(stage.fails("sandbox.job.get", json!({ "job_id": other["job_id"] })).await.0, "not_found");
}

/// G10: fair and safe under concurrency.
async fn nodes_with_the_same_labels_are_chosen_in_turn(stage: Stage) {
    const JOBS: usize = 50;
    for id in ["one", "two", "three"] {
        present(&stage, &report(id, &[("gpu", "yes")])).await;
    }
    present(&stage, &report("other", &[("gpu", "no")])).await;
    let mut unsafe_node = report("without-engine", &[("gpu", "yes")]);
    unsafe_node.engines[0].offered = false;
    present(&stage, &unsafe_node).await;
    let task = task(&stage).await;
    let run = json!({ "task_id": task, "command": ["true"], "labels": { "gpu": "yes" } });
    join_all((0..JOBS).map(|_| stage.ok("sandbox.run", run.clone()))).await;
    let mut chosen: BTreeMap<String, usize> = BTreeMap::new();
    for row in job::Entity::find().all(stage.store.read()).await.unwrap() {
        *chosen.entry(row.queue.unwrap()).or_default() += 1;
    }
    let counts: Vec<usize> = chosen.values().copied().collect();
    assert_eq!(chosen.len(), 3, "{chosen:?}");
    assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{chosen:?}");
}
