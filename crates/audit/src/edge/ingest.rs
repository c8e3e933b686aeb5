//! Appends the rows of a node's lines to the chain, in one transaction with how far they go.

use std::{collections::BTreeMap, ops::AddAssign};

use policy::{Lease, MemoryProfile};
use sea_orm::{ActiveModelTrait, ActiveValue::Set, DbErr, EntityTrait, IntoActiveModel, QuerySelect};
use serde::{Deserialize, Serialize};
use store::{Store, WriteTransaction, clock, entity::edge_lease};
use subjects::{
    audit::Row,
    edge::{EdgeCall, EdgeVerifier, Line, Outcome, Record as EdgeRecord, split_lines},
};

use super::{
    alarm::{AlarmKind, NewAlarm, raise, resolve},
    position::{EdgeMessages, StreamPosition},
};
use crate::{
    chain::{append, last_row, lock_chain},
    record::Record,
};

/// Rows in one statement.
const BATCH: usize = 200;
/// Alarms that one takeover raises about a lease. Further ones are counted: a hostile node can give a reason
/// with every byte.
const MAX_ALARMS: usize = 50;

/// The result of an ingest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ingested {
    pub lines: u64,
    pub rows: u64,
    /// Alarms that were not raised before.
    pub alarms: u64,
}

impl AddAssign for Ingested {
    fn add_assign(&mut self, more: Self) {
        self.lines += more.lines;
        self.rows += more.rows;
        self.alarms += more.alarms;
    }
}

/// A call that began and has not ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pending {
    pub(super) at: i64,
    pub(super) call: EdgeCall,
    /// Set when the call has its row, because its end did not come in time.
    #[serde(default)]
    pub(super) is_recorded: bool,
}

pub(super) type PendingCalls = BTreeMap<u64, Pending>;

/// Takes over messages on `edge.audit.<node>.<lease>`. `known` is the position after which they were read.
/// Returns `None` if it is not the position any more, since another gateway was faster: they are to be read
/// again. A line that was taken over already, by its number, is not taken over again, so that any number of
/// gateways may do this at the same time, and repeat it.
pub async fn ingest(
    store: &Store,
    node: &str,
    lease_id: &str,
    known: &StreamPosition,
    read: &EdgeMessages,
) -> Result<Option<Ingested>, DbErr> {
    let write = store.write().await?;
    lock_chain(&write).await?;
    let found = edge_lease::Entity::find_by_id(lease_id).lock_exclusive().one(&*write).await?;
    let found = found.filter(|binding| binding.node == node && StreamPosition::of(binding) == *known);
    let Some(binding) = found else {
        write.roll_back().await?;
        return Ok(None);
    };
    let mut taken = Takeover::new(&binding, read);
    for message in read.messages() {
        split_lines(&message.body).for_each(|line| taken.take(line));
        taken.position = StreamPosition::at(message);
    }
    let ingested = taken.store(&write).await?;
    write.commit().await?;
    Ok(Some(ingested))
}

/// Raises an alarm about a message under a lease that was not bound to its node. Returns how many alarms are
/// new, or `None` if it was bound in the meantime.
pub async fn refuse_unbound(
    store: &Store,
    node: &str,
    lease_id: &str,
    sequence: u64,
) -> Result<Option<u64>, DbErr> {
    let write = store.write().await?;
    let found = edge_lease::Entity::find_by_id(lease_id).one(&*write).await?;
    let (kind, detail) = match found {
        Some(binding) if binding.node == node => {
            write.roll_back().await?;
            return Ok(None);
        }
        Some(binding) => {
            let detail = format!("the lease is for node {}, but node {node} wrote under it", binding.node);
            (AlarmKind::OtherNode, detail)
        }
        None => {
            let detail = format!("node {node} wrote under a lease that was not bound to a node");
            (AlarmKind::UnknownLease, detail)
        }
    };
    let alarms = [NewAlarm { kind, line: sequence, detail }];
    let raised = raise(&*write, node, lease_id, &alarms).await?;
    write.commit().await?;
    Ok(Some(raised))
}

/// What the lines of one lease lead to.
struct Takeover<'b> {
    binding: &'b edge_lease::Model,
    /// Follows the lines as they are in the stream.
    chain: EdgeVerifier,
    position: StreamPosition,
    /// The last line that is taken over, and its hash. Lines in the stream are behind it while they come
    /// again, after the stream was lost.
    taken: (u64, String),
    pending: PendingCalls,
    closed: Option<(i64, &'static str)>,
    records: Vec<Record>,
    alarms: Vec<NewAlarm>,
    /// The line of the first alarm that was left out, and how many were.
    left_out: Option<(u64, u64)>,
    lines: u64,
}

