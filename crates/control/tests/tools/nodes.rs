//! Nodes: what they report, what they are told, and what becomes of their jobs.

use control::NodeBook;
use sea_orm::{ColumnTrait, DatabaseExecutor, EntityTrait, QueryFilter, QueryOrder};
use serde_json::json;
use store::{
    clock,
    entity::{job, node, outbox},
};
use subjects::{
    JobId, Timestamp,
    job::Engine,
    node::{EngineStatus, EscapeAttempt, NodeOrders, NodeState, NodeStatus},
};

use crate::stage::{Stage, each, on_both};

on_both![
    nodes_report_themselves_and_are_listed,
    silent_node_is_away,
    of_two_processes_with_one_id_the_later_is_the_node,
    cordoned_and_draining_nodes_are_told_so,
    removed_node_leaves_its_jobs_to_others,
    removed_node_ends_jobs_whose_lease_was_revoked,
    present_node_is_not_removed,
    node_is_told_how_many_others_take_jobs,
];

pub(crate) fn report(id: &str, labels: &[(&str, &str)]) -> NodeStatus {
    NodeStatus {
        node: id.parse().unwrap(),
        instance: format!("{id}-1").parse().unwrap(),
        version: "0.1.0".to_owned(),
        pool: "default".parse().unwrap(),
        labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        state: NodeState::Ready,
        reasons: Vec::new(),
        engines: vec![EngineStatus {
            engine: Engine::Bwrap,
            offered: true,
            notes: Vec::new(),
            attempts: vec![EscapeAttempt {
                name: "ptrace".to_owned(),
                held: true,
                untried: false,
                detail: None,
            }],
        }],
        images: Vec::new(),
        slots: 2,
        running: Vec::new(),
        started_at: "2026-01-01T00:00:00Z".parse().unwrap(),
    }
}

pub(crate) async fn present(stage: &Stage, status: &NodeStatus) -> NodeOrders {
    NodeBook::report(&stage.store, status).await.unwrap()
}

/// Makes a node away by setting back when it was last seen.
pub(crate) async fn silence(stage: &Stage, id: &str) {
    let change = node::ActiveModel {
        seen_at: sea_orm::ActiveValue::Set(clock::now() - 16_000_000),
        ..Default::default()
    };
    let update = node::Entity::update_many().set(change).filter(node::Column::Id.eq(id));
    update.exec(stage.store.read()).await.unwrap();
}

async fn nodes_report_themselves_and_are_listed(stage: Stage) {
    let orders = present(&stage, &report("two", &[("gpu", "yes")])).await;
    assert_eq!(orders, NodeOrders::default());
    present(&stage, &NodeStatus { pool: "big".parse().unwrap(), ..report("one", &[]) }).await;
    let listed = stage.ok("node.list", json!({})).await;
    assert_eq!(each(&listed, "items", "node_id"), ["one", "two"]);
    assert_eq!(each(&listed, "items", "state"), ["ready", "ready"]);
    assert!(listed["items"][0]["engines"][0].get("attempts").is_none(), "{listed}");
    let big = stage.ok("node.list", json!({ "pool": "big" })).await;
    assert_eq!(each(&big, "items", "node_id"), ["one"]);
    let got = stage.ok("node.get", json!({ "node_id": "two" })).await;
    assert_eq!((&got["labels"], &got["slots"]), (&json!({ "gpu": "yes" }), &json!(2)));
    assert_eq!(got["engines"][0]["attempts"][0]["name"], "ptrace");
    let not_ready =
        NodeStatus { state: NodeState::NotReady, reasons: vec!["no bwrap".into()], ..report("two", &[]) };
    present(&stage, &not_ready).await;
    let got = stage.ok("node.get", json!({ "node_id": "two" })).await;
    assert_eq!((&got["state"], &got["reasons"]), (&json!("not_ready"), &json!(["no bwrap"])));
    assert_eq!(stage.fails("node.get", json!({ "node_id": "none" })).await.0, "not_found");
}

async fn silent_node_is_away(stage: Stage) {
    present(&stage, &report("one", &[])).await;
    silence(&stage, "one").await;
    assert_eq!(stage.ok("node.get", json!({ "node_id": "one" })).await["state"], "away");
    let stored = node::Entity::find_by_id("one").one(stage.store.read()).await.unwrap().unwrap();
    assert_eq!(stored.status, "ready", "what is only computed is not stored");
    present(&stage, &report("one", &[])).await;
    assert_eq!(stage.ok("node.get", json!({ "node_id": "one" })).await["state"], "ready");
}

