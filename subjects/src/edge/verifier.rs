//! Follows the lines of one lease and finds what is wrong with them.

use std::collections::BTreeMap;

use super::{CloseReason, EdgeCall, Line, Record, Signature};

/// What is wrong with a line, or missing before it. Following it goes on after each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("line {0} cannot be read")]
    Unreadable(u64),
    #[error("line {0} is missing")]
    Missing(u64),
    #[error("line {0} was changed")]
    Changed(u64),
    #[error("line {0} does not follow the line before it")]
    Unlinked(u64),
    #[error("the signature in line {0} is not valid")]
    BadSignature(u64),
    #[error("line {0} is signed by {1}, but the lease is held by {2}")]
    OtherHolder(u64, String, String),
    #[error("the lease in line {0} is {1}, not the one that these lines are for")]
    OtherLease(u64, String),
    #[error("line {0} follows the last one")]
    AfterClose(u64),
}

impl Problem {
    /// Returns the line.
    pub fn line(&self) -> u64 {
        match self {
            Self::Unreadable(n)
            | Self::Missing(n)
            | Self::Changed(n)
            | Self::Unlinked(n)
            | Self::BadSignature(n)
            | Self::OtherHolder(n, ..)
            | Self::OtherLease(n, _)
            | Self::AfterClose(n) => *n,
        }
    }
}

/// Follows the lines of one lease.
#[derive(Clone, Debug)]
pub struct EdgeVerifier {
    lease_id: String,
    /// The key that must have signed. Taken from the first line if not known.
    holder: Option<String>,
    n: u64,
    hash: String,
    closed: Option<CloseReason>,
    /// Calls that began and have not ended, by their line.
    pub pending: BTreeMap<u64, (i64, EdgeCall)>,
}

impl EdgeVerifier {
    /// Starts with the first line.
    pub fn new(lease_id: &str, holder: Option<String>) -> Self {
        Self::after(lease_id, holder, 0, String::new())
    }

    /// Starts after line `n` with this hash.
    pub fn after(lease_id: &str, holder: Option<String>, n: u64, hash: String) -> Self {
        Self { lease_id: lease_id.to_owned(), holder, n, hash, closed: None, pending: BTreeMap::new() }
    }

    /// Returns the number of the last line and its hash.
    pub fn head(&self) -> (u64, &str) {
        (self.n, &self.hash)
    }

    /// Sets whether the last line has come.
    pub fn set_closed(&mut self, closed: Option<CloseReason>) {
        self.closed = closed;
    }

    pub fn closed(&self) -> Option<CloseReason> {
        self.closed
    }

    /// Checks the next line, without its end. Returns the line if its content can be believed, and what is
    /// wrong.
    pub fn check(&mut self, text: &[u8]) -> (Option<Line>, Vec<Problem>) {
        let expected = self.n + 1;
        let Some((line, claimed, is_intact)) = Line::decode(text) else {
            (self.n, self.hash) = (expected, String::new());
            return (None, vec![Problem::Unreadable(expected)]);
        };
        let mut problems = Vec::new();
        if line.n > expected {
            problems.push(Problem::Missing(expected));
        } else if line.n < expected {
            // Repeated or renumbered; it is not the line that follows.
            return (None, vec![Problem::Unlinked(expected)]);
        }
        let is_linked = line.prev == self.hash || self.hash.is_empty() && self.n > 0;
        let previous = std::mem::replace(&mut self.hash, claimed);
        self.n = line.n;
        if !is_intact {
            problems.push(Problem::Changed(line.n));
            return (None, problems);
        }
        if problems.is_empty() && !is_linked {
            problems.push(Problem::Unlinked(line.n));
        }
        if self.closed.is_some() {
            problems.push(Problem::AfterClose(line.n));
        }
        self.follow(&line, &previous, &mut problems);
        (Some(line), problems)
    }

    fn follow(&mut self, line: &Line, previous: &str, problems: &mut Vec<Problem>) {
        match &line.record {
            Record::Opened { lease_id, holder, .. } => {
                if *lease_id != self.lease_id {
                    problems.push(Problem::OtherLease(line.n, lease_id.clone()));
                }
                self.holder.get_or_insert_with(|| holder.clone());
            }
            Record::Began(call) => {
                self.pending.insert(line.n, (line.at, call.clone()));
            }
            Record::Head(head) => self.check_signature(line, head, previous, problems),
            Record::Closed { why, head } => {
                self.closed = Some(*why);
                self.check_signature(line, head, previous, problems);
            }
            // The caller takes what has ended out of `pending`.
            Record::Ended { .. }
            | Record::Resumed
            | Record::Repaired { .. }
            | Record::Renewed { .. }
            | Record::Answered { .. }
            | Record::Refused { .. } => {}
        }
    }

    fn check_signature(&self, line: &Line, head: &Signature, previous: &str, problems: &mut Vec<Problem>) {
        if let Some(holder) = self.holder.as_ref().filter(|holder| **holder != head.key) {
            problems.push(Problem::OtherHolder(line.n, head.key.clone(), holder.clone()));
        } else if line.prev == previous && !head.is_valid(&self.lease_id, line.n, &line.prev) {
            problems.push(Problem::BadSignature(line.n));
        }
    }
}