impl<'b> Takeover<'b> {
    fn new(binding: &'b edge_lease::Model, read: &EdgeMessages) -> Self {
        let number = |n: i64| u64::try_from(n).unwrap_or_default();
        let taken = (number(binding.lines), binding.head.clone());
        let (n, head) = match read.before_first() {
            None => (number(binding.stream_lines), binding.stream_head.clone()),
            // The stream keeps lines for some time only: what was before the first is taken over, or missing.
            Some(n) if n < taken.0 => (n, String::new()),
            Some(_) => taken.clone(),
        };
        let holder = Some(binding.holder.clone());
        let mut chain = EdgeVerifier::after(&binding.lease_id, holder, n, head);
        if n >= taken.0 {
            chain.set_closed(binding.close_reason.as_deref().and_then(|why| why.parse().ok()));
        }
        let mut alarms = Vec::new();
        // Stated after these lines had been taken over.
        if binding.stated_lines == binding.lines && binding.stated_head != binding.head {
            alarms.push(replaced(taken.0));
        }
        Self {
            chain,
            binding,
            position: StreamPosition::of(binding),
            taken,
            pending: serde_json::from_str(&binding.pending).unwrap_or_default(),
            closed: None,
            records: Vec::new(),
            alarms,
            left_out: None,
            lines: 0,
        }
    }

    fn alarm(&mut self, kind: AlarmKind, line: u64, detail: String) {
        self.raise(NewAlarm { kind, line, detail });
    }

    fn raise(&mut self, alarm: NewAlarm) {
        if self.alarms.len() < MAX_ALARMS {
            self.alarms.push(alarm);
        } else {
            let (line, count) = self.left_out.unwrap_or((alarm.line, 0));
            self.left_out = Some((line, count + 1));
        }
    }

    fn take(&mut self, text: &[u8]) {
        let (before, _) = self.chain.head();
        let (line, problems) = self.chain.check(text);
        for problem in &problems {
            self.alarm(problem.into(), problem.line(), problem.to_string());
        }
        let (n, head) = self.chain.head();
        let stated = u64::try_from(self.binding.stated_lines).unwrap_or_default();
        if n == stated && n > 0 && head != self.binding.stated_head {
            self.raise(replaced(n));
        }
        let quota = u64::try_from(self.binding.audit_quota).unwrap_or_default();
        if n == quota.saturating_add(1) {
            self.alarm(AlarmKind::Overrun, n, format!("the lease permits {quota} lines"));
        }
        if n <= self.taken.0 {
            if n > before {
                self.compare(n, line.as_ref());
            }
            return;
        }
        self.taken = (n, self.chain.head().1.to_owned());
        self.lines += 1;
        // An honest node stops at the quota. What is far beyond it would only fill the audit.
        if let Some(line) = line.filter(|_| n <= quota.saturating_mul(2)) {
            self.follow(line, stated);
        }
    }

    /// Compares a line that comes again with those that were taken over. The hash of the last one stands for
    /// all before it.
    fn compare(&mut self, n: u64, line: Option<&Line>) {
        let (last, hash) = &self.taken;
        let is_other = if n == *last {
            self.chain.head().1 != hash
        } else {
            line.is_some_and(|line| matches!(line.record, EdgeRecord::Closed { .. }))
        };
        if is_other {
            let detail = format!("lines came again, and up to line {n} they are not those that came before");
            self.alarm(AlarmKind::Replaced, n, detail);
        }
    }

    fn follow(&mut self, line: Line, stated: u64) {
        let Line { n, at, record, .. } = line;
        match record {
            EdgeRecord::Opened { lease, .. } | EdgeRecord::Renewed { lease } => self.check_lease(n, &lease),
            EdgeRecord::Began(call) => {
                self.pending.insert(n, Pending { at, call, is_recorded: false });
            }
            EdgeRecord::Ended { of, outcome, error_type, duration_us } => match self.pending.remove(&of) {
                Some(began) if began.is_recorded => {}
                Some(Pending { at, call, .. }) => {
                    let ended = Row { error_type, duration_us, ..row(self.binding, call, at, n) };
                    let (decision, status) = ("allow".to_owned(), outcome.as_str().to_owned());
                    self.records.push(Record::from_row(Row { decision, status, ..ended }));
                }
                None => {
                    let detail = format!("line {n} ends a call that did not begin with line {of}");
                    self.alarm(AlarmKind::Changed, n, detail);
                }
            },
            EdgeRecord::Answered { call, outcome, error_type, duration_us } => {
                let answered = Row { error_type, duration_us, ..row(self.binding, call, at, n) };
                let (decision, status) = ("allow".to_owned(), outcome.as_str().to_owned());
                self.records.push(Record::from_row(Row { decision, status, ..answered }));
            }
            EdgeRecord::Refused { call, denied, error_type } => {
                let status = if denied { "denied" } else { "failure" };
                let refused = Row {
                    decision: "deny".to_owned(),
                    status: status.to_owned(),
                    error_type: Some(error_type),
                    ..row(self.binding, call, at, n)
                };
                self.records.push(Record::from_row(refused));
            }
            EdgeRecord::Closed { why, .. } => {
                self.closed = Some((at, why.as_str()));
                let interrupted = std::mem::take(&mut self.pending);
                self.records.extend(interrupted_rows(self.binding, interrupted));
                if n <= stated {
                    let detail = format!(
                        "the lease was closed with line {n}, but the node stated {stated} lines when it \
                         renewed the lease"
                    );
                    self.alarm(AlarmKind::Truncated, n, detail);
                }
            }
            EdgeRecord::Resumed | EdgeRecord::Repaired { .. } | EdgeRecord::Head(_) => {}
        }
    }