async fn of_two_processes_with_one_id_the_later_is_the_node(stage: Stage) {
    let first = report("one", &[]);
    let second = NodeStatus {
        instance: "one-2".parse().unwrap(),
        started_at: "2026-01-02T00:00:00Z".parse().unwrap(),
        version: "0.2.0".to_owned(),
        ..report("one", &[])
    };
    assert!(!present(&stage, &first).await.duplicate);
    assert!(!present(&stage, &second).await.duplicate, "a node that was started again is at work at once");
    assert!(present(&stage, &first).await.duplicate);
    let got = stage.ok("node.get", json!({ "node_id": "one" })).await;
    assert_eq!(got["version"], "0.2.0", "the report of the other is not stored");
    // Away: the other takes over, until the later one is back.
    silence(&stage, "one").await;
    assert!(!present(&stage, &first).await.duplicate);
    assert!(!present(&stage, &second).await.duplicate);
    assert!(present(&stage, &first).await.duplicate);
    // A process that stops gives way at once.
    present(&stage, &NodeStatus { state: NodeState::Stopping, ..second }).await;
    assert!(!present(&stage, &first).await.duplicate);
}

async fn set_cordoned(stage: &Stage, id: &str, is_cordoned: bool, drain_by: Option<i64>) {
    let write = stage.store.write().await.unwrap();
    let db = DatabaseExecutor::Transaction(&write);
    NodeBook::set_cordoned(&db, id, is_cordoned, drain_by, clock::now()).await.unwrap();
    write.commit().await.unwrap();
}

async fn cordoned_and_draining_nodes_are_told_so(stage: Stage) {
    present(&stage, &report("one", &[("gpu", "yes")])).await;
    set_cordoned(&stage, "one", true, None).await;
    let orders = present(&stage, &report("one", &[("gpu", "yes")])).await;
    assert_eq!(orders, NodeOrders { cordoned: true, ..NodeOrders::default() });
    assert_eq!(stage.ok("node.get", json!({ "node_id": "one" })).await["state"], "cordoned");
    let by: Timestamp = "2026-12-24T00:00:00Z".parse().unwrap();
    set_cordoned(&stage, "one", true, Some(clock::micros(by.at()))).await;
    let orders = present(&stage, &report("one", &[("gpu", "yes")])).await;
    assert_eq!((orders.cordoned, orders.drain_by), (true, Some(by)));
    let task = crate::sandbox::task(&stage).await;
    let run = json!({ "task_id": task, "command": ["true"], "labels": { "gpu": "yes" } });
    let (code, why) = stage.fails("sandbox.run", run.clone()).await;
    assert_eq!(code, "conflict");
    assert!(why.contains("gpu=yes"), "{why}");
    set_cordoned(&stage, "one", false, None).await;
    assert_eq!(present(&stage, &report("one", &[("gpu", "yes")])).await, NodeOrders::default());
    assert_eq!(stage.ok("sandbox.run", run).await["queue"], "node one");
}

async fn remove(stage: &Stage, id: &str) -> Result<contract::node::Removed, control::ToolError> {
    let write = stage.store.write().await.unwrap();
    let db = DatabaseExecutor::Transaction(&write);
    let removed = NodeBook::remove(&db, &stage.sandboxes, &stage.leases, id, clock::now()).await;
    if removed.is_ok() {
        write.commit().await.unwrap();
    }
    removed
}

