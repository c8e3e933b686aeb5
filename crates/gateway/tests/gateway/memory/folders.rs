//! Which folder an ingested text belongs to, and that no other ingest changes it.

use std::{fs, os::unix::fs::symlink, path::Path, time::Duration};

use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use testkit::{Finished, GatewayProcess, Process, cynodectl, eventually, run};

use super::{ingest::write, sources};
use crate::administration::support::ctl;

const CHANGES: &str = "/api/v1/memory/default";

fn line(gateway: &GatewayProcess, words: &[&str]) -> Vec<String> {
    let token = gateway.admin_token_file().display().to_string();
    let link = ["--gateway", &gateway.admin_url(), "--admin-token-file", &token, "memory", "ingest"];
    link.iter().chain(words).map(|word| (*word).to_owned()).collect()
}

/// Ingests in a working directory.
async fn ingest_in(gateway: &GatewayProcess, at: &Path, words: &[&str]) -> Finished {
    let (line, at) = (line(gateway, words), at.to_owned());
    tokio::task::spawn_blocking(move || run(&cynodectl(), &at, &line, &[])).await.unwrap()
}

async fn paths(gateway: &GatewayProcess) -> Vec<String> {
    sources(gateway, "default").await.into_keys().collect()
}

/// The sources of all texts, without their repetitions.
async fn origins(gateway: &GatewayProcess) -> Vec<String> {
    let all = gateway.must("GET", CHANGES, None).await;
    let mut origins: Vec<String> =
        all.as_array().unwrap().iter().map(|it| it["source"].as_str().unwrap().to_owned()).collect();
    origins.sort();
    origins.dedup();
    origins
}

/// What earlier releases wrote for a folder whose path was typed like this.
fn former_source(name: &str, typed: &Path) -> String {
    let digest = Sha256::digest(typed.as_os_str().as_encoded_bytes());
    format!("ingest:{name}#{}", HEXLOWER.encode(&digest[..4]))
}

/// One folder is one, however its path is written.
#[tokio::test]
async fn folder_is_the_same_in_every_spelling() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    let outer = outer.path().canonicalize().unwrap();
    write(&outer, "docs/one.md", "an otter");
    fs::create_dir(outer.join("x")).unwrap();
    symlink("docs", outer.join("handbook")).unwrap();
    symlink(".", outer.join("here")).unwrap();
    let first = ingest_in(&gateway, &outer, &["handbook"]).await;
    assert!(first.stdout.contains("1 new or changed"), "{first:?}");
    let (absolute, linked) = (outer.join("docs"), outer.join("here/docs"));
    for (at, typed) in [
        ("", "docs"),
        ("", "./docs"),
        ("", "docs/"),
        ("", "x/../docs"),
        ("x", "../docs"),
        ("docs", "."),
        ("", "handbook"),
        ("", "handbook/."),
        ("", absolute.to_str().unwrap()),
        ("", linked.to_str().unwrap()),
    ] {
        let ran = ingest_in(&gateway, &outer.join(at), &[typed]).await;
        let same = "0 new or changed, 1 unchanged, 0 removed";
        assert!(ran.code == 0 && ran.stdout.contains(same), "{at} {typed}: {ran:?}");
    }
    assert_eq!(paths(&gateway).await, ["handbook/one.md"]);
    // Another name is a wish.
    let ran = ingest_in(&gateway, &outer, &["docs", "--name", "guide"]).await;
    assert!(ran.code == 0 && ran.stderr.contains("also ingested under the name handbook;"), "{ran:?}");
    assert_eq!(paths(&gateway).await, ["guide/one.md", "handbook/one.md"]);
}

/// What an earlier release ingested under a path as it was typed is found again, and kept once.
#[tokio::test]
async fn folder_that_was_ingested_under_a_former_spelling_is_found_again() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    let outer = outer.path().canonicalize().unwrap();
    write(&outer, "docs/one.md", "an otter");
    write(&outer, "docs/two.md", "two otters");
    symlink("docs", outer.join("handbook")).unwrap();
    let source = former_source("handbook", &outer.join("handbook"));
    let put = json!({ "path": "handbook/one.md", "text": "an otter", "source": source });
    gateway.must("POST", CHANGES, Some(json!({ "put": [put] }))).await;
    let ran = ingest_in(&gateway, &outer, &["handbook"]).await;
    assert!(ran.code == 0 && ran.stdout.contains("2 new or changed"), "{ran:?}");
    for typed in ["docs", "handbook"] {
        let ran = ingest_in(&gateway, &outer, &[typed]).await;
        assert!(ran.code == 0 && ran.stdout.contains("0 new or changed, 2 unchanged"), "{typed}: {ran:?}");
    }
    assert_eq!(paths(&gateway).await, ["handbook/one.md", "handbook/two.md"]);
    let origins = origins(&gateway).await;
    assert_eq!(origins.len(), 1, "{origins:?}");
    assert!(origins[0].starts_with("ingest:handbook#"), "{origins:?}");
    // It is of this machine from now on.
    for former in ["docs", "handbook"] {
        assert_ne!(origins[0], former_source("handbook", &outer.join(former)));
    }
}

