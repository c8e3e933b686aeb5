//! Checkpoints, pending writes and events: what the saver of a runner stores (W3).

use data_encoding::BASE64;
use sea_orm::{ConnectionTrait, Database};
use serde_json::{Value, json};
use testkit::Postgres;

use super::support::{World, on_both};

on_both!(
    checkpoints_come_back_as_they_were_put,
    newest_is_what_was_stored_last_whatever_its_id,
    pending_writes_are_kept_or_replaced_and_ordered,
    state_and_events_are_for_the_next_runner_and_for_people,
    repeated_put_replaces_and_adds_no_events,
    history_is_pruned_at_the_end,
    outcome_that_quotes_a_nul_is_stored
);

fn put(task: &str, epoch: i64, id: &str) -> Value {
    json!({
        "task_id": task, "epoch": epoch, "checkpoint_id": id, "kind": "msgpack",
        "data": BASE64.encode(id.as_bytes()), "metadata": { "step": id.len(), "source": "loop" },
    })
}

fn writes(task: &str, epoch: i64, id: &str, by: (&str, &str), replace: bool, data: &[&str]) -> Value {
    let writes: Vec<Value> = data
        .iter()
        .enumerate()
        .map(|(idx, data)| {
            json!({ "idx": idx, "channel": "plan", "kind": "json", "data": BASE64.encode(data.as_bytes()) })
        })
        .collect();
    json!({
        "task_id": task, "epoch": epoch, "checkpoint_id": id, "task_path": by.0, "write_task_id": by.1,
        "replace": replace, "writes": writes,
    })
}

fn ids(list: &Value) -> Vec<&str> {
    let found = list["checkpoints"].as_array().expect("a list");
    found.iter().filter_map(|checkpoint| checkpoint["checkpoint_id"].as_str()).collect()
}

async fn checkpoints_come_back_as_they_were_put(world: World) {
    let (task, epoch) = world.taken("build").await;
    let get = async |more: Value| {
        let mut wanted = json!({ "task_id": task, "epoch": epoch });
        for (name, value) in more.as_object().expect("an object") {
            wanted[name] = value.clone();
        }
        world.runs("workflow.checkpoint.get", wanted).await
    };
    assert_eq!(get(json!({})).await, json!({}), "there is none yet");
    let mut parent = Value::Null;
    for id in ["a1", "a2", "a3"] {
        let mut checkpoint = put(&task, epoch, id);
        checkpoint["parent_id"] = parent;
        world.runs("workflow.checkpoint.put", checkpoint.clone()).await;
        // Put again, it is the same.
        world.runs("workflow.checkpoint.put", checkpoint).await;
        parent = json!(id);
    }
    let mut inner = put(&task, epoch, "b1");
    inner["namespace"] = json!("child:1");
    world.runs("workflow.checkpoint.put", inner).await;
    let newest = get(json!({})).await["checkpoint"].clone();
    assert_eq!((&newest["checkpoint_id"], &newest["parent_id"]), (&json!("a3"), &json!("a2")));
    assert_eq!((&newest["kind"], &newest["data"]), (&json!("msgpack"), &json!(BASE64.encode(b"a3"))));
    assert_eq!(newest["metadata"], json!({ "step": 2, "source": "loop" }));
    let named = get(json!({ "checkpoint_id": "a1" })).await["checkpoint"].clone();
    assert_eq!((&named["checkpoint_id"], named.get("parent_id")), (&json!("a1"), None));
    assert_eq!(get(json!({ "checkpoint_id": "b1" })).await, json!({}), "it is of another namespace");
    assert_eq!(get(json!({ "namespace": "child:1" })).await["checkpoint"]["checkpoint_id"], "b1");

    let list = async |more: Value| {
        let mut wanted = json!({ "task_id": task, "epoch": epoch });
        for (name, value) in more.as_object().expect("an object") {
            wanted[name] = value.clone();
        }
        world.runs("workflow.checkpoint.list", wanted).await
    };
    assert_eq!(ids(&list(json!({ "namespace": "" })).await), ["a3", "a2", "a1"]);
    assert_eq!(ids(&list(json!({})).await), ["b1", "a3", "a2", "a1"]);
    assert_eq!(ids(&list(json!({ "namespace": "", "before": "a3" })).await), ["a2", "a1"]);
    let first = list(json!({ "namespace": "", "limit": 1 })).await;
    assert_eq!((ids(&first), &first["has_more"]), (vec!["a3"], &json!(true)));
    assert_eq!(ids(&list(json!({ "metadata": { "source": "input" } })).await), [""; 0]);
    assert_eq!(ids(&list(json!({ "metadata": { "source": "loop", "step": 2 } })).await).len(), 4);
    let deleted = world.runs("workflow.checkpoint.delete", json!({ "task_id": task, "epoch": epoch })).await;
    assert_eq!(deleted, json!({ "deleted": 4 }));
    assert_eq!(ids(&list(json!({})).await), [""; 0]);
}

