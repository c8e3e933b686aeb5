//! The `artifact.*` tools.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::stage::{Stage, each, on_both};

on_both![
    artifact_is_written_and_read,
    binary_content_round_trips,
    large_artifact_is_read_in_pages,
    bad_paths_and_contents_are_refused,
    artifact_belongs_to_its_task,
    artifacts_are_listed_without_content,
    concurrent_writes_each_create_a_version,
];

async fn task(stage: &Stage) -> String {
    let task = stage.ok("db.task.create", json!({ "title": "one" })).await;
    task["task_id"].as_str().unwrap().to_owned()
}

async fn artifact_is_written_and_read(stage: Stage) {
    let task = task(&stage).await;
    let arguments = json!({ "task_id": task, "path": "docs/über.md", "content": "# Hi\n", "run_id": "r-1" });
    let made = stage.ok("artifact.put", arguments.clone()).await;
    assert_eq!((&made["version"], &made["changed"], &made["size"]), (&json!(1), &json!(true), &json!(5)));
    assert_eq!(made["sha256"], "19812277b04a5a988e4dc361617bcb927d4297c47353da93aa992ac007f1f3cf");
    let got = stage.ok("artifact.get", json!({ "task_id": task, "path": "docs/über.md" })).await;
    assert_eq!(
        (&got["content"], &got["encoding"], &got["truncated"]),
        (&json!("# Hi\n"), &json!("text"), &json!(false))
    );
    let by_id = json!({ "task_id": task, "artifact_id": made["artifact_id"], "path": "docs/über.md" });
    assert_eq!(stage.ok("artifact.get", by_id).await, got);
    let again = stage.ok("artifact.put", arguments).await;
    assert_eq!(
        (&again["version"], &again["changed"]),
        (&json!(1), &json!(false)),
        "the content did not change"
    );
    let next = json!({ "task_id": task, "path": "docs/über.md", "content": "# Ho\n", "expected_version": 1 });
    let next_made = stage.ok("artifact.put", next.clone()).await;
    assert_eq!((&next_made["version"], &next_made["artifact_id"]), (&json!(2), &made["artifact_id"]));
    let (code, why) = stage.fails("artifact.put", next).await;
    assert_eq!(code, "conflict");
    assert!(why.contains("version 2"), "{why}");
    let new = json!({ "task_id": task, "path": "docs/über.md", "content": "x", "expected_version": 0 });
    assert_eq!(stage.fails("artifact.put", new).await.0, "conflict", "the artifact already exists");
    let gone = json!({ "task_id": task, "path": "new", "content": "x", "expected_version": 3 });
    assert_eq!(stage.fails("artifact.put", gone).await.0, "conflict");
}

async fn binary_content_round_trips(stage: Stage) {
    let task = task(&stage).await;
    let put = json!({ "task_id": task, "path": "b.bin", "content": "AP8Q", "encoding": "base64" });
    let made = stage.ok("artifact.put", put).await;
    assert_eq!((&made["size"], &made["media_type"]), (&json!(3), &json!("application/octet-stream")));
    let got = stage.ok("artifact.get", json!({ "task_id": task, "path": "b.bin" })).await;
    assert_eq!((&got["content"], &got["encoding"]), (&json!("AP8Q"), &json!("base64")));
    let as_text = json!({ "task_id": task, "path": "b.bin", "encoding": "text" });
    assert_eq!(stage.fails("artifact.get", as_text).await.0, "invalid_arguments");
    stage.ok("artifact.put", json!({ "task_id": task, "path": "empty", "content": "" })).await;
    assert_eq!(stage.ok("artifact.get", json!({ "task_id": task, "path": "empty" })).await["content"], "");
}

async fn large_artifact_is_read_in_pages(stage: Stage) {
    let task = task(&stage).await;
    let content = "aé日".repeat(50_000);
    stage.ok("artifact.put", json!({ "task_id": task, "path": "large", "content": content })).await;
    let first = stage.ok("artifact.get", json!({ "task_id": task, "path": "large" })).await;
    assert!(first.to_string().len() < 32 * 1024);
    assert_eq!(first["truncated"], true);
    let (mut read, mut offset) = (String::new(), json!(0));
    while !offset.is_null() {
        let asked = json!({ "task_id": task, "path": "large", "offset": offset, "limit": 1_000_000 });
        let piece = stage.ok("artifact.get", asked).await;
        read.push_str(piece["content"].as_str().unwrap());
        offset = piece["next_offset"].clone();
    }
    assert_eq!(read, content);
    // An offset inside a character is moved to its start.
    let asked = json!({ "task_id": task, "path": "large", "offset": 2, "limit": 1 });
    let piece = stage.ok("artifact.get", asked).await;
    assert_eq!((&piece["content"], &piece["offset"]), (&json!("é"), &json!(1)));
    let behind = json!({ "task_id": task, "path": "large", "offset": 10_000_000 });
    assert_eq!(stage.fails("artifact.get", behind).await.0, "invalid_arguments");
}

