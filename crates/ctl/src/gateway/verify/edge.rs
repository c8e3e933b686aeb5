//! Verifies the audit of nodes: follows the lines of each lease on the stream, and compares them with the
//! gateway's audit and with what the gateway knows of the lease.

use std::collections::{BTreeMap, BTreeSet};

use api::{NodeAudit, NodeLease};
use policy::Lease;
use serde::Serialize;
use subjects::{
    Subject,
    audit::Row,
    edge::{EdgeVerifier, Line, Record, split_lines},
};
use time::OffsetDateTime;

/// How long after its end a lease may be without its last line, in microseconds.
const GRACE: i64 = 5 * 60 * 1_000_000;

/// The rows of the gateway's audit that nodes decided on: node, lease and line.
#[derive(Debug, Default)]
pub(super) struct RowsOfNodes {
    lines: BTreeMap<(String, String), BTreeSet<i64>>,
    repeated: Vec<(String, String, i64)>,
}

impl RowsOfNodes {
    pub(super) fn add(&mut self, row: &Row) {
        let (Some(node), Some(lease), Some(line)) = (&row.node, &row.lease_id, row.node_line) else { return };
        if !self.lines.entry((node.clone(), lease.clone())).or_default().insert(line) {
            self.repeated.push((node.clone(), lease.clone(), line));
        }
    }

    fn count(&self) -> usize {
        self.lines.values().map(BTreeSet::len).sum()
    }
}

/// The result of verifying the audit of nodes.
#[derive(Debug, Default, Serialize)]
pub(super) struct EdgeReport {
    pub(super) leases: usize,
    pub(super) lines: u64,
    /// Rows of the gateway's audit that nodes decided on.
    pub(super) rows: usize,
    /// Alarms of the gateway that are not resolved.
    pub(super) alarms: usize,
    /// Each names node, lease, and what is wrong.
    pub(super) problems: Vec<String>,
}

/// A message of a node: its subject and its body.
pub(super) type EdgeMessage = (String, Vec<u8>);

/// Compares the messages of nodes, in the order of the stream, with what the gateway says. `known` must have
/// been read before `rows`, and both before `messages`. Without messages only the gateway's alarms count.
pub(super) fn verify(
    known: &NodeAudit,
    rows: &RowsOfNodes,
    messages: Option<&[EdgeMessage]>,
    is_pruned: bool,
) -> EdgeReport {
    let open = known.alarms.iter().filter(|alarm| alarm.resolved_at.is_none());
    let mut problems: BTreeSet<String> =
        open.map(|alarm| named(&alarm.node, &alarm.lease_id, &alarm.detail)).collect();
    let mut report = EdgeReport { alarms: problems.len(), rows: rows.count(), ..EdgeReport::default() };
    for (node, lease, line) in &rows.repeated {
        problems.insert(named(node, lease, &format!("line {line} has two rows in the gateway's audit")));
    }
    let bindings: BTreeMap<&str, &NodeLease> =
        known.leases.iter().map(|lease| (lease.lease_id.as_str(), lease)).collect();
    for ((node, lease), bodies) in group(messages.unwrap_or_default()) {
        let mut follower = Follower::new(&node, &lease, bindings.get(lease.as_str()).copied());
        bodies.into_iter().flat_map(split_lines).for_each(|line| follower.take(line));
        report.leases += 1;
        report.lines += follower.chain.head().0;
        let none = BTreeSet::new();
        let taken = rows.lines.get(&(node.clone(), lease.clone())).unwrap_or(&none);
        let found = follower.finish(taken, is_pruned);
        problems.extend(found.into_iter().map(|detail| named(&node, &lease, &detail)));
    }
    report.problems = problems.into_iter().collect();
    report
}

fn named(node: &str, lease: &str, detail: &str) -> String {
    format!("node {node}, lease {lease}: {detail}")
}

/// Groups bodies by node and lease.
fn group(messages: &[EdgeMessage]) -> BTreeMap<(String, String), Vec<&[u8]>> {
    let mut grouped: BTreeMap<(String, String), Vec<&[u8]>> = BTreeMap::new();
    for (subject, body) in messages {
        if let Ok(Subject::EdgeAudit(node, lease)) = subject.parse() {
            grouped.entry((node.to_string(), lease.to_string())).or_default().push(body);
        }
    }
    grouped
}

/// Follows the lines of one lease on one node.
struct Follower<'k> {
    node: &'k str,
    lease: &'k str,
    binding: Option<&'k NodeLease>,
    chain: EdgeVerifier,
    /// The lines that must each have a row in the gateway's audit.
    calls: BTreeSet<i64>,
    pending: BTreeSet<u64>,
    expires_at: i64,
    problems: Vec<String>,
}