/// The clock of the second runner is behind, so that its ids are lower. What the first one did is not done
/// again.
async fn newest_is_what_was_stored_last_whatever_its_id(world: World) {
    let (task, epoch) = world.taken("build").await;
    let with_state = |epoch: i64, id: &str, done: i64| {
        let mut checkpoint = put(&task, epoch, id);
        checkpoint["state"] = json!({ "done": done });
        checkpoint
    };
    for (id, done) in [("b1", 1), ("b2", 2)] {
        world.runs("workflow.checkpoint.put", with_state(epoch, id, done)).await;
    }
    world.release(&task, epoch, json!({ "handed_back": {} })).await;
    let epoch = world.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
    for (id, done) in [("a1", 3), ("a0", 4)] {
        world.runs("workflow.checkpoint.put", with_state(epoch, id, done)).await;
    }
    // A repeated put that was delayed brings nothing of before back.
    world.runs("workflow.checkpoint.put", with_state(epoch, "a1", 3)).await;
    assert_eq!(world.get(&task).await["state"], json!({ "done": 4 }));
    let held = json!({ "task_id": task, "epoch": epoch });
    let newest = world.runs("workflow.checkpoint.get", held.clone()).await;
    assert_eq!(newest["checkpoint"]["checkpoint_id"], "a0");
    assert_eq!(ids(&world.runs("workflow.checkpoint.list", held.clone()).await), ["a0", "a1", "b2", "b1"]);
    let before = |id: &str| json!({ "task_id": task, "epoch": epoch, "before": id, "namespace": "" });
    assert_eq!(ids(&world.runs("workflow.checkpoint.list", before("a1")).await), ["b2", "b1"]);
    assert_eq!(world.refused("workflow.checkpoint.list", before("c9")).await["code"], "not_found");
    world.release(&task, epoch, json!({ "failed": { "error": "no disk" } })).await;
    world.ok("workflow.retry", json!({ "task_id": task })).await;
    let taken = world.acquire(&task, 2).await;
    assert_eq!(taken["state"], json!({ "done": 4 }));
    let kept = json!({ "task_id": task, "epoch": taken["epoch"] });
    assert_eq!(ids(&world.runs("workflow.checkpoint.list", kept).await), ["a0"]);
}

#[tokio::test]
async fn checkpoints_of_a_store_of_before_are_numbered() {
    let world = World::new().await;
    let url = world.gateway.store_url();
    upgrade(world, &url).await;
}

#[tokio::test]
async fn checkpoints_of_a_postgres_store_of_before_are_numbered() {
    let postgres = Postgres::start();
    let url = postgres.database();
    upgrade(World::with(&[("store.url", &url), ("store.patience", "30s")], &[]).await, &url).await;
}

/// A store of the release before has no order but that of epochs, and of ids within one.
async fn upgrade(mut world: World, url: &str) {
    let (task, epoch) = world.taken("build").await;
    for id in ["b1", "b2"] {
        world.runs("workflow.checkpoint.put", put(&task, epoch, id)).await;
    }
    world.release(&task, epoch, json!({ "handed_back": {} })).await;
    let epoch = world.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
    world.runs("workflow.checkpoint.put", put(&task, epoch, "a1")).await;
    world.gateway.kill();
    let store = Database::connect(url).await.expect("the store opens");
    for statement in [
        "DROP INDEX workflow_history_by_task_id_sequence_namespace_checkpoint_id",
        "ALTER TABLE workflow_history DROP COLUMN sequence",
        "DELETE FROM seaql_migrations WHERE version = 'm0018_checkpoint_order'",
    ] {
        store.execute_unprepared(statement).await.expect(statement);
    }
    store.close().await.expect("closed");
    world.gateway.start_again().await;
    let list = json!({ "task_id": task, "epoch": epoch });
    assert_eq!(ids(&world.runs("workflow.checkpoint.list", list.clone()).await), ["a1", "b2", "b1"]);
    world.runs("workflow.checkpoint.put", put(&task, epoch, "a0")).await;
    assert_eq!(ids(&world.runs("workflow.checkpoint.list", list).await), ["a0", "a1", "b2", "b1"]);
}

