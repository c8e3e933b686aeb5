//! The health of an upstream.

use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use time::OffsetDateTime;

use crate::Error;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Not used yet, or closed.
    Idle,
    Up,
    /// The last attempt failed, or the connection was lost, or the process ended.
    Down,
    /// The circuit breaker is open after too many failures.
    Open,
}

impl State {
    pub const ALL: [Self; 4] = [Self::Idle, Self::Up, Self::Down, Self::Open];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Up => "up",
            Self::Down => "down",
            Self::Open => "open",
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Health {
    pub state: State,
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// The negotiated protocol version, while the upstream is connected.
    pub version: Option<String>,
    pub last_error: Option<String>,
    /// The number of restarts of its process.
    pub restarts: u64,
    /// The number of calls that are running.
    pub in_flight: usize,
}

/// The last observed state, the time of its first observation, and the last error.
#[derive(Debug)]
pub(crate) struct StateTracker(Mutex<(State, OffsetDateTime, Option<String>)>);

impl StateTracker {
    pub(crate) fn new() -> Self {
        Self(Mutex::new((State::Idle, OffsetDateTime::now_utc(), None)))
    }

    pub(crate) fn record_error(&self, error: &Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).2 = Some(error.describe());
    }

    /// Records the current state. Returns when it was first observed, and the last error.
    pub(crate) fn observe(&self, state: State) -> (OffsetDateTime, Option<String>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0 != state {
            (seen.0, seen.1) = (state, OffsetDateTime::now_utc());
        }
        (seen.1, seen.2.clone())
    }
}
