use policy::Standing;
use store::{Durability, Options, clock};
use tempfile::TempDir;

use super::*;
use crate::{
    query::rows_after,
    record::{Decision, Record, Status},
};

/// A writer whose messages a test hands over itself.
struct Stage {
    writer: Writer,
    log: Arc<InFlightLog>,
    _folder: TempDir,
}

impl Stage {
    async fn new(fast_append: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite://{}", folder.path().join("store.db").display());
        let patience = Duration::from_secs(2);
        let options = Options { url, max_connections: 4, patience, durability: Durability::Process };
        let store = Store::open(&options).await.expect("a store");
        let log = Arc::new(InFlightLog::open(store.in_flight_log().expect("a path")).expect("a log"));
        let (head_sender, _) = watch::channel((0, String::new()));
        let metrics = Metrics::default();
        let writer = Writer::new(store, fast_append, head_sender, metrics, Some(log.clone()), Arc::default());
        Self { writer, log, _folder: folder }
    }

    /// Begins a call that is overdue at once, and returns its record.
    fn begin(&self, call_id: &str) -> Record {
        let now = clock::now();
        let mut record = Record::begin(call_id.to_owned(), now, &Standing::Unknown, "a.tool");
        record.set_decision(Decision::Allow);
        self.log.begin(record.clone(), now - 1).expect("taken");
        record
    }

    fn enqueue_overdue(&mut self) -> usize {
        let (done, mut count) = oneshot::channel();
        self.writer.enqueue(Message::Overdue(done));
        count.try_recv().expect("a number")
    }

    /// Queues the row of a call that ended after all.
    fn enqueue_end(&mut self, mut record: Record) -> oneshot::Receiver<()> {
        let (done, written) = oneshot::channel();
        record.end(Decision::Allow, Status::Success, None, clock::now());
        let (announcement, deadline) = (Announcement::Made, Instant::now() + Duration::from_secs(5));
        let (done, was_tried, is_overdue) = (Some(done), false, false);
        self.writer.enqueue(Message::End(End {
            record,
            announcement,
            done,
            deadline,
            was_tried,
            is_overdue,
        }));
        written
    }

    async fn rows(&self) -> Vec<(String, String)> {
        let rows = rows_after(&self.writer.store, 0, 10).await.expect("rows");
        rows.into_iter().map(|row| (row.call_id, row.status)).collect()
    }
}

fn row(call_id: &str, status: &str) -> (String, String) {
    (call_id.to_owned(), status.to_owned())
}

#[tokio::test]
async fn an_overdue_call_that_ends_after_all_has_one_row() {
    for fast_append in [true, false] {
        let mut stage = Stage::new(fast_append).await;
        // It ends while the row of the overdue call waits: the outcome is known then.
        let (first, _) = (stage.begin("first"), stage.begin("second"));
        assert_eq!(stage.enqueue_overdue(), 2);
        let mut written = stage.enqueue_end(first);
        stage.writer.write().await;
        assert_eq!(written.try_recv(), Ok(()), "its caller is told");
        let mut rows = stage.rows().await;
        rows.sort();
        assert_eq!(rows, [row("first", "success"), row("second", "unknown")]);
        assert!(!stage.log.contains("first") && !stage.log.contains("second"));

        // It ends first: nothing is overdue.
        let third = stage.begin("third");
        let mut written = stage.enqueue_end(third);
        assert_eq!(stage.enqueue_overdue(), 0);
        stage.writer.write().await;
        assert_eq!((written.try_recv(), stage.rows().await.len()), (Ok(()), 3));
        assert_eq!(stage.rows().await.last(), Some(&row("third", "success")));
    }
}

/// Also if a call is queued twice, of which one may have been committed.
#[tokio::test]
async fn group_has_one_row_per_call() {
    for fast_append in [true, false] {
        let mut stage = Stage::new(fast_append).await;
        let record = stage.begin("call");
        let (mut first, mut second) = (stage.enqueue_end(record.clone()), stage.enqueue_end(record));
        stage.writer.ends.iter_mut().for_each(|end| end.was_tried = true);
        stage.writer.write().await;
        assert_eq!((first.try_recv(), second.try_recv()), (Ok(()), Ok(())));
        assert_eq!(stage.rows().await, [row("call", "success")]);
    }
}
