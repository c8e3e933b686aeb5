use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use time::OffsetDateTime;

use crate::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Not asked for anything yet, or closed.
    Idle,
    Up,
    /// The last attempt failed, or the connection or the process is gone.
    Down,
    /// It failed too often and is left alone for a while.
    Open,
}

#[derive(Clone, Debug, Serialize)]
pub struct Health {
    pub state: State,
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// The version of the protocol that was agreed on, while it is up.
    pub version: Option<String>,
    pub last_error: Option<String>,
    /// How often its process was started again.
    pub restarts: u64,
    /// Calls that are running.
    pub in_flight: usize,
}

/// The state that was last seen, and since when.
#[derive(Debug)]
pub(crate) struct Seen(Mutex<(State, OffsetDateTime, Option<String>)>);

impl Seen {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((State::Idle, OffsetDateTime::now_utc(), None)))
    }

    pub(crate) fn failed(&self, error: &Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).2 = Some(error.in_full());
    }

    /// Since when it is so, and what went wrong last.
    pub(crate) fn look(&self, state: State) -> (OffsetDateTime, Option<String>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0 != state {
            (seen.0, seen.1) = (state, OffsetDateTime::now_utc());
        }
        (seen.1, seen.2.clone())
    }
}