async fn removed_node_leaves_its_jobs_to_others(stage: Stage) {
    present(&stage, &report("one", &[("gpu", "yes")])).await;
    let task = crate::sandbox::task(&stage).await;
    let labelled = json!({ "task_id": task, "command": ["true"], "labels": { "gpu": "yes" } });
    let first = stage.ok("sandbox.run", labelled.clone()).await;
    let named =
        stage.ok("sandbox.run", json!({ "task_id": task, "command": ["true"], "node_id": "one" })).await;
    assert_eq!((&first["queue"], &named["queue"]), (&json!("node one"), &json!("node one")));
    silence(&stage, "one").await;
    let waiting = stage.ok("sandbox.job.get", json!({ "job_id": named["job_id"] })).await;
    assert!(waiting["waiting_because"].as_str().unwrap().contains("one is away"), "{waiting}");
    present(&stage, &report("two", &[("gpu", "yes")])).await;
    let removed = remove(&stage, "one").await.unwrap();
    assert_eq!(json!(removed.moved), json!([first["job_id"]]));
    assert_eq!(json!(removed.lost), json!([named["job_id"]]));
    let moved = stage.ok("sandbox.job.get", json!({ "job_id": first["job_id"] })).await;
    assert_eq!(moved["queue"], "node two");
    let sent = outbox::Entity::find()
        .filter(outbox::Column::Ordering.eq(first["job_id"].as_str().unwrap()))
        .order_by_asc(outbox::Column::Id)
        .all(stage.store.read())
        .await
        .unwrap();
    let subjects: Vec<&str> = sent.iter().map(|message| &*message.subject).collect();
    assert_eq!(subjects, ["jobs.node.one", "jobs.node.two"]);
    assert_ne!(sent[0].message_id, sent[1].message_id);
    let ended = outbox::Entity::find()
        .filter(outbox::Column::OnlyIf.eq("unended"))
        .one(stage.store.read())
        .await
        .unwrap()
        .unwrap();
    assert!(ended.body.contains("node_lost") && ended.subject.ends_with("gateway.result"), "{ended:?}");
    let row = job::Entity::find_by_id(named["job_id"].as_str().unwrap()).one(stage.store.read()).await;
    assert_eq!(row.unwrap().unwrap().status, "queued", "the row follows the chain");
    // Without another node with the labels, the pool takes it.
    silence(&stage, "two").await;
    assert_eq!(remove(&stage, "two").await.unwrap().moved.len(), 1);
    let moved = stage.ok("sandbox.job.get", json!({ "job_id": first["job_id"] })).await;
    assert_eq!(moved["queue"], "pool default");
    assert_eq!(stage.fails("node.get", json!({ "node_id": "one" })).await.0, "not_found");
}

async fn present_node_is_not_removed(stage: Stage) {
    present(&stage, &report("one", &[])).await;
    let why = remove(&stage, "one").await.unwrap_err().to_string();
    assert!(why.contains("present") && why.contains("stop its program"), "{why}");
    assert!(remove(&stage, "none").await.is_err());
    let stopping = NodeStatus { state: NodeState::Stopping, ..report("one", &[]) };
    present(&stage, &NodeStatus { running: vec![JobId::now(), JobId::now()], ..stopping.clone() }).await;
    let why = remove(&stage, "one").await.unwrap_err().to_string();
    for part in ["still runs 2 jobs", "wait", "nodes drain one --within 0s"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    present(&stage, &stopping).await;
    remove(&stage, "one").await.unwrap();
}

/// Such a job can neither be moved nor be left in the queue of a node that is gone.
async fn removed_node_ends_jobs_whose_lease_was_revoked(stage: Stage) {
    present(&stage, &report("one", &[("gpu", "yes")])).await;
    let task = crate::sandbox::task(&stage).await;
    let run = json!({ "task_id": task, "command": ["true"], "labels": { "gpu": "yes" } });
    let job = stage.ok("sandbox.run", run).await["job_id"].as_str().unwrap().to_owned();
    let row = job::Entity::find_by_id(&job).one(stage.store.read()).await.unwrap().unwrap();
    let write = stage.store.write().await.unwrap();
    let db = DatabaseExecutor::Transaction(&write);
    stage.leases.revoke(&db, &row.lease_id.unwrap(), clock::now(), "ada").await.unwrap();
    write.commit().await.unwrap();
    silence(&stage, "one").await;
    present(&stage, &report("two", &[("gpu", "yes")])).await;
    let removed = remove(&stage, "one").await.unwrap();
    assert_eq!((removed.lost, removed.moved), (vec![job.clone()], Vec::new()));
    let sent = outbox::Entity::find()
        .filter(outbox::Column::Ordering.eq(&job))
        .filter(outbox::Column::OnlyIf.eq("unended"))
        .one(stage.store.read())
        .await
        .unwrap()
        .unwrap();
    assert!(sent.body.contains("node_lost") && sent.body.contains("lease was revoked"), "{sent:?}");
}

async fn node_is_told_how_many_others_take_jobs(stage: Stage) {
    let others = async |id: &str| present(&stage, &report(id, &[])).await.others;
    assert_eq!(others("one").await, 0);
    assert_eq!(others("two").await, 1, "also a node that is new");
    assert_eq!(others("one").await, 1);
    present(&stage, &NodeStatus { pool: "big".parse().unwrap(), ..report("three", &[]) }).await;
    assert_eq!(others("one").await, 1, "another pool has other jobs");
    set_cordoned(&stage, "two", true, None).await;
    assert_eq!(others("one").await, 0);
    set_cordoned(&stage, "two", false, None).await;
    present(&stage, &NodeStatus { state: NodeState::NotReady, ..report("two", &[]) }).await;
    assert_eq!(others("one").await, 0);
    assert_eq!(others("two").await, 1);
    assert_eq!(others("one").await, 1);
    silence(&stage, "two").await;
    assert_eq!(others("one").await, 0);
}