/// Writes are kept or replaced, and come in the order that LangGraph expects.
async fn pending_writes_are_kept_or_replaced_and_ordered(world: World) {
    let (task, epoch) = world.taken("build").await;
    world.runs("workflow.checkpoint.put", put(&task, epoch, "a1")).await;
    for (by, data) in
        [(("~p2", "t-0"), &["x", "y"][..]), (("~p1", "t-9"), &["z"]), (("~p1", "t-8"), &["v", "w"])]
    {
        let wanted = writes(&task, epoch, "a1", by, false, data);
        let stored = world.runs("workflow.checkpoint.put_writes", wanted.clone()).await;
        assert_eq!(stored["stored"], data.len());
        assert_eq!(world.runs("workflow.checkpoint.put_writes", wanted).await["stored"], 0, "they are there");
    }
    let read = async || {
        let found = world.runs("workflow.checkpoint.get", json!({ "task_id": task, "epoch": epoch })).await;
        let found = found["checkpoint"]["writes"].as_array().expect("writes").clone();
        let text = |write: &Value| {
            let data = BASE64.decode(write["data"].as_str().expect("a text").as_bytes()).expect("base64");
            let id = write["write_task_id"].as_str().expect("an id");
            format!("{id}/{}={}", write["idx"], String::from_utf8_lossy(&data))
        };
        found.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(read().await, ["t-8/0=v", "t-8/1=w", "t-9/0=z", "t-0/0=x", "t-0/1=y"]);
    let kept = writes(&task, epoch, "a1", ("~p1", "t-9"), false, &["other", "new"]);
    assert_eq!(world.runs("workflow.checkpoint.put_writes", kept).await["stored"], 1);
    let replaced = writes(&task, epoch, "a1", ("~p1", "t-8"), true, &["V", "W"]);
    assert_eq!(world.runs("workflow.checkpoint.put_writes", replaced).await["stored"], 2);
    assert_eq!(read().await, ["t-8/0=V", "t-8/1=W", "t-9/0=z", "t-9/1=new", "t-0/0=x", "t-0/1=y"]);
}

/// The current state is one row, which the next runner and people get; events are kept to a bound.
async fn state_and_events_are_for_the_next_runner_and_for_people(world: World) {
    let (task, epoch) = world.taken("build").await;
    let mut first = put(&task, epoch, "a1");
    first["last_node"] = json!("plan_steps");
    first["state"] = json!({ "plan": ["build"], "current_step_index": 0 });
    first["events"] = json!([
        { "node": "plan_steps", "outcome": "started" },
        { "node": "plan_steps", "step": "build", "outcome": "ended", "detail": "x".repeat(5_000) },
    ]);
    world.runs("workflow.checkpoint.put", first).await;
    // Without a state the one before is kept.
    world.runs("workflow.checkpoint.put", put(&task, epoch, "a2")).await;
    let found = world.get(&task).await;
    assert_eq!((&found["last_node"], &found["state"]["plan"]), (&json!("plan_steps"), &json!(["build"])));
    let last = found["events"].as_array().expect("events").last().expect("an event").clone();
    assert_eq!(
        (&last["node"], &last["step"], &last["outcome"]),
        (&json!("plan_steps"), &json!("build"), &json!("ended"))
    );
    assert!(last["detail"].as_str().expect("a text").len() < 1_100, "it is cut");
    let many: Vec<Value> =
        (0..64).map(|number| json!({ "node": format!("n{number}"), "outcome": "started" })).collect();
    for round in 0..18 {
        let mut more = put(&task, epoch, &format!("b{round:02}"));
        more["events"] = json!(many);
        world.runs("workflow.checkpoint.put", more).await;
    }
    let events = world.get(&task).await["events"].as_array().expect("events").clone();
    assert_eq!((events.len(), &events[199]["node"]), (200, &json!("n63")));
    world.release(&task, epoch, json!({ "handed_back": {} })).await;
    let taken = world.acquire(&task, 1).await;
    assert_eq!(taken["state"], json!({ "plan": ["build"], "current_step_index": 0 }));
}

/// A runner repeats a put whose answer was lost, without an idempotency key: people see what happened once.
async fn repeated_put_replaces_and_adds_no_events(world: World) {
    let (task, epoch) = world.taken("build").await;
    let mut checkpoint = put(&task, epoch, "a1");
    checkpoint["events"] = json!([{ "node": "plan_steps", "outcome": "ended" }]);
    world.runs("workflow.checkpoint.put", checkpoint.clone()).await;
    let before = world.get(&task).await["events"].clone();
    checkpoint["data"] = json!(BASE64.encode(b"again"));
    checkpoint["metadata"] = json!({ "source": "again" });
    checkpoint["last_node"] = json!("plan_steps");
    world.runs("workflow.checkpoint.put", checkpoint.clone()).await;
    let found = world.get(&task).await;
    assert_eq!((&found["events"], &found["last_node"]), (&before, &json!("plan_steps")));
    let get = json!({ "task_id": task, "epoch": epoch });
    let stored = world.runs("workflow.checkpoint.get", get).await["checkpoint"].clone();
    assert_eq!((&stored["data"], &stored["metadata"]), (&checkpoint["data"], &checkpoint["metadata"]));
    // The same id in another namespace is another checkpoint.
    checkpoint["namespace"] = json!("child:1");
    world.runs("workflow.checkpoint.put", checkpoint).await;
    let events = world.get(&task).await["events"].as_array().expect("events").len();
    assert_eq!(events, before.as_array().expect("events").len() + 1);
}

/// At its end only the latest checkpoint of each namespace is kept.
async fn history_is_pruned_at_the_end(world: World) {
    let (task, epoch) = world.taken("build").await;
    for id in ["a1", "a2"] {
        world.runs("workflow.checkpoint.put", put(&task, epoch, id)).await;
        let by = ("~p", "t-1");
        world.runs("workflow.checkpoint.put_writes", writes(&task, epoch, id, by, false, &["x"])).await;
    }
    let mut inner = put(&task, epoch, "a0");
    inner["namespace"] = json!("child");
    world.runs("workflow.checkpoint.put", inner).await;
    world.release(&task, epoch, json!({ "failed": { "error": "no disk" } })).await;
    world.ok("workflow.retry", json!({ "task_id": task })).await;
    let epoch = world.acquire(&task, 2).await["epoch"].as_i64().expect("an epoch");
    let list = world.runs("workflow.checkpoint.list", json!({ "task_id": task, "epoch": epoch })).await;
    assert_eq!(ids(&list), ["a0", "a2"]);
    assert_eq!(list["checkpoints"][1]["writes"].as_array().expect("writes").len(), 1);
}

/// What a job printed may hold a NUL, which PostgreSQL stores in no text. The workflow ends all the same.
async fn outcome_that_quotes_a_nul_is_stored(world: World) {
    let asked = json!({ "waiting": { "for": "question", "question": "a\u{0}b?", "interrupt_id": "i-1" } });
    for (outcome, field, stored) in [
        (json!({ "done": { "summary": "a\u{0}b" } }), "summary", "a\u{fffd}b"),
        (json!({ "failed": { "error": "a\u{0}b" } }), "error", "a\u{fffd}b"),
        (asked, "question", "a\u{fffd}b?"),
    ] {
        let (task, epoch) = world.taken("build").await;
        let mut checkpoint = put(&task, epoch, "a1");
        checkpoint["state"] = json!({ "results": "a\u{0}b" });
        world.runs("workflow.checkpoint.put", checkpoint).await;
        let released = world.release(&task, epoch, outcome).await;
        assert_eq!(released[field], stored, "{released}");
        assert_eq!(world.get(&task).await["state"]["results"], "a\u{0}b");
    }
}
