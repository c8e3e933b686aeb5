//! Decides which messages of the outbox are published at the same time, so that a subject that is refused or
//! slow delays no other.
//!
//! - Each key has one lane at a time, so its messages stay in order.
//! - A subject has a limited number of lanes. When a publish on it fails, it is paused; then a single message
//!   of it is tried, the *probe*, until one succeeds.
//! - A key whose message is refused while others of its subject are accepted is paused alone.

use std::{
    collections::{HashMap, hash_map::Entry},
    time::Duration,
};

use broker::Chain;
use store::entity::outbox;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Failure;

/// Keys whose messages are published at the same time.
const MAX_LANES: usize = 256;
/// Keys of one subject whose messages are published at the same time.
const MAX_LANES_OF_SUBJECT: usize = 64;
/// Lanes for what failed last time. The others are for the rest, however much fails.
const MAX_PROBES: usize = 128;
/// How long a key whose message failed is left out.
const KEY_PAUSE: Duration = Duration::from_secs(1);
/// How long a subject is left out. Shorter than [`KEY_PAUSE`], so that the next probe is another message: the
/// first may have been refused for its own sake.
const SUBJECT_PAUSE: Duration = Duration::from_millis(500);
/// A failed message that was not retried for this long was published by another gateway.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Keys and subjects that a query leaves out; databases accept some ten thousand parameters. What exceeds
/// this may take the place of other messages in a batch, but is not published either.
const MAX_LEFT_OUT: usize = 10_000;

/// Messages with one key and one subject, in order.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) key: String,
    pub(super) subject: String,
    pub(super) messages: Vec<outbox::Model>,
}

/// Keys and subjects that are currently excluded from reads of the outbox.
#[derive(Debug)]
pub(super) struct LeftOut {
    pub(super) keys: Vec<String>,
    pub(super) subjects: Vec<String>,
}

/// A key whose last message failed.
#[derive(Debug)]
struct FailingKey {
    paused_until: Instant,
    /// Other messages of its subject are accepted.
    is_alone: bool,
}

#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// The keys whose messages are being published, and whether they are probes.
    in_flight: HashMap<String, bool>,
    /// How many lanes each subject has.
    of_subject: HashMap<String, usize>,
    failing_keys: HashMap<String, FailingKey>,
    /// The subjects whose last publish failed, and until when they are paused.
    failing_subjects: HashMap<String, Instant>,
}

impl Lanes {
    pub(super) fn has_room(&self) -> bool {
        self.in_flight.len() < MAX_LANES
    }

    /// Returns what cannot be published at the moment, so that it does not fill the batch that is read. What
    /// waits for a lane of its subject counts only with `with_full`: such messages are published soon, and
    /// leaving them out makes the query read all of them.
    pub(super) fn left_out(&mut self, now: Instant, with_full: bool) -> LeftOut {
        self.failing_keys.retain(|_, failing| failing.paused_until + FORGET_AFTER > now);
        self.failing_subjects.retain(|_, paused_until| *paused_until + FORGET_AFTER > now);
        let has_probe_left = self.probes() < MAX_PROBES;
        let paused = self.failing_keys.iter();
        let paused = paused.filter(|(_, failing)| !has_probe_left || failing.paused_until > now);
        let keys = self.in_flight.keys().chain(paused.map(|(key, _)| key));
        let failing = self.failing_subjects.iter().filter(|(subject, paused_until)| {
            !has_probe_left || **paused_until > now || self.of_subject.contains_key(*subject)
        });
        let full = self.of_subject.iter().filter(|(_, lanes)| with_full && **lanes >= MAX_LANES_OF_SUBJECT);
        let subjects = failing.map(|(subject, _)| subject).chain(full.map(|(subject, _)| subject));
        LeftOut {
            keys: keys.take(MAX_LEFT_OUT).cloned().collect(),
            subjects: subjects.take(MAX_LEFT_OUT).cloned().collect(),
        }
    }

    /// Returns whether messages wait for a lane of their subject only.
    pub(super) fn has_full_subject(&self) -> bool {
        self.has_room() && self.of_subject.values().any(|lanes| *lanes >= MAX_LANES_OF_SUBJECT)
    }

