//! The in-flight log: started calls without an idempotency key, one JSON line each, in a file next to the
//! SQLite store.
//!
//! A line survives the end of this process like a SQLite commit does, and costs a tenth of one. Calls that
//! the file cannot take go to the table of calls in flight, as all calls do where there is no file.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tracing::warn;

use super::record::Record;

/// The file is truncated when it has reached this size and no call is in flight.
const TRUNCATE_AT_BYTES: u64 = 256 * 1024;
/// From this size on, calls go to the table until the file could be truncated.
const FULL_AT_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct InFlightLog {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Calls that have a line here and no audit row yet, by call id.
    open: HashMap<String, Open>,
    bytes: u64,
    /// Accepts no line until the file is truncated.
    is_full: bool,
}

#[derive(Debug)]
struct Open {
    /// Time in microseconds after which the call is overdue.
    until: i64,
    record: Record,
}

impl InFlightLog {
    /// Opens the file and locks it: the process that truncates it must know every call in it. Fails if
    /// another process holds the lock.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        file.try_lock()?;
        let bytes = file.metadata()?.len();
        // Lines that are already there are from an earlier process; recovery handles them.
        let state = State { bytes, is_full: bytes >= FULL_AT_BYTES, ..State::default() };
        Ok(Self { file, state: Mutex::new(state) })
    }

    /// Logs that a call begins. Returns the record if it has to go to the table instead.
    pub(super) fn begin(&self, record: Record, until: i64) -> Result<(), Box<Record>> {
        let record = record.into_interrupted();
        let Ok(mut line) = serde_json::to_vec(&record) else { return Err(Box::new(record)) };
        line.push(b'\n');
        let mut state = self.state();
        if state.is_full {
            return Err(Box::new(record));
        }
        // A single write, so that only the last line of the file can be incomplete.
        if let Err(error) = (&self.file).write_all(&line) {
            warn!(%error, "In-flight log not writable; using the store instead.");
            state.is_full = true;
            return Err(Box::new(record));
        }
        state.bytes += line.len() as u64;
        state.is_full = state.bytes >= FULL_AT_BYTES;
        state.open.insert(record.call_id.clone(), Open { until, record });
        Ok(())
    }

    pub(super) fn contains(&self, call_id: &str) -> bool {
        self.state().open.contains_key(call_id)
    }

    /// Marks a call as recorded in the audit, and truncates the file when that is due.
    pub(super) fn end(&self, call_id: &str) {
        let mut state = self.state();
        state.open.remove(call_id);
        if !state.open.is_empty() || (state.bytes < TRUNCATE_AT_BYTES && !state.is_full) {
            return;
        }
        match self.file.set_len(0) {
            Ok(()) => *state = State::default(),
            Err(error) => warn!(%error, "In-flight log cannot be truncated."),
        }
    }

    /// Returns calls whose audit row is overdue at `now`.
    pub(super) fn overdue(&self, now: i64) -> Vec<Record> {
        let state = self.state();
        state.open.values().filter(|open| open.until < now).map(|open| open.record.clone()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the calls that an earlier process left in its file. A missing file has none.
pub(super) fn read(path: &Path) -> io::Result<Vec<Record>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut records = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        match serde_json::from_slice(&line?) {
            Ok(record) => records.push(record),
            // The line is incomplete, so the process ended before it made the call.
            Err(error) => warn!(%error, "In-flight record unreadable."),
        }
    }
    Ok(records)
}

/// Empties the file. Every call in it must have its audit row.
pub(super) fn clear(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.set_len(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::Standing;

    fn record(call_id: &str) -> Record {
        Record::begin(call_id.to_owned(), 0, &Standing::Unknown, "a.tool")
    }

    fn ids(path: &Path) -> Vec<String> {
        read(path).expect("readable").into_iter().map(|record| record.call_id.clone()).collect()
    }

    #[test]
    fn started_calls_are_logged_and_the_file_is_truncated_when_none_is_in_flight() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("in-flight");
        assert_eq!(ids(&path), Vec::<String>::new());
        let log = InFlightLog::open(&path).expect("writable");
        assert!(InFlightLog::open(&path).is_err(), "one at a time");
        log.begin(record("one"), 5).expect("taken");
        log.begin(record("two"), 7).expect("taken");
        assert_eq!(ids(&path), ["one", "two"]);
        assert_eq!(log.overdue(6).len(), 1);
        log.end("one");
        assert!(!log.contains("one") && log.contains("two"));
        assert_eq!(ids(&path), ["one", "two"], "too small to be truncated");
        let mut count = 0;
        while log.state().bytes < TRUNCATE_AT_BYTES {
            log.begin(record(&format!("more-{count}")), 5).expect("taken");
            log.end(&format!("more-{count}"));
            count += 1;
        }
        assert_eq!(ids(&path).len(), count + 2, "one is still in flight");
        log.end("two");
        assert_eq!(ids(&path), Vec::<String>::new());
        log.begin(record("three"), 5).expect("taken");
        assert_eq!(ids(&path), ["three"]);
    }

    #[test]
    fn an_incomplete_last_line_is_ignored() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("in-flight");
        InFlightLog::open(&path).expect("writable").begin(record("one"), 5).expect("taken");
        let mut file = OpenOptions::new().append(true).open(&path).expect("writable");
        file.write_all(br#"{"created_at":0,"call_"#).expect("written");
        assert_eq!(ids(&path), ["one"]);
        clear(&path).expect("writable");
        assert_eq!(ids(&path), Vec::<String>::new());
    }

    #[test]
    fn a_full_file_accepts_no_call_until_it_is_truncated() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("in-flight");
        let log = InFlightLog::open(&path).expect("writable");
        log.begin(record("one"), 5).expect("taken");
        log.state().is_full = true;
        assert_eq!(log.begin(record("two"), 5).expect_err("not taken").call_id, "two");
        log.end("one");
        log.begin(record("three"), 5).expect("taken");
        assert_eq!(ids(&path), ["three"]);
    }
}
