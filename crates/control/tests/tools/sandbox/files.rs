//! Files that jobs leave: stored in pieces under the lease of the job.

use data_encoding::{BASE64, HEXLOWER};
use policy::{Agent, Caller};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{id_of, job, under_lease};
use crate::stage::{Stage, manager, on_both};

on_both![
    file_is_stored_in_pieces,
    wrong_pieces_are_refused,
    files_of_a_job_are_limited,
    later_attempt_replaces_what_an_earlier_one_left,
];

pub(super) fn digest(content: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(content))
}

/// The node that runs a job.
pub(super) fn node_of(job: &Value) -> Caller {
    under_lease(Agent::Node("node-1".into()), "ada", job["task_id"].as_str(), Some(id_of(job)))
}

pub(super) fn piece(path: &str, whole: &[u8], from: usize, to: usize) -> Value {
    json!({
        "attempt": 1, "path": path, "size": whole.len(), "sha256": digest(whole), "offset": from,
        "content": BASE64.encode(&whole[from..to]),
    })
}

async fn file_is_stored_in_pieces(stage: Stage) {
    let job = job(&stage).await;
    let (node, whole) = (node_of(&job), b"one two three".repeat(10));
    let store = async |from: usize, to: usize| {
        stage.call(&node, "sandbox.job.store", piece("out.txt", &whole, from, to)).await.unwrap()
    };
    assert_eq!(store(0, 50).await, json!({ "stored": 50, "is_complete": false }));
    assert_eq!(store(0, 50).await, json!({ "stored": 50, "is_complete": false }), "the same piece again");
    assert_eq!(store(50, 130).await, json!({ "stored": 130, "is_complete": true }));
    assert_eq!(store(50, 130).await, json!({ "stored": 130, "is_complete": true }));
    let empty = piece("empty.txt", b"", 0, 0);
    let stored = stage.call(&node, "sandbox.job.store", empty).await.unwrap();
    assert_eq!(stored, json!({ "stored": 0, "is_complete": true }));
}

async fn wrong_pieces_are_refused(stage: Stage) {
    let job = job(&stage).await;
    let node = node_of(&job);
    let change = |name: &str, value: Value| {
        let mut piece = piece("out.txt", b"content", 0, 7);
        piece[name] = value;
        piece
    };
    for (wrong, expected) in [
        (change("path", json!("../out.txt")), "`..`"),
        (change("path", json!("/out.txt")), "relative"),
        (change("attempt", json!(0)), "counted from 1"),
        (change("sha256", json!("ABC")), "64 lower-case"),
        (change("sha256", json!(digest(b"other"))), "has the digest"),
        (change("size", json!(3 * 1024 * 1024)), "sandbox.files.max_mb"),
        (change("size", json!(3)), "beyond `size`"),
        (change("content", json!("")), "empty"),
        (change("content", json!("?")), "not base64"),
        (change("offset", json!(3)), "beyond `size`"),
        (piece("out.txt", b"content", 3, 7), "stored up to byte 0"),
        (change("job_id", json!("j-1")), "job_id"),
    ] {
        let (_, why) = stage.fails_for(&node, "sandbox.job.store", wrong).await;
        assert!(why.contains(expected), "{expected}: {why}");
    }
    let without = stage.fails_for(&manager(), "sandbox.job.store", piece("a", b"x", 0, 1)).await;
    assert!(without.1.contains("not made under the lease of a job"), "{without:?}");
}

async fn files_of_a_job_are_limited(stage: Stage) {
    let job = job(&stage).await;
    let (node, large) = (node_of(&job), vec![7; 1024 * 1024]);
    for path in ["a", "b", "c"] {
        stage.call(&node, "sandbox.job.store", piece(path, &large, 0, large.len())).await.unwrap();
    }
    let (_, why) = stage.fails_for(&node, "sandbox.job.store", piece("d", b"x", 0, 1)).await;
    assert!(why.contains("sandbox.files.max)"), "{why}");
    let more = [&large[..], b"x"].concat();
    let (_, why) = stage.fails_for(&node, "sandbox.job.store", piece("c", &more, 0, 10)).await;
    assert!(why.contains("sandbox.files.max_total_mb"), "{why}");
    let too_large = piece("c", &more, 0, more.len());
    assert_eq!(stage.fails_for(&node, "sandbox.job.store", too_large).await.0, "too_large");
}

async fn later_attempt_replaces_what_an_earlier_one_left(stage: Stage) {
    let job = job(&stage).await;
    let node = node_of(&job);
    let of_attempt = |attempt: u32, content: &[u8]| {
        let mut piece = piece("out.txt", content, 0, content.len());
        piece["attempt"] = json!(attempt);
        piece
    };
    stage.call(&node, "sandbox.job.store", of_attempt(1, b"first")).await.unwrap();
    stage.call(&node, "sandbox.job.store", of_attempt(2, b"second")).await.unwrap();
    let (code, why) = stage.fails_for(&node, "sandbox.job.store", of_attempt(1, b"first")).await;
    assert!(code == "conflict" && why.contains("attempt 2"), "{why}");
    let rows = <store::entity::job_file::Entity as sea_orm::EntityTrait>::find();
    let rows = rows.all(stage.store.read()).await.unwrap();
    assert_eq!((rows.len(), rows[0].attempt), (1, 2));
}