    /// Returns when a pause ends next, if one does.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let keys = self.failing_keys.values().map(|failing| failing.paused_until);
        keys.chain(self.failing_subjects.values().copied()).filter(|until| *until > now).min()
    }

    /// Takes lanes for messages, which are in order, and returns what is to be published on them.
    pub(super) fn start(&mut self, batch: Vec<outbox::Model>, now: Instant) -> Vec<Run> {
        let mut runs = runs(batch);
        // What did not fail comes first, then what waits longest for its next attempt.
        runs.sort_by_key(|run| self.paused_until(run));
        runs.into_iter().filter_map(|run| self.admit(run, now)).collect()
    }

    fn admit(&mut self, mut run: Run, now: Instant) -> Option<Run> {
        let paused_until = self.paused_until(&run);
        let is_probe = paused_until.is_some();
        let limit = if self.failing_subjects.contains_key(&run.subject) { 1 } else { MAX_LANES_OF_SUBJECT };
        let lanes = self.of_subject.get(&run.subject).copied().unwrap_or_default();
        let must_wait = !self.has_room()
            || self.in_flight.contains_key(&run.key)
            || lanes >= limit
            || paused_until.is_some_and(|until| until > now)
            || (is_probe && self.probes() >= MAX_PROBES);
        if must_wait {
            return None;
        }
        if is_probe {
            run.messages.truncate(1);
        }
        *self.of_subject.entry(run.subject.clone()).or_default() += 1;
        self.in_flight.insert(run.key.clone(), is_probe);
        Some(run)
    }

    /// Frees the lane of a key, and notes why its messages go no further, if they do not.
    pub(super) fn end(&mut self, key: &str, subject: &str, failure: Option<&Failure>, now: Instant) {
        self.in_flight.remove(key);
        if let Entry::Occupied(mut lanes) = self.of_subject.entry(subject.to_owned()) {
            match *lanes.get() {
                0 | 1 => {
                    lanes.remove();
                }
                _ => *lanes.get_mut() -= 1,
            }
        }
        match failure {
            None => self.succeed(key, subject),
            Some(failure) => self.fail(key, subject, failure, now),
        }
    }

    fn succeed(&mut self, key: &str, subject: &str) {
        let was_alone = self.failing_keys.remove(key).is_some_and(|failing| failing.is_alone);
        if self.failing_subjects.remove(subject).is_some() || was_alone {
            info!(key, subject, "Outbox publishing resumed.");
        }
    }

    fn fail(&mut self, key: &str, subject: &str, failure: &Failure, now: Instant) {
        let before = self.failing_keys.get(key).map(|failing| failing.is_alone);
        // It failed before, and other messages of the subject were accepted since.
        let is_odd = before.is_some() && !self.failing_subjects.contains_key(subject);
        let is_alone = is_odd || failure.is_of_one_message();
        let failing = FailingKey { paused_until: now + KEY_PAUSE, is_alone };
        self.failing_keys.insert(key.to_owned(), failing);
        let is_new = if is_alone {
            before != Some(true)
        } else {
            self.failing_subjects.insert(subject.to_owned(), now + SUBJECT_PAUSE).is_none()
        };
        if is_new {
            warn!(key, subject, error = %Chain(failure), "Outbox messages not published; retrying.");
        }
    }

    /// Returns until when a run is paused, also if that is over. `None` if neither its key nor its subject
    /// failed.
    fn paused_until(&self, run: &Run) -> Option<Instant> {
        let key = self.failing_keys.get(&run.key).map(|failing| failing.paused_until);
        key.max(self.failing_subjects.get(&run.subject).copied())
    }

    fn probes(&self) -> usize {
        self.in_flight.values().filter(|is_probe| **is_probe).count()
    }
}

/// Returns the first messages of each key, up to the first with another subject: that may be paused.
fn runs(batch: Vec<outbox::Model>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    // Where the run of a key is; `None` if it goes no further.
    let mut of_key: HashMap<String, Option<usize>> = HashMap::new();
    for message in batch {
        match of_key.entry(message.ordering.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Some(runs.len()));
                let (key, subject) = (message.ordering.clone(), message.subject.clone());
                runs.push(Run { key, subject, messages: vec![message] });
            }
            Entry::Occupied(mut at) => match at.get().and_then(|at| runs.get_mut(at)) {
                Some(run) if run.subject == message.subject => run.messages.push(message),
                _ => {
                    at.insert(None);
                }
            },
        }
    }
    runs
}

#[cfg(test)]
mod tests;
