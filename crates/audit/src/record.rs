//! The record of one call before it has its place in the chain, and its conversion to and from rows.

use policy::{CallIds, Standing};
use serde::{Deserialize, Serialize};
use subjects::audit::Row;

use store::entity::audit;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Allow,
    Deny,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Success,
    Failure,
    Denied,
    /// An earlier call with the same key had the effect; this call got its answer.
    Replayed,
    /// The gateway ended while the call ran.
    Unknown,
}

impl Decision {
    fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

impl Status {
    fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Denied => "denied",
            Self::Replayed => "replayed",
            Self::Unknown => "unknown",
        }
    }
}

/// One call, before it has its place in the chain. Contains neither arguments nor results (M110).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    pub created_at: i64,
    pub call_id: String,
    pub agent: String,
    pub subject: Option<String>,
    pub user_id: Option<String>,
    pub task_id: Option<String>,
    pub project_id: Option<String>,
    pub run_id: Option<String>,
    pub job_id: Option<String>,
    pub tool: String,
    pub decision: Decision,
    pub status: Status,
    pub error_type: Option<String>,
    pub duration_us: i64,
    pub arguments_digest: Option<String>,
    pub trace_id: Option<String>,
}

/// Longest tool name in a record. Callers choose the name, so only printable ASCII is kept: a name cannot
/// forge a line or send control sequences to a terminal.
const MAX_NAME_CHARS: usize = 128;

impl Record {
    /// Creates the record of a call before the decision; it is denied until [`Record::end`] says otherwise.
    pub fn begin(call_id: String, now: i64, standing: &Standing, tool: &str) -> Self {
        let caller = standing.caller();
        let bound = caller.and_then(|caller| caller.agent.binding());
        Self {
            created_at: now,
            call_id,
            agent: caller.map_or("unknown", |caller| caller.agent.kind().as_str()).to_owned(),
            subject: caller.map(|caller| caller.token.clone()),
            user_id: bound.map(|bound| bound.user.clone()),
            task_id: bound.map(|bound| bound.task.clone()),
            project_id: None,
            run_id: None,
            job_id: None,
            tool: printable(tool),
            decision: Decision::Deny,
            status: Status::Denied,
            error_type: None,
            duration_us: 0,
            arguments_digest: None,
            trace_id: None,
        }
    }

    /// Creates the record of an operation of an administrator or user.
    pub fn of_administrator(
        call_id: String,
        now: i64,
        agent: &str,
        subject: &str,
        user: Option<&str>,
        what: &str,
    ) -> Self {
        Self {
            agent: agent.to_owned(),
            subject: Some(subject.to_owned()),
            user_id: user.map(str::to_owned),
            decision: Decision::Allow,
            status: Status::Success,
            ..Self::begin(call_id, now, &Standing::Unknown, what)
        }
    }

    /// Sets the ids that the call names, where none is set yet. A bound caller's are already those of its
    /// token; a call that names others is denied.
    pub fn fill_ids(&mut self, ids: &CallIds) {
        for (place, id) in [
            (&mut self.task_id, &ids.task),
            (&mut self.user_id, &ids.user),
            (&mut self.project_id, &ids.project),
            (&mut self.run_id, &ids.run),
            (&mut self.job_id, &ids.job),
        ] {
            if place.is_none() {
                place.clone_from(id);
            }
        }
    }

    /// Sets the outcome, and the duration up to `now`.
    pub fn end(&mut self, decision: Decision, status: Status, error_type: Option<&str>, now: i64) {
        self.decision = decision;
        self.status = status;
        self.error_type = error_type.map(str::to_owned);
        self.duration_us = now.saturating_sub(self.created_at).max(0);
    }

    /// Sets the outcome that recovery records if the gateway ends during the call.
    pub(super) fn into_interrupted(mut self) -> Self {
        self.status = Status::Unknown;
        self.error_type = Some("gateway_ended".to_owned());
        self
    }

    /// Converts the record into the row that follows the row with hash `previous`.
    pub(super) fn into_row(self, seq: i64, previous: &str) -> Row {
        let mut row = Row {
            seq,
            created_at: self.created_at,
            call_id: self.call_id,
            agent: self.agent,
            subject: self.subject,
            user_id: self.user_id,
            task_id: self.task_id,
            project_id: self.project_id,
            run_id: self.run_id,
            job_id: self.job_id,
            tool: self.tool,
            decision: self.decision.as_str().to_owned(),
            status: self.status.as_str().to_owned(),
            error_type: self.error_type,
            duration_us: self.duration_us,
            arguments_digest: self.arguments_digest,
            trace_id: self.trace_id,
            hash: String::new(),
        };
        row.hash = row.hash_after(previous);
        row
    }
}

fn printable(text: &str) -> String {
    text.chars().filter(|letter| letter.is_ascii_graphic()).take(MAX_NAME_CHARS).collect()
}

pub(super) fn to_model(row: Row) -> audit::Model {
    let Row {
        seq,
        created_at,
        call_id,
        agent,
        subject,
        user_id,
        task_id,
        project_id,
        run_id,
        job_id,
        tool,
        ..
    } = row;
    let Row { decision, status, error_type, duration_us, arguments_digest, trace_id, hash, .. } = row;
    audit::Model {
        seq,
        created_at,
        call_id,
        agent,
        subject,
        user_id,
        task_id,
        project_id,
        run_id,
        job_id,
        tool,
        decision,
        status,
        error_type,
        duration_us,
        arguments_digest,
        trace_id,
        hash,
    }
}

pub(super) fn from_model(row: audit::Model) -> Row {
    Row {
        seq: row.seq,
        created_at: row.created_at,
        call_id: row.call_id,
        agent: row.agent,
        subject: row.subject,
        user_id: row.user_id,
        task_id: row.task_id,
        project_id: row.project_id,
        run_id: row.run_id,
        job_id: row.job_id,
        tool: row.tool,
        decision: row.decision,
        status: row.status,
        error_type: row.error_type,
        duration_us: row.duration_us,
        arguments_digest: row.arguments_digest,
        trace_id: row.trace_id,
        hash: row.hash,
    }
}
