//! An ingest whose client or gateway is killed in the middle: run again, it is as if nothing had happened.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Value, json};
use testkit::{GatewayProcess, Process, cynodectl, eventually};

use super::sources;
use crate::administration::support::{ctl, store};
use sea_orm::EntityTrait;
use store::entity::{memory_chunk, memory_profile};

const FILES: usize = 3_000;

fn write_files(folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    for number in 0..FILES {
        let lines: String = (0..60).map(|line| format!("line {line} of otter {number}\n")).collect();
        fs::write(folder.join(format!("{number:04}.txt")), lines).unwrap();
    }
}

fn ingest(gateway: &GatewayProcess, folder: &Path) -> Process {
    let mut arguments = vec!["--gateway".to_owned(), gateway.admin_url(), "--admin-token-file".to_owned()];
    arguments.push(gateway.admin_token_file().display().to_string());
    arguments.extend(["memory", "ingest"].map(str::to_owned));
    arguments.push(folder.display().to_string());
    Process::start(&cynodectl(), &arguments, &[], &gateway.folder().join("ctl.log"))
}

/// The first ids of chunks by path, and the totals of the profile.
async fn rows(gateway: &GatewayProcess) -> (BTreeMap<String, Vec<String>>, (i64, i64)) {
    let db = store(gateway).await;
    let mut chunks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for chunk in memory_chunk::Entity::find().all(&db).await.unwrap() {
        chunks.entry(chunk.path).or_default().push(chunk.id);
    }
    chunks.values_mut().for_each(|ids| ids.sort());
    let totals = memory_profile::Entity::find_by_id("default").one(&db).await.unwrap().unwrap();
    (chunks, (totals.chunks, totals.bytes))
}

async fn killed_in_the_middle(of_gateway: bool) {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    write_files(&files);
    let mut gateway = GatewayProcess::start().await;
    let mut client = ingest(&gateway, &files);
    eventually("the first texts", async || (!sources(&gateway, "default").await.is_empty()).then_some(()))
        .await;
    if of_gateway {
        gateway.kill();
        assert!(!client.wait(std::time::Duration::from_secs(30)).success(), "its gateway is gone");
        gateway.start_again().await;
    } else {
        client.kill();
    }
    let (before, totals) = rows(&gateway).await;
    assert!(before.len() < FILES, "killed too late to show anything");
    let chunks: usize = before.values().map(Vec::len).sum();
    assert_eq!(i64::try_from(chunks).unwrap(), totals.0, "nothing is half there");
    let ran = ctl(&gateway, &["--json", "memory", "ingest", &files.display().to_string()]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let summary: Value = serde_json::from_str(ran.stdout.trim()).unwrap();
    assert_eq!(summary["changed"].as_u64().unwrap() + summary["unchanged"].as_u64().unwrap(), FILES as u64);
    assert!(
        summary["unchanged"].as_u64().unwrap() >= before.len() as u64,
        "what was there is not sent again"
    );

    // The same rows as in a gateway where nothing was killed.
    let fresh = GatewayProcess::start().await;
    assert_eq!(ctl(&fresh, &["memory", "ingest", &files.display().to_string()]).await.code, 0);
    let (left, right) = (rows(&gateway).await, rows(&fresh).await);
    assert!(left == right, "{:?} {:?}", left.1, right.1);
    let search = async |gateway: &GatewayProcess| {
        let mut found =
            gateway.must("GET", "/api/v1/memory/default/search?query=otter%20123&limit=20", None).await;
        found.as_array_mut().unwrap().iter_mut().for_each(|hit| hit["created_at"] = json!(null));
        found
    };
    assert_eq!(search(&gateway).await, search(&fresh).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_killed_in_the_middle_is_continued_by_the_next() {
    killed_in_the_middle(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateway_killed_during_a_put_stores_all_of_it_or_nothing() {
    killed_in_the_middle(true).await;
}
