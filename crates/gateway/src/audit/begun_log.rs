//! Calls without a key that began, a line each, in a file beside a store that is a file itself. A line survives the end of
//! this process as a commit of such a store does, and costs a tenth of one.
//!
//! Whatever the file does not take is written to the table of calls in flight, as all of it is where there is no file.

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

/// When nothing is in flight and the file is as large as this, it is begun anew.
const TIDY_AT: u64 = 256 * 1024;
/// If it was never quiet before that, the table takes over until it is.
const FULL_AT: u64 = 16 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct BegunLog {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Have their line, and not yet their row.
    open: HashMap<String, Open>,
    bytes: u64,
    /// Takes nothing until it is begun anew.
    is_full: bool,
}

#[derive(Debug)]
struct Open {
    until: i64,
    record: Record,
}

impl BegunLog {
    /// Nobody else may have it open: whoever begins it anew must know of every call in it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        file.try_lock()?;
        let bytes = file.metadata()?.len();
        // What is there already is from before us; what is to become of it is for recovery to say.
        let state = State { bytes, is_full: bytes >= FULL_AT, ..State::default() };
        Ok(Self { file, state: Mutex::new(state) })
    }

    /// Writes down that a call begins; gives it back if the table has to take it.
    pub(super) fn begin(&self, record: Record, until: i64) -> Result<(), Box<Record>> {
        let record = record.cut_off();
        let Ok(mut line) = serde_json::to_vec(&record) else { return Err(Box::new(record)) };
        line.push(b'\n');
        let mut state = self.state();
        if state.is_full {
            return Err(Box::new(record));
        }
        // One write, so that a line is there as a whole or, if this process ends in the middle, at the end of the file.
        if let Err(error) = (&self.file).write_all(&line) {
            warn!(%error, "Started-call log not writable; using the store instead.");
            state.is_full = true;
            return Err(Box::new(record));
        }
        state.bytes += line.len() as u64;
        state.is_full = state.bytes >= FULL_AT;
        state.open.insert(record.call_id.clone(), Open { until, record });
        Ok(())
    }

    pub(super) fn has(&self, call_id: &str) -> bool {
        self.state().open.contains_key(call_id)
    }

    /// The call has its row.
    pub(super) fn end(&self, call_id: &str) {
        let mut state = self.state();
        state.open.remove(call_id);
        if !state.open.is_empty() || (state.bytes < TIDY_AT && !state.is_full) {
            return;
        }
        match self.file.set_len(0) {
            Ok(()) => *state = State::default(),
            Err(error) => warn!(%error, "Started-call log cannot be truncated."),
        }
    }

    /// Calls that should have had their row by now.
    pub(super) fn overdue(&self, now: i64) -> Vec<Record> {
        let state = self.state();
        state.open.values().filter(|open| open.until < now).map(|open| open.record.clone()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a process that is gone left in its file.
pub(super) fn left(path: &Path) -> io::Result<Vec<Record>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut records = Vec::new();
    for line in BufReader::new(file).split(b'\n') {
        match serde_json::from_slice(&line?) {
            Ok(record) => records.push(record),
            // Its call was not made: nobody was told that it is written down.
            Err(error) => warn!(%error, "Started-call record is unreadable."),
        }
    }
    Ok(records)
}

/// Every call in the file has its row.
pub(super) fn clear(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.set_len(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Standing;

    fn record(call_id: &str) -> Record {
        Record::begin(call_id.to_owned(), 0, &Standing::Unknown, "a.tool")
    }

    fn ids(path: &Path) -> Vec<String> {
        left(path).expect("readable").into_iter().map(|record| record.call_id).collect()
    }

    #[test]
    fn what_began_is_found_and_begins_anew_when_it_is_quiet() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("begun");
        assert_eq!(ids(&path), Vec::<String>::new());
        let log = BegunLog::open(&path).expect("writable");
        assert!(BegunLog::open(&path).is_err(), "one at a time");
        log.begin(record("one"), 5).expect("taken");
        log.begin(record("two"), 7).expect("taken");
        assert_eq!(ids(&path), ["one", "two"]);
        assert_eq!(log.overdue(6).len(), 1);
        log.end("one");
        assert!(!log.has("one") && log.has("two"));
        assert_eq!(ids(&path), ["one", "two"], "a little is left");
        let mut count = 0;
        while log.state().bytes < TIDY_AT {
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
    fn a_line_that_was_cut_off_was_no_call() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("begun");
        BegunLog::open(&path).expect("writable").begin(record("one"), 5).expect("taken");
        let mut file = OpenOptions::new().append(true).open(&path).expect("writable");
        file.write_all(br#"{"created_at":0,"call_"#).expect("written");
        assert_eq!(ids(&path), ["one"]);
        clear(&path).expect("writable");
        assert_eq!(ids(&path), Vec::<String>::new());
    }

    #[test]
    fn a_full_file_takes_nothing_until_it_is_quiet() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("begun");
        let log = BegunLog::open(&path).expect("writable");
        log.begin(record("one"), 5).expect("taken");
        log.state().is_full = true;
        assert_eq!(log.begin(record("two"), 5).expect_err("not taken").call_id, "two");
        log.end("one");
        log.begin(record("three"), 5).expect("taken");
        assert_eq!(ids(&path), ["three"]);
    }
}