async fn bad_paths_and_contents_are_refused(stage: Stage) {
    let task = task(&stage).await;
    let put = |path: &str| json!({ "task_id": task, "path": path, "content": "x" });
    for path in
        ["", "/etc/passwd", "../a", "a/../../b", "a\\b", "a\nb", "a//b", "./a", "a/", "C:\\a", "a\u{202e}b"]
    {
        assert_eq!(stage.fails("artifact.put", put(path)).await.0, "invalid_arguments", "{path:?}");
        let asked = json!({ "task_id": task, "path": path });
        assert_eq!(stage.fails("artifact.get", asked).await.0, "invalid_arguments", "{path:?}");
    }
    assert_eq!(stage.fails("artifact.put", put(&"a".repeat(513))).await.0, "too_large");
    let with = |name: &str, value: Value| {
        let mut arguments = put("a");
        arguments[name] = value;
        arguments
    };
    assert_eq!(
        stage.fails("artifact.put", with("content", json!("x".repeat(1024 * 1024 + 1)))).await.0,
        "too_large"
    );
    stage.ok("artifact.put", with("content", json!("x".repeat(1024 * 1024)))).await;
    for (name, value) in [("media_type", "text"), ("media_type", "a/b\n"), ("encoding", "hex")] {
        assert_eq!(stage.fails("artifact.put", with(name, json!(value))).await.0, "invalid_arguments");
    }
    let not_base64 = json!({ "task_id": task, "path": "a", "content": "a b", "encoding": "base64" });
    assert_eq!(stage.fails("artifact.put", not_base64).await.0, "invalid_arguments");
    let large = data_encoding::BASE64.encode(&vec![0; 1024 * 1024 + 1]);
    let large = json!({ "task_id": task, "path": "a", "content": large, "encoding": "base64" });
    assert_eq!(stage.fails("artifact.put", large).await.0, "too_large");
}

async fn artifact_belongs_to_its_task(stage: Stage) {
    let (one, other) = (task(&stage).await, task(&stage).await);
    let made = stage.ok("artifact.put", json!({ "task_id": one, "path": "a", "content": "x" })).await;
    let elsewhere = json!({ "task_id": other, "artifact_id": made["artifact_id"] });
    assert_eq!(stage.fails("artifact.get", elsewhere).await.0, "not_found");
    let mixed = json!({ "task_id": one, "artifact_id": made["artifact_id"], "path": "b" });
    assert_eq!(stage.fails("artifact.get", mixed).await.0, "not_found");
    assert_eq!(stage.fails("artifact.get", json!({ "task_id": one })).await.0, "invalid_arguments");
    for tool in ["artifact.put", "artifact.list"] {
        let arguments = if tool == "artifact.put" {
            json!({ "task_id": "t-0", "path": "a", "content": "x" })
        } else {
            json!({ "task_id": "t-0" })
        };
        assert_eq!(stage.fails(tool, arguments).await.0, "not_found");
    }
}

async fn artifacts_are_listed_without_content(stage: Stage) {
    let task = task(&stage).await;
    for path in ["b", "a/2", "a/1"] {
        stage.ok("artifact.put", json!({ "task_id": task, "path": path, "content": path })).await;
    }
    let listed = stage.ok("artifact.list", json!({ "task_id": task })).await;
    assert_eq!(each(&listed, "items", "path"), ["a/1", "a/2", "b"]);
    assert!(listed["items"][0].get("content").is_none());
    let some = stage.ok("artifact.list", json!({ "task_id": task, "text": "A/", "limit": 1 })).await;
    assert_eq!((each(&some, "items", "path"), &some["next_cursor"]), (vec!["a/1"], &json!("1")));
}

async fn concurrent_writes_each_create_a_version(stage: Stage) {
    let task = task(&stage).await;
    let put = |number: i32| json!({ "task_id": task, "path": "a", "content": number.to_string() });
    let made = join_all((0..10).map(|number| stage.ok("artifact.put", put(number)))).await;
    let mut versions: Vec<i64> = made.iter().map(|it| it["version"].as_i64().unwrap()).collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=10).collect::<Vec<_>>());
}