/// What another machine ingested from a folder of the same path is not touched, also if some of it is from
/// before folders were told apart by their machines.
#[tokio::test]
async fn same_path_on_another_machine_is_another_folder() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    let outer = outer.path().canonicalize().unwrap();
    write(&outer, "docs/three.md", "three otters");
    let former = former_source("docs", &outer.join("docs"));
    let put = |path: &str, source: &str| json!({ "path": path, "text": "an otter", "source": source });
    let put = [put("docs/one.md", &former), put("docs/two.md", "ingest:docs#00000000")];
    gateway.must("POST", CHANGES, Some(json!({ "put": put }))).await;
    for more in [&[][..], &["--allow-empty"]] {
        let ran = ingest_in(&gateway, &outer, &[&["docs"], more].concat()).await;
        assert!(ran.code == 1 && ran.stderr.contains("--moved"), "{ran:?}");
        assert_eq!(paths(&gateway).await, ["docs/one.md", "docs/two.md"]);
    }
    let ran = ingest_in(&gateway, &outer, &["docs", "--moved"]).await;
    assert!(ran.stdout.contains("1 new or changed, 0 unchanged, 2 removed"), "{ran:?}");
}

/// An ingest says whose texts it may change, and the gateway changes no other, in any statement.
#[tokio::test]
async fn changes_of_a_folder_leave_what_another_has() {
    let gateway = GatewayProcess::start().await;
    let put = |path: &str, text: &str, source: &str| json!({ "path": path, "text": text, "source": source });
    let of = |sources: &[&str], put: &[Value], delete: &[&str]| {
        let folder = json!({ "prefix": "docs/", "sources": sources });
        Some(json!({ "put": put, "delete": delete, "folder": folder }))
    };
    let first = put("docs/one.md", "the first", "ingest:docs#a");
    gateway.must("POST", CHANGES, of(&["ingest:docs#a"], &[first], &[])).await;
    let before = sources(&gateway, "default").await;
    for (changes, status) in [
        (of(&["ingest:docs#b"], &[put("docs/one.md", "second", "ingest:docs#b")], &[]), 409),
        (of(&["ingest:docs#b"], &[put("docs/two.md", "second", "ingest:docs#b")], &[]), 409),
        (of(&["ingest:docs#b"], &[], &["docs/one.md"]), 409),
        (of(&[], &[], &["docs/one.md"]), 409),
        (of(&["ingest:docs#a"], &[], &["other/one.md"]), 422),
        (of(&["ingest:docs#a"], &[put("doc", "x", "ingest:docs#a")], &[]), 422),
    ] {
        let asked = gateway.ask("POST", CHANGES, changes.clone()).await;
        assert_eq!(asked.status, status, "{changes:?}: {asked:?}");
    }
    assert_eq!(sources(&gateway, "default").await, before);
    // What an agent keeps there is replaced by a file, and deleted by nobody who did not ingest it.
    let agent = gateway.agent(&gateway.manager().await);
    gateway.call(&agent, "memory.put", json!({ "path": "docs/note.md", "text": "mine" })).await.unwrap();
    let gone = gateway.must("POST", CHANGES, of(&["ingest:docs#a"], &[], &["docs/note.md"])).await;
    assert_eq!(gone["deleted"], 0);
    let file = put("docs/note.md", "a file", "ingest:docs#a");
    gateway.must("POST", CHANGES, of(&["ingest:docs#a"], &[file], &[])).await;
    // Who knows of the other folder takes its place.
    let taken = put("docs/one.md", "second", "ingest:docs#b");
    let both = of(&["ingest:docs#b", "ingest:docs#a"], &[taken], &["docs/note.md"]);
    assert_eq!(gateway.must("POST", CHANGES, both).await["deleted"], 1);
    assert_eq!(origins(&gateway).await, ["ingest:docs#b"]);
}

