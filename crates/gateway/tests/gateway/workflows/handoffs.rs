//! `workflow.handoff`: published once with lease and headers, answered over the stream of runs.

use std::time::{Duration, Instant};

use futures_util::{StreamExt, future::join_all};
use serde_json::{Value, json};
use subjects::{
    Body, Encoding, Handoff, Kind, Subject, Work,
    signature::{SignatureBase, TrustedProducer, verify},
};

use super::support::{World, on_both};

on_both!(
    handoff_is_published_once_with_its_lease,
    answer_is_waited_for_and_stored,
    payloads_are_checked,
    review_is_handed_off,
    cancel_ends_handoffs
);

fn plan(task: &str, epoch: i64, key: &str, wait: u64) -> Value {
    json!({
        "task_id": task, "epoch": epoch, "key": key, "kind": "plan", "wait_seconds": wait,
        "payload": { "goal": "build it", "acceptance_criteria": ["it runs"] },
    })
}

fn keyed(task: &str, epoch: i64, kind: &str, payload: &Value) -> Value {
    json!({ "task_id": task, "epoch": epoch, "key": "k", "kind": kind, "payload": payload })
}

/// A handoff is one message with the workflow's scope, a lease of a manager and the trace of the call.
async fn handoff_is_published_once_with_its_lease(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let begun = join_all((0..8).map(|_| world.runs("workflow.handoff", plan(&task, epoch, "k-1", 0)))).await;
    assert_eq!(begun.iter().filter(|it| it["began"] == true).count(), 1, "{begun:?}");
    let id = begun[0]["handoff_id"].as_str().expect("an id").to_owned();
    assert!(begun.iter().all(|it| it["handoff_id"] == *id && it.get("answer").is_none()), "{begun:?}");
    let message = world.published("plan", &id).await;
    let header = |name: &str| message.headers.get(name).map(|value| value.to_string());
    assert_eq!(header("Content-Type").as_deref(), Some("application/json"));
    assert!(header("traceparent").expect("a trace").starts_with("00-"));
    let handoff =
        Handoff::decode(Kind::Plan, &Body::inspect(Encoding::Json, &message.payload)).expect("a handoff");
    assert_eq!(handoff.id.to_string(), id);
    let scope = &handoff.scope;
    assert_eq!(scope.user_id.as_ref().map(|it| it.as_str()), Some("ada"));
    assert_eq!(scope.task_id.as_ref().map(|it| it.as_str()), Some(&*task));
    let Work::Plan(planned) = &handoff.work else { panic!("a plan") };
    assert_eq!(planned.task_id.as_ref().map(|it| it.as_str()), Some(&*task), "the gateway fills it in");
    // The lease lets a manager act on this task for this handoff.
    let lease = header("Cynode-Lease").expect("a lease");
    let read = world
        .gateway
        .call_under(&world.manager, Some(&lease), "db.task.get", json!({ "task_id": task }))
        .await;
    assert!(!read.expect("a reply").is_error);
    let other = world.task("another").await;
    let read = world
        .gateway
        .call_under(&world.manager, Some(&lease), "db.task.get", json!({ "task_id": other }))
        .await;
    assert!(read.is_err(), "the lease is for one task");
    let leases = world.gateway.must("GET", "/api/v1/leases", None).await;
    let issued = leases.as_array().expect("leases").iter().filter(|it| it["handoff_id"] == *id).count();
    assert_eq!(issued, 1);
    world.until_all_sent().await;
    world.published("plan", &id).await;
}

/// The answer comes at once, is stored with what began it, and is there for the next runner.
async fn answer_is_waited_for_and_stored(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let begun = world.runs("workflow.handoff", plan(&task, epoch, "k-1", 0)).await;
    let id = begun["handoff_id"].as_str().expect("an id").to_owned();
    let answer = async {
        world.published("plan", &id).await;
        world.answer("plan", &id, "planned").await;
        Instant::now()
    };
    let waiting = world.runs("workflow.handoff", plan(&task, epoch, "k-1", 20));
    let (answered, at) = tokio::join!(waiting, answer);
    assert!(at.elapsed() < Duration::from_secs(3), "it waited {:?}", at.elapsed());
    assert_eq!(answered["answer"]["message"]["content"], "planned", "{answered}");
    assert_eq!(answered["answer"]["from_the_future"], json!({ "a": [1] }), "nothing is left out");
    let effect = world.get(&task).await["effects"][0].clone();
    assert_eq!(
        (&effect["kind"], &effect["outcome"], &effect["cost_usd"]),
        (&json!("plan"), &json!("completed"), &json!(0.25))
    );
    world.release(&task, epoch, json!({ "handed_back": {} })).await;
    let epoch = world.acquire(&task, 1).await["epoch"].as_i64().expect("an epoch");
    // It does not depend on the stream any more.
    let runs = world.jetstream.get_stream("CYNODE_RUNS").await.expect("the stream");
    runs.purge().await.expect("purged");
    let again = world.runs("workflow.handoff", plan(&task, epoch, "k-1", 0)).await;
    assert_eq!((&again["answer"]["message"]["content"], &again["began"]), (&json!("planned"), &json!(false)));
}

