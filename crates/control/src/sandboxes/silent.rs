//! Tracks jobs whose nodes have stopped reporting, as observed by this process.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Nodes report every three seconds.
const CONFIRM_AFTER: Duration = Duration::from_secs(10);
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// Since when this process knows that the nodes of jobs are silent. Times in the store are old also if the
/// gateway was stopped or its clock was moved; then the nodes report again within seconds.
#[derive(Debug, Default)]
pub(crate) struct SilentJobs(Mutex<HashMap<String, (Instant, Instant)>>);

impl SilentJobs {
    /// Records whether the node of a job is silent. Returns whether it was so a while ago, and ever since.
    pub(crate) fn confirms(&self, job: &str, is_silent: bool) -> bool {
        let now = Instant::now();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, (_, last)| now.duration_since(*last) < FORGET_AFTER);
        if !is_silent {
            known.remove(job);
            return false;
        }
        let (first, last) = known.entry(job.to_owned()).or_insert((now, now));
        *last = now;
        now.duration_since(*first) >= CONFIRM_AFTER
    }
}
