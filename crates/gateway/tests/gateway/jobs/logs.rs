//! What readers of a log see: each chunk once, and characters whole.

use std::io::Read;

use serde_json::{Value, json};
use subjects::{
    JobId,
    job::{End, LogExtent, Record},
};
use testkit::{Process, cynodectl, eventually};

use super::support::World;
use crate::{administration::support::ctl, console::support::Gateway};

/// Reads a log as text from its beginning, in pieces of some bytes.
async fn read(world: &World, job: JobId, limit: u64) -> String {
    let (mut text, mut after) = (String::new(), Value::Null);
    loop {
        let mut wanted = json!({ "job_id": job, "limit": limit });
        if !after.is_null() {
            wanted["after"] = after;
        }
        let piece = world.ok("sandbox.job.logs", wanted).await;
        text.push_str(piece["content"].as_str().expect("text"));
        if piece["has_more"] != true {
            return text;
        }
        after = piece["next"].clone();
    }
}

#[tokio::test]
async fn chunk_that_is_stored_twice_is_shown_once() {
    let world = World::new().await;
    let console = Gateway::of(&world.gateway);
    let admin = console.administrator().await;
    let node = world.node("one").await;
    let job = world.run(json!({})).await;
    let claimed = node.claim(job, 1, 0).await.expect("claimed");
    let started = node.record(job, Record::Started, claimed).await.expect("started");
    node.log(job, 1, b"first\n").await;
    node.log(job, 2, b"second\n").await;
    node.log_again(job, 1, b"first\n").await;
    node.log_again(job, 2, b"second\n").await;
    node.log(job, 3, b"third\n").await;
    node.log_again(job, 3, b"third\n").await;
    let expected = "first\nsecond\nthird\n";
    for limit in [4, 7, 13, 16_384] {
        assert_eq!(read(&world, job, limit).await, expected, "{limit}");
    }
    // One that was read to its end is read on from there.
    let so_far = world.ok("sandbox.job.logs", json!({ "job_id": job })).await;
    node.log_again(job, 2, b"second\n").await;
    node.log(job, 4, b"fourth\n").await;
    let rest = world.ok("sandbox.job.logs", json!({ "job_id": job, "after": so_far["next"] })).await;
    assert_eq!(rest["content"], "fourth\n", "{so_far} {rest}");
    let mut result = node.result(job, End::Exited { code: 0 });
    result.log = LogExtent { chunks: 4, bytes: 26 };
    node.end(&result, started).await.expect("ended");
    let ended = world.until(job, "completed").await;
    assert_eq!(ended["log_tail"], "first\nsecond\nthird\nfourth\n");
    let printed = ctl(&world.gateway, &["jobs", "logs", &job.to_string(), "--follow"]).await;
    assert_eq!(printed.stdout, "first\nsecond\nthird\nfourth\n", "{printed:?}");
    let page = admin.get(&format!("/console/jobs/{job}")).await;
    assert_eq!((page.body.matches("second").count(), page.body.matches("fourth").count()), (1, 1));
}

/// Also while the job runs: readers wait for the rest of a character.
#[tokio::test]
async fn character_that_is_cut_between_chunks_is_shown_whole() {
    let world = World::new().await;
    let console = Gateway::of(&world.gateway);
    let admin = console.administrator().await;
    let node = world.node("one").await;
    let job = world.run(json!({})).await;
    let claimed = node.claim(job, 1, 0).await.expect("claimed");
    let started = node.record(job, Record::Started, claimed).await.expect("started");
    world.until(job, "running").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("follow.txt");
    let arguments = ["--gateway", &world.gateway.admin_url(), "--admin-token-file"].map(str::to_owned);
    let token = world.gateway.admin_token_file().display().to_string();
    let rest = [token, "jobs".to_owned(), "logs".to_owned(), job.to_string(), "--follow".to_owned()];
    let arguments: Vec<String> = arguments.into_iter().chain(rest).collect();
    let mut follower = Process::start(&cynodectl(), &arguments, &[], &file);
    let followed = || {
        let mut bytes = Vec::new();
        std::fs::File::open(&file).expect("a file").read_to_end(&mut bytes).expect("read");
        bytes
    };
    node.log(job, 1, b"price: 5 \xe2").await;
    node.log(job, 2, b"\x82").await;
    let page = format!("/console/jobs/{job}");
    eventually("the page shows the first chunks", async || {
        admin.get(&page).await.shows("price: 5").then_some(())
    })
    .await;
    let waiting = world.ok("sandbox.job.logs", json!({ "job_id": job })).await;
    assert_eq!((&waiting["content"], &waiting["has_more"]), (&json!("price: 5 "), &json!(false)));
    assert!(!admin.get(&page).await.shows("\u{fffd}"));
    node.log(job, 3, b"\xac a piece\n").await;
    let whole = "price: 5 \u{20ac} a piece\n";
    let rest = world.ok("sandbox.job.logs", json!({ "job_id": job, "after": waiting["next"] })).await;
    assert_eq!(rest["content"], "\u{20ac} a piece\n", "{waiting} {rest}");
    for limit in [4, 5, 11, 16_384] {
        assert_eq!(read(&world, job, limit).await, whole, "{limit}");
    }
    let shown = admin.get(&page).await;
    assert!(shown.shows("5 \u{20ac} a piece") && !shown.shows("\u{fffd}"), "{}", shown.body);
    // What no rest follows is shown at the end of the job.
    node.log(job, 4, b"\xe2\x82").await;
    let so_far = world.ok("sandbox.job.logs", json!({ "job_id": job, "after": rest["next"] })).await;
    assert_eq!(so_far["content"], "");
    let mut result = node.result(job, End::Exited { code: 0 });
    result.log = LogExtent { chunks: 4, bytes: 23 };
    node.end(&result, started).await.expect("ended");
    world.until(job, "completed").await;
    let last = world.ok("sandbox.job.logs", json!({ "job_id": job, "after": so_far["next"] })).await;
    assert_eq!((&last["content"], &last["is_complete"]), (&json!("\u{fffd}"), &json!(true)));
    assert!(follower.wait(std::time::Duration::from_secs(30)).success());
    assert_eq!(followed(), [whole.as_bytes(), b"\xe2\x82"].concat(), "bytes as the job wrote them");
}