/// A watched folder whose name another one takes does not take it back.
#[tokio::test]
async fn watcher_ends_when_another_folder_takes_its_name() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    write(outer.path(), "a/docs/one.md", "the first otter");
    write(outer.path(), "b/docs/two.md", "the second otter");
    let dir = |name: &str| outer.path().join(name).join("docs").display().to_string();
    let log = outer.path().join("log");
    let arguments = line(&gateway, &[&dir("a"), "--watch"]);
    let mut watcher = Process::start(&cynodectl(), &arguments, &[], &log);
    eventually("the first file", async || (paths(&gateway).await == ["docs/one.md"]).then_some(())).await;
    let moved = ctl(&gateway, &["memory", "ingest", &dir("b"), "--moved"]).await;
    assert_eq!(moved.code, 0, "{moved:?}");
    write(outer.path(), "a/docs/one.md", "the first otter is back");
    assert_eq!(watcher.wait(Duration::from_secs(20)).code(), Some(1));
    assert!(fs::read_to_string(&log).unwrap().contains("were ingested from another folder"));
    assert_eq!(paths(&gateway).await, ["docs/two.md"]);
}

/// A watcher that has nothing to send learns it, too.
#[tokio::test]
async fn idle_watcher_ends_when_another_folder_takes_its_name() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    write(outer.path(), "a/docs/one.md", "the first otter");
    write(outer.path(), "b/docs/two.md", "the second otter");
    let dir = |name: &str| outer.path().join(name).join("docs").display().to_string();
    let log = outer.path().join("log");
    let arguments = line(&gateway, &[&dir("a"), "--watch"]);
    let mut watcher = Process::start(&cynodectl(), &arguments, &[], &log);
    eventually("the end of its first update", async || {
        fs::read_to_string(&log).unwrap().contains("watching for changes").then_some(())
    })
    .await;
    assert_eq!(ctl(&gateway, &["memory", "ingest", &dir("b"), "--moved"]).await.code, 0);
    assert_eq!(watcher.wait(Duration::from_secs(30)).code(), Some(1));
    assert!(fs::read_to_string(&log).unwrap().contains("were ingested from another folder"));
    assert_eq!(paths(&gateway).await, ["docs/two.md"]);
}

/// A watcher that took a name does not take it back when it is taken from it, and leaves no text behind that
/// has the source of the former folder.
#[tokio::test]
async fn watcher_that_took_a_name_takes_it_once() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    write(outer.path(), "a/docs/one.md", "the first otter");
    write(outer.path(), "a/docs/sub/kept.md", "the otter that stays");
    write(outer.path(), "b/docs/two.md", "the second otter");
    let dir = |name: &str| outer.path().join(name).join("docs").display().to_string();
    assert_eq!(ctl(&gateway, &["memory", "ingest", &dir("a")]).await.code, 0);
    let first = origins(&gateway).await;
    // The rules of this folder cannot be read, so that what was ingested from it stays.
    fs::create_dir_all(outer.path().join("b/docs/sub/.gitignore")).unwrap();
    let log = outer.path().join("log");
    let arguments = line(&gateway, &[&dir("b"), "--moved", "--watch"]);
    let mut watcher = Process::start(&cynodectl(), &arguments, &[], &log);
    let taken = ["docs/sub/kept.md", "docs/two.md"];
    eventually("the second folder", async || {
        let origins = origins(&gateway).await;
        (paths(&gateway).await == taken && origins.len() == 1 && origins != first).then_some(())
    })
    .await;
    eventually("the end of its first update", async || {
        fs::read_to_string(&log).unwrap().contains("watching for changes").then_some(())
    })
    .await;
    assert_eq!(ctl(&gateway, &["memory", "ingest", &dir("a"), "--moved"]).await.code, 0);
    write(outer.path(), "b/docs/two.md", "the second otter is back");
    assert_eq!(watcher.wait(Duration::from_secs(20)).code(), Some(1));
    assert!(fs::read_to_string(&log).unwrap().contains("were ingested from another folder"));
    assert_eq!(paths(&gateway).await, ["docs/one.md", "docs/sub/kept.md"]);
}

/// Of two folders of one name that are ingested at the same time, one is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_of_one_name_are_never_mixed() {
    let gateway = GatewayProcess::start().await;
    let outer = tempfile::tempdir().unwrap();
    for number in 0..450 {
        for name in ["a", "b"] {
            write(outer.path(), &format!("{name}/docs/{name}{number}.md"), format!("otter {number}"));
        }
    }
    let (first, second) = tokio::join!(
        ingest_in(&gateway, outer.path(), &["a/docs"]),
        ingest_in(&gateway, outer.path(), &["b/docs"])
    );
    let mut codes = [first.code, second.code];
    codes.sort();
    assert_eq!(codes, [0, 1], "{first:?} {second:?}");
    assert_eq!((paths(&gateway).await.len(), origins(&gateway).await.len()), (450, 1));
}
