use std::time::Instant;

use tempfile::TempDir;
use tokio::{join, time::sleep};

use super::*;
use policy::Standing;

use store::Options;

use crate::{
    chain::{LastRow, chain_rows},
    record::Record,
};

struct TestStore {
    folder: TempDir,
    store: Store,
}

impl TestStore {
    async fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}", folder.path().join("store.db").display());
        let patience = Duration::from_secs(2);
        let options = Options { url, max_connections: 4, patience, durability: Durability::Process };
        let store = Store::open(&options).await.expect("a store");
        Self { folder, store }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("store.db")
    }

    fn appender(&self, durability: Durability) -> Appender {
        Appender { durability, ..Appender::for_store(&self.store).expect("a file") }
    }

    fn stored(&self) -> i64 {
        let connection = Connection::open(self.path()).expect("it opens");
        connection.query_row("SELECT count(*) FROM audit", [], |row| row.get(0)).expect("a number")
    }
}

fn rows(after: i64, count: i64) -> Vec<Row> {
    let record =
        |number: i64| Record::begin(format!("call-{}", after + number), 0, &Standing::Unknown, "a.tool");
    chain_rows(&LastRow { seq: after, hash: String::new() }, (0..count).map(record).collect()).0
}

#[tokio::test]
async fn rows_are_stored_when_append_returns() {
    let place = TestStore::new().await;
    for (durability, after) in [(Durability::Process, 0), (Durability::Power, 10)] {
        let mut appender = place.appender(durability);
        appender.append(rows(after, 1)).await.expect("added");
        appender.append(rows(after + 1, 5)).await.expect("added");
        assert_eq!(place.stored(), if durability == Durability::Process { 6 } else { 12 });
    }
}

#[tokio::test]
async fn a_taken_sequence_number_is_rejected_and_no_row_of_its_group_is_stored() {
    let place = TestStore::new().await;
    place.appender(Durability::Process).append(rows(2, 1)).await.expect("added");
    for taken in [rows(2, 1), rows(0, 5)] {
        let refused = place.appender(Durability::Process).append(taken).await.expect_err("taken");
        assert!(matches!(refused, WriteError::SequenceTaken), "{refused:?}");
        assert_eq!(place.stored(), 1);
    }
}

/// Runs on one thread: if the append blocked it, the task that releases the lock could not run.
#[tokio::test(flavor = "current_thread")]
async fn waiting_for_another_process_does_not_block_the_thread() {
    let place = TestStore::new().await;
    let other = Connection::open(place.path()).expect("it opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let began = Instant::now();
    let holding = async {
        sleep(Duration::from_millis(150)).await;
        assert!(began.elapsed() < Duration::from_secs(5), "the thread was held up");
        assert_eq!(place.stored(), 0);
        other.execute_batch("COMMIT").expect("released");
    };
    let mut appender = place.appender(Durability::Process);
    let (added, ()) = join!(appender.append(rows(0, 1)), holding);
    added.expect("added");
    appender.append(rows(1, 1)).await.expect("added");
    assert_eq!(place.stored(), 2);
}
