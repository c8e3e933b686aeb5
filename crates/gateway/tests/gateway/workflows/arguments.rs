//! Every tool of runners with arguments that are wrong: refused with a message that names what is wrong, and
//! without an effect.

use data_encoding::BASE64;
use serde_json::{Value, json};

use super::support::{World, runner_calls};

const MIB: usize = 1024 * 1024;

/// Good arguments with one of them changed, for each case.
fn cases() -> Vec<(&'static str, Value, &'static str)> {
    let big = |size: usize| BASE64.encode(&vec![0; size]);
    let write = |data: &str| json!({ "idx": 0, "channel": "c", "kind": "k", "data": data });
    let many = |count: usize| Value::Array((0..count).map(|_| write("")).collect());
    vec![
        ("workflow.lease.renew", json!({ "ttl_seconds": 4 }), "`ttl_seconds` must be 5 to 120"),
        ("workflow.lease.renew", json!({ "ttl_seconds": 121 }), "`ttl_seconds` must be 5 to 120"),
        ("workflow.lease.renew", json!({ "epoc": 1 }), "unknown field `epoc`"),
        ("workflow.lease.renew", json!({ "epoch": "one" }), "invalid type"),
        ("workflow.lease.release", json!({ "outcome": { "gone": {} } }), "unknown variant `gone`"),
        ("workflow.lease.release", json!({ "outcome": { "done": { "sumary": "" } } }), "sumary"),
        ("workflow.lease.release", json!({ "outcome": { "failed": { "error": " " } } }), "error is empty"),
        (
            "workflow.lease.release",
            json!({ "outcome": { "waiting": { "for": "pause", "question": "?", "interrupt_id": "i" } } }),
            "people pause workflows",
        ),
        (
            "workflow.lease.release",
            json!({ "outcome": { "waiting": { "for": "question", "question": "", "interrupt_id": "i" } } }),
            "question is empty",
        ),
        (
            "workflow.lease.release",
            json!({ "outcome": { "done": { "summary": "x".repeat(20_000) } } }),
            "16384",
        ),
        ("workflow.checkpoint.put", json!({ "data": "not base64!" }), "not base64"),
        ("workflow.checkpoint.put", json!({ "data": big(2 * MIB + 1) }), "the limit is 2097152"),
        ("workflow.checkpoint.put", json!({ "state": { "x": "y".repeat(MIB / 2) } }), "the limit is 524288"),
        ("workflow.checkpoint.put", json!({ "checkpoint_id": "" }), "checkpoint_id is empty"),
        ("workflow.checkpoint.put", json!({ "metadata": [] }), "invalid type"),
        (
            "workflow.checkpoint.put",
            json!({ "events": [{ "node": "n", "outcome": "odd" }] }),
            "unknown variant",
        ),
        ("workflow.checkpoint.put", json!({ "namespace": "n".repeat(513) }), "the limit is 512"),
        ("workflow.checkpoint.put_writes", json!({ "writes": many(65) }), "at most 64"),
        ("workflow.checkpoint.put_writes", json!({ "writes": [write("?")] }), "not base64"),
        (
            "workflow.checkpoint.put_writes",
            json!({ "writes": [write(&big(MIB)), write(&big(MIB + 3))] }),
            "the data of all writes has 2097155 bytes; the limit is 2097152",
        ),
        ("workflow.checkpoint.put_writes", json!({ "write_task_id": " " }), "write_task_id is empty"),
        ("workflow.checkpoint.get", json!({ "checkpoint_id": "c".repeat(129) }), "the limit is 128"),
        ("workflow.checkpoint.list", json!({ "metadata": 1 }), "invalid type"),
        ("workflow.checkpoint.delete", json!({ "namespace": "" }), "unknown field `namespace`"),
        ("workflow.job", json!({ "key": "" }), "key is empty"),
        ("workflow.job", json!({ "key": "~1/x" }), "reserved"),
        ("workflow.job", json!({ "wait_seconds": 61 }), "at most 60"),
        ("workflow.job", json!({ "run": {} }), "`command` or `script`"),
        (
            "workflow.job",
            json!({ "run": { "command": ["true"], "task_id": "t" } }),
            "must not contain `task_id`",
        ),
        ("workflow.job", json!({ "run": { "command": ["true"], "imgae": "x" } }), "unknown field `imgae`"),
        ("workflow.handoff", json!({ "kind": "verify" }), "unknown variant `verify`"),
        ("workflow.handoff", json!({ "key": "k".repeat(201) }), "the limit is 200"),
        ("workflow.handoff", json!({ "wait_seconds": 61 }), "at most 60"),
        ("workflow.handoff", json!({ "payload": "goal" }), "invalid type"),
    ]
}

#[tokio::test]
async fn wrong_arguments_are_named_and_have_no_effect() {
    let world = World::new().await;
    let (task, epoch) = world.taken("build").await;
    let before = world.get(&task).await;
    for (tool, change, expected) in cases() {
        let good = runner_calls(&task, epoch).into_iter().find(|(name, _)| *name == tool);
        let (_, mut arguments) = good.expect("a call");
        for (name, value) in change.as_object().expect("an object") {
            arguments[name] = value.clone();
        }
        let shown = change.to_string();
        let error = world.refused(tool, arguments).await;
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains(expected), "{tool} {shown:.100}: {message}");
        let code = error["code"].as_str().expect("a code");
        assert!(["invalid_arguments", "too_large"].contains(&code), "{tool} {shown:.100}: {code}");
    }
    let acquire = json!({ "task_id": task, "run": 1, "holder": " ", "ttl_seconds": 30 });
    assert!(
        world.refused("workflow.lease.acquire", acquire).await["message"]
            .to_string()
            .contains("holder is empty")
    );
    assert_eq!(world.get(&task).await, before);
}

/// A checkpoint of 2 MiB is stored and read again.
#[tokio::test]
async fn largest_checkpoint_fits() {
    let world = World::new().await;
    let (task, epoch) = world.taken("build").await;
    let data = BASE64.encode(&vec![7; 2 * MIB]);
    let put = json!({
        "task_id": task, "epoch": epoch, "checkpoint_id": "a1", "kind": "msgpack", "data": data,
        "state": { "text": "y".repeat(MIB / 2 - 64) },
    });
    world.runs("workflow.checkpoint.put", put).await;
    let token = world.gateway.unbound("workflow").await;
    let get = json!({ "task_id": task, "epoch": epoch });
    let (_, found) = world.gateway.post_call(&token, "workflow.checkpoint.get", get).await;
    let found = &found["result"]["structuredContent"]["checkpoint"];
    assert_eq!(found["data"].as_str().map(str::len), Some(data.len()));
}
