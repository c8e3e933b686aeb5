//! A clock for gateways that stands still until a test sets it.

use std::{fs, path::PathBuf};

use subjects::Timestamp;
use tempfile::TempDir;

/// The time of the gateways that are started with it, or of their machines. Only debug builds of the gateway
/// have such a clock.
#[derive(Debug)]
pub struct TestClock {
    folder: TempDir,
}

impl TestClock {
    /// Returns a clock that shows a time in RFC 3339.
    pub fn at(time: &str) -> Self {
        let clock = Self { folder: tempfile::tempdir().expect("a folder for the clock") };
        clock.set(time);
        clock
    }

    /// Sets the time, in RFC 3339.
    pub fn set(&self, time: &str) {
        let at = time.parse::<Timestamp>().expect("a time").at();
        self.set_micros(i64::try_from(at.unix_timestamp_nanos() / 1_000).expect("a time of our days"));
    }

    /// Sets the time in microseconds since 1970. Gateways read the old time or the new one, never a part.
    pub fn set_micros(&self, micros: i64) {
        let next = self.folder.path().join("next");
        fs::write(&next, micros.to_string()).expect("the clock can be written");
        fs::rename(&next, self.file()).expect("the clock can be set");
    }

    /// Returns the environment variable for a process whose time it is, wherever that has its time from.
    pub fn variable(&self) -> (String, String) {
        ("CYNODE_CLOCK_FILE".to_owned(), self.file().display().to_string())
    }

    /// Returns the environment variable for a process on a machine whose clock it is. A gateway on PostgreSQL
    /// goes by the clock of the database server instead.
    pub fn variable_of_machine(&self) -> (String, String) {
        ("CYNODE_MACHINE_CLOCK_FILE".to_owned(), self.file().display().to_string())
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("clock")
    }
}