/// Each kind has its payload, checked as the workers check it.
async fn payloads_are_checked(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let hand_off = |kind: &str, payload: &Value| keyed(&task, epoch, kind, payload);
    for (kind, payload, expected) in [
        ("plan", json!({}), "goal"),
        ("plan", json!({ "goal": " " }), "empty"),
        ("plan", json!({ "goal": "x", "task_id": "another" }), "filled in"),
        ("plan", json!({ "goal": "x", "golas": ["y"] }), "no field `golas`"),
        ("chat", json!({ "messages": [] }), "empty"),
        ("chat", json!({ "model": "gpt", "messages": [] }), "filled in"),
        ("job", json!({}), "workflow.job"),
    ] {
        let error = world.refused("workflow.handoff", hand_off(kind, &payload)).await;
        assert_eq!(error["code"], "invalid_arguments", "{payload}");
        assert!(error["message"].as_str().expect("a text").contains(expected), "{payload}: {error}");
    }
    assert_eq!(world.get(&task).await["effects"], json!([]), "nothing was begun");
    let chat = json!({ "messages": [{ "role": "user", "content": "Write the notes." }] });
    let begun = world.runs("workflow.handoff", hand_off("chat", &chat)).await;
    let message = world.published("chat", begun["handoff_id"].as_str().expect("an id")).await;
    Handoff::decode(Kind::Chat, &Body::inspect(Encoding::Json, &message.payload)).expect("a chat");
    let error = world.refused("workflow.handoff", hand_off("plan", &json!({ "goal": "x" }))).await;
    assert_eq!(error["reason"], "key_in_use");
    let job =
        json!({ "task_id": task, "epoch": epoch, "key": "k", "step": "s", "run": { "command": ["true"] } });
    assert_eq!(world.refused("workflow.job", job).await["reason"], "key_in_use");
}

/// O9: a review names the step, its result and its criteria.
async fn review_is_handed_off(world: World) {
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let review = json!({
        "task_id": task, "epoch": epoch, "key": "r-1", "step": "build", "kind": "review",
        "payload": {
            "step": { "name": "build", "kind": "job", "script": "make" },
            "result": { "outcome": "succeeded", "exit_code": 0 },
            "criteria": ["it runs"], "iteration": 1, "max_iterations": 3,
        },
    });
    let begun = world.runs("workflow.handoff", review).await;
    let message = world.published("review", begun["handoff_id"].as_str().expect("an id")).await;
    let handoff =
        Handoff::decode(Kind::Review, &Body::inspect(Encoding::Json, &message.payload)).expect("a review");
    let Work::Review(review) = &handoff.work else { panic!("a review") };
    assert_eq!((review.task_id.as_str(), review.criteria.len()), (&*task, 1));
}

/// A cancelled workflow has its handoffs cancelled: workers are asked, and the leases are revoked.
async fn cancel_ends_handoffs(world: World) {
    world.create_handoff_streams().await;
    let mut cancels = world.client.subscribe("pma.cancel.*").await.expect("subscribed");
    let (task, epoch) = world.taken("build").await;
    let first = world.runs("workflow.handoff", plan(&task, epoch, "k-1", 0)).await;
    let id = first["handoff_id"].as_str().expect("an id").to_owned();
    let second = world.runs("workflow.handoff", plan(&task, epoch, "k-2", 0)).await;
    let answered = second["handoff_id"].as_str().expect("an id").to_owned();
    world.answer("plan", &answered, "planned").await;
    world.runs("workflow.handoff", plan(&task, epoch, "k-2", 5)).await;
    let lease_of = async |id: &str| {
        let leases = world.gateway.must("GET", "/api/v1/leases", None).await;
        leases.as_array().and_then(|all| all.iter().find(|it| it["handoff_id"] == *id)).cloned()
    };
    let kept = lease_of(&answered).await;
    assert!(kept.is_some_and(|lease| lease["revoked_at"].is_null()), "its worker gives it back");
    world.ok("workflow.cancel", json!({ "task_id": task, "reason": "not needed" })).await;
    let asked = tokio::time::timeout(Duration::from_secs(10), cancels.next())
        .await
        .expect("asked")
        .expect("a request");
    let expected = Subject::Cancel(id.parse().expect("an id")).to_string();
    assert_eq!(asked.subject.as_str(), expected);
    world.client.publish(asked.reply.expect("a reply"), "{}".into()).await.expect("answered");
    world.until_all_sent().await;
    for id in [&id, &answered] {
        let ended = lease_of(id).await;
        assert!(ended.is_some_and(|lease| lease["revoked_at"].is_string()), "{id}");
    }
}

/// P2: with a key, a handoff is signed together with its lease, so that workers which require it accept it.
#[tokio::test]
async fn handoff_is_signed_with_its_lease() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("handoffs.nk");
    let key = secrets::signing_key::read_or_create(&file).expect("a key");
    let world = World::with(&[("nats.signing_key_file", &file.display().to_string())], &[]).await;
    world.create_handoff_streams().await;
    let (task, epoch) = world.taken("build").await;
    let begun = world.runs("workflow.handoff", plan(&task, epoch, "k-1", 0)).await;
    let message = world.published("plan", begun["handoff_id"].as_str().expect("an id")).await;
    let header = |name: &str| message.headers.get(name).map(|value| value.to_string());
    let (signature, lease) = (header("Cynode-Signature"), header("Cynode-Lease"));
    let body = Body::inspect(Encoding::Json, &message.payload);
    let signed = SignatureBase::new("pma.handoff.plan", body.envelope_fields(), &message.payload);
    let signed = signed.expect("what is signed");
    let trusted = [TrustedProducer { key: key.public_key(), subjects: None }];
    let with_lease = signed.with_lease(lease.as_deref());
    assert_eq!(verify(&trusted, signature.as_deref(), &with_lease), Ok(()));
    let without = SignatureBase { lease: None, ..with_lease };
    assert!(verify(&trusted, signature.as_deref(), &without).is_err(), "the lease is part of it");
}