    /// The text of the lease must be one that the gateway signed for this node.
    fn check_lease(&mut self, n: u64, text: &str) {
        let (node, holder) = (Some(&self.binding.node), Some(&self.binding.holder));
        let is_own = Lease::read(text).is_ok_and(|lease| {
            lease.lease_id == self.binding.lease_id
                && lease.node.as_ref() == node
                && lease.holder.as_ref() == holder
        });
        if !is_own {
            self.alarm(AlarmKind::UnknownLease, n, format!("line {n} holds a lease that is not this node's"));
        }
    }

    async fn store(self, write: &WriteTransaction) -> Result<Ingested, DbErr> {
        let binding = self.binding;
        let ingested = Ingested { lines: self.lines, rows: self.records.len() as u64, alarms: 0 };
        let mut records = self.records;
        let mut last = if records.is_empty() { None } else { Some(last_row(&**write).await?) };
        while let Some(after) = last.take().filter(|_| !records.is_empty()) {
            let rest = records.split_off(records.len().min(BATCH));
            last = Some(append(&**write, &after, records).await?);
            records = rest;
        }
        let mut alarms = self.alarms;
        alarms.extend(self.left_out.map(|(line, count)| NewAlarm {
            kind: AlarmKind::Changed,
            line,
            detail: format!("{count} more lines from line {line} on are wrong"),
        }));
        let alarms = raise(&**write, &binding.node, &binding.lease_id, &alarms).await?;
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let (lines, head) = (number(self.taken.0), self.taken.1);
        let (stream_lines, stream_head) = self.chain.head();
        if lines >= binding.stated_lines {
            resolve(&**write, &binding.lease_id, AlarmKind::Truncated).await?;
        }
        let mut change = binding.clone().into_active_model();
        change.lines = Set(lines);
        change.head = Set(head);
        change.stream_seq = Set(number(self.position.sequence));
        change.stream_digest = Set(self.position.digest().to_owned());
        change.stream_lines = Set(number(stream_lines));
        change.stream_head = Set(stream_head.to_owned());
        change.pending = Set(subjects::encode_json_text(&self.pending));
        if let Some((at, why)) = self.closed {
            resolve(&**write, &binding.lease_id, AlarmKind::NotClosed).await?;
            change.closed_at = Set(Some(at.min(clock::now())));
            change.close_reason = Set(Some(why.to_owned()));
        }
        change.update(&**write).await?;
        Ok(Ingested { alarms, ..ingested })
    }
}

fn replaced(line: u64) -> NewAlarm {
    let detail = format!("line {line} is not the one that the node stated when it renewed the lease");
    NewAlarm { kind: AlarmKind::Replaced, line, detail }
}

/// Returns the rows of calls whose end did not come.
pub(super) fn interrupted_rows(
    binding: &edge_lease::Model,
    pending: PendingCalls,
) -> impl Iterator<Item = Record> {
    pending.into_iter().filter(|(_, began)| !began.is_recorded).map(|(n, began)| {
        Record::from_row(Row {
            decision: "allow".to_owned(),
            status: Outcome::Unknown.as_str().to_owned(),
            error_type: Some("node_ended".to_owned()),
            ..row(binding, began.call, began.at, n)
        })
    })
}

fn row(binding: &edge_lease::Model, call: EdgeCall, at: i64, n: u64) -> Row {
    Row {
        created_at: at,
        call_id: call.call_id,
        agent: binding.agent.clone(),
        subject: Some(binding.token.clone()),
        user_id: Some(binding.user_id.clone()),
        task_id: binding.task_id.clone(),
        project_id: binding.project_id.clone(),
        run_id: binding.run_id.clone(),
        job_id: binding.job_id.clone(),
        tool: call.tool,
        arguments_digest: call.arguments_digest,
        trace_id: call.trace_id,
        lease_id: Some(binding.lease_id.clone()),
        profile: binding.profile.clone().filter(|profile| profile != MemoryProfile::default().as_str()),
        node: Some(binding.node.clone()),
        node_line: Some(i64::try_from(n).unwrap_or(i64::MAX)),
        ..Row::default()
    }
}