impl<'k> Follower<'k> {
    fn new(node: &'k str, lease: &'k str, binding: Option<&'k NodeLease>) -> Self {
        let mut problems = Vec::new();
        match binding {
            Some(binding) if binding.node != node => {
                let owner = &binding.node;
                problems.push(format!("the lease is for node {owner}, but node {node} wrote under it"));
            }
            Some(_) => {}
            None => problems.push("the gateway knows no such lease of a node".to_owned()),
        }
        let holder = binding.map(|binding| binding.holder.clone());
        let chain = EdgeVerifier::new(lease, holder);
        let expires_at = binding.map_or(0, |binding| binding.expires_at);
        let (calls, pending) = (BTreeSet::new(), BTreeSet::new());
        Self { node, lease, binding, chain, calls, pending, expires_at, problems }
    }

    fn take(&mut self, text: &[u8]) {
        let (line, problems) = self.chain.check(text);
        self.problems.extend(problems.iter().map(ToString::to_string));
        let (n, head) = self.chain.head();
        if let Some(binding) = self.binding
            && i64::try_from(n) == Ok(binding.stated_lines)
            && n > 0
            && head != binding.stated_head
        {
            let what = "is not the one that the node stated when it renewed the lease";
            self.problems.push(format!("line {n} {what}"));
        }
        let Some(Line { n, record, .. }) = line else { return };
        let number = i64::try_from(n).unwrap_or(i64::MAX);
        match record {
            Record::Opened { lease, .. } | Record::Renewed { lease } => self.check_lease(n, &lease),
            Record::Began(_) => drop(self.pending.insert(n)),
            Record::Ended { of, .. } => {
                self.pending.remove(&of);
                self.calls.insert(number);
            }
            Record::Answered { .. } | Record::Refused { .. } => drop(self.calls.insert(number)),
            Record::Closed { .. } => {
                let interrupted = std::mem::take(&mut self.pending);
                self.calls.extend(interrupted.into_iter().filter_map(|n| i64::try_from(n).ok()));
            }
            Record::Resumed | Record::Repaired { .. } | Record::Head(_) => {}
        }
    }

    fn check_lease(&mut self, n: u64, text: &str) {
        match Lease::read(text) {
            Ok(lease) if lease.lease_id == self.lease && lease.node.as_deref() == Some(self.node) => {
                self.expires_at = self.expires_at.max(lease.expires_at);
            }
            Ok(lease) => {
                let owner = lease.node.unwrap_or_else(|| "no node".to_owned());
                self.problems.push(format!("line {n} holds lease {} of {owner}", lease.lease_id));
            }
            Err(error) => self.problems.push(format!("line {n} holds no lease: {error}")),
        }
    }

    fn finish(mut self, taken: &BTreeSet<i64>, is_pruned: bool) -> Vec<String> {
        let Some(binding) = self.binding.filter(|binding| binding.node == self.node) else {
            return self.problems;
        };
        let (n, _) = self.chain.head();
        let came = i64::try_from(n).unwrap_or(i64::MAX);
        let is_over = now() > self.expires_at.saturating_add(GRACE);
        let is_closed = self.chain.closed().is_some();
        if !is_closed && is_over {
            self.problems.push(format!("the lease has ended, and its last line did not come; {n} came"));
        }
        if binding.stated_lines > came && (is_closed || is_over) {
            let stated = binding.stated_lines;
            self.problems.push(format!("the node stated {stated} lines when it renewed the lease; {n} came"));
        }
        let lines: BTreeSet<i64> = self.calls.iter().copied().filter(|line| *line <= binding.lines).collect();
        if !is_pruned {
            let missing =
                lines.difference(taken).map(|line| format!("line {line} is not in the gateway's audit"));
            self.problems.extend(missing);
        }
        // A call that did not end in time has its row by the line with which it began.
        let is_known = |line: &&i64| self.calls.contains(line) || self.is_begin(**line);
        let unknown = taken.iter().filter(|line| **line <= came).filter(|line| !is_known(line));
        let unknown: Vec<String> = unknown
            .map(|line| format!("a row of the gateway's audit does not match line {line}, which it names"))
            .collect();
        self.problems.extend(unknown);
        self.problems
    }

    fn is_begin(&self, line: i64) -> bool {
        u64::try_from(line).is_ok_and(|line| self.chain.pending.contains_key(&line))
    }
}

fn now() -> i64 {
    i64::try_from(OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}
