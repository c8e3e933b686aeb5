use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use sea_orm::{EntityTrait, TransactionTrait};
use tempfile::TempDir;

use super::*;
use crate::{Durability, Options, commits::CHECKPOINT_AFTER, entity::revision};

const PAGE: u64 = 4_096;

async fn open(folder: &TempDir) -> Store {
    let url = format!("sqlite://{}", folder.path().join("store.db").display());
    let patience = Duration::from_secs(2);
    let options = Options { url, max_connections: 4, patience, durability: Durability::Process };
    Store::open(&options).await.expect("a store")
}

/// Returns how often the log was begun anew, as its header says.
fn restarts(folder: &Path) -> u32 {
    let log = fs::read(folder.join("store.db-wal")).expect("a log");
    log.get(12..16).map_or(0, |bytes| u32::from_be_bytes(bytes.try_into().expect("four bytes")))
}

async fn write_until_restarted(store: &Store, folder: &Path, times: u32) {
    let (first, began) = (restarts(folder), Instant::now());
    while restarts(folder) < first + times {
        for _ in 0..100 {
            store.probe_write().await.expect("written");
        }
        let log = fs::metadata(folder.join("store.db-wal")).expect("a log").len();
        assert!(began.elapsed() < Duration::from_secs(30), "the log only grows: {log} bytes");
    }
}

/// A probe that the disk never sees would not notice that it is full.
#[tokio::test]
async fn probe_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder).await;
    let log = || fs::metadata(folder.path().join("store.db-wal")).expect("a log").len();
    let before = log();
    store.probe_write().await.expect("written");
    assert!(log() > before);
}

#[tokio::test]
async fn log_begins_anew_while_it_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder).await;
    let stop = CancellationToken::new();
    let checkpointer = Checkpointer::for_store(&store).expect("a file").run(stop.clone());
    let writing = async {
        write_until_restarted(&store, folder.path(), 5).await;
        stop.cancel();
    };
    tokio::join!(checkpointer, writing);
    let log = fs::metadata(folder.path().join("store.db-wal")).expect("a log").len();
    // SQLite's own checkpoint would have run at 16,000 pages.
    assert!(log < 16_000 * PAGE, "{log}");
}

#[tokio::test]
async fn log_begins_anew_after_a_long_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder).await;
    let stop = CancellationToken::new();
    let checkpointer = Checkpointer::for_store(&store).expect("a file").run(stop.clone());
    let writing = async {
        write_until_restarted(&store, folder.path(), 1).await;
        let reading = store.read().begin().await.expect("a transaction");
        revision::Entity::find().all(&reading).await.expect("read");
        let before = restarts(folder.path());
        for _ in 0..10 * CHECKPOINT_AFTER {
            store.probe_write().await.expect("a reader keeps no writer waiting");
        }
        // At most once more: the reader holds what the log had when it began.
        assert!(restarts(folder.path()) <= before + 1);
        reading.commit().await.expect("ended");
        write_until_restarted(&store, folder.path(), 2).await;
        stop.cancel();
    };
    tokio::join!(checkpointer, writing);
}

/// Rows that were deleted are in the log as they were before.
#[tokio::test]
async fn log_is_emptied_unless_a_reader_uses_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(&folder).await;
    let log = || fs::metadata(folder.path().join("store.db-wal")).expect("a log").len();
    let checkpointer = Checkpointer::for_store(&store).expect("a file");
    store.probe_write().await.expect("written");
    let reading = store.read().begin().await.expect("a transaction");
    revision::Entity::find().all(&reading).await.expect("read");
    store.probe_write().await.expect("written");
    let began = Instant::now();
    checkpointer.empty().await.expect("tried");
    assert!(began.elapsed() < BUSY_TIMEOUT / 2, "it waits for no reader: {:?}", began.elapsed());
    assert!(log() > 0 && store.commits.has_any_since_emptied());
    reading.commit().await.expect("ended");
    checkpointer.empty().await.expect("emptied");
    assert_eq!(log(), 0);
    // Emptying the log is no write.
    assert!(!store.commits.has_any_since_emptied());
    store.probe_write().await.expect("written");
    assert!(log() > 0 && store.commits.has_any_since_emptied());
}
