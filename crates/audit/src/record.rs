//! The record of one call before it has its place in the chain, and its conversion to and from rows.

use std::ops::{Deref, DerefMut};

use policy::{CallIds, Standing};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subjects::audit::Row;

use store::entity::audit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow,
    Deny,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// One call: its row without number and hash, which it gets with its place in the chain. Contains neither
/// arguments nor results (M110).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub struct Record(Row);

impl Deref for Record {
    type Target = Row;

    fn deref(&self) -> &Row {
        &self.0
    }
}

impl DerefMut for Record {
    fn deref_mut(&mut self) -> &mut Row {
        &mut self.0
    }
}

impl TryFrom<Map<String, Value>> for Record {
    type Error = serde_json::Error;

    fn try_from(mut row: Map<String, Value>) -> Result<Self, serde_json::Error> {
        // Earlier versions stored records without them.
        row.entry("seq").or_insert(0.into());
        row.entry("hash").or_insert("".into());
        serde_json::from_value(row.into()).map(Self)
    }
}

/// Longest tool name in a record. Callers choose the name, so only printable ASCII is kept: a name cannot
/// forge a line or send control sequences to a terminal.
const MAX_NAME_CHARS: usize = 128;

impl Record {
    /// Creates the record of a call before the decision; it is denied until [`Record::end`] says otherwise.
    pub fn begin(call_id: String, now: i64, standing: &Standing, tool: &str) -> Self {
        let caller = standing.caller();
        let lease = caller.and_then(|caller| caller.lease.lease());
        let profile = caller.map(|caller| &caller.profile).filter(|profile| !profile.is_default());
        Self(Row {
            created_at: now,
            call_id,
            agent: caller.map_or("unknown", |caller| caller.agent.kind().as_str()).to_owned(),
            subject: caller.map(|caller| caller.token.clone()),
            user_id: caller.and_then(|caller| caller.user().map(str::to_owned)),
            task_id: caller.and_then(|caller| caller.task().map(str::to_owned)),
            project_id: lease.and_then(|lease| lease.project_id.clone()),
            run_id: lease.and_then(|lease| lease.run_id.clone()),
            job_id: lease.and_then(|lease| lease.job_id.clone()),
            lease_id: lease.map(|lease| lease.lease_id.clone()),
            profile: profile.map(ToString::to_string),
            tool: printable(tool),
            decision: Decision::Deny.as_str().to_owned(),
            status: Status::Denied.as_str().to_owned(),
            ..Row::default()
        })
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
        let mut record = Self::begin(call_id, now, &Standing::Unknown, what);
        record.agent = agent.to_owned();
        record.subject = Some(subject.to_owned());
        record.user_id = user.map(str::to_owned);
        record.end(Decision::Allow, Status::Success, None, now);
        record
    }

    /// Creates the record of a call that a node decided on.
    pub(super) fn from_row(row: Row) -> Self {
        Self(row)
    }

    /// Sets the ids that the call names, where none is set yet. A confined caller's are already those
    /// of its token or lease; a call that names others is denied.
    pub fn fill_ids(&mut self, ids: &CallIds) {
        let Row { task_id, user_id, project_id, run_id, job_id, .. } = &mut self.0;
        for (place, id) in [
            (task_id, &ids.task),
            (user_id, &ids.user),
            (project_id, &ids.project),
            (run_id, &ids.run),
            (job_id, &ids.job),
        ] {
            if place.is_none() {
                place.clone_from(id);
            }
        }
    }

    /// Sets the name of what was called.
    pub fn set_tool(&mut self, tool: &str) {
        self.tool = printable(tool);
    }

    pub fn set_decision(&mut self, decision: Decision) {
        self.decision = decision.as_str().to_owned();
    }

    /// Sets the outcome, and the duration up to `now`.
    pub fn end(&mut self, decision: Decision, status: Status, error_type: Option<&str>, now: i64) {
        self.set_decision(decision);
        self.status = status.as_str().to_owned();
        self.error_type = error_type.map(str::to_owned);
        self.duration_us = now.saturating_sub(self.created_at).max(0);
    }

    /// Sets the outcome that recovery records if the gateway ends during the call.
    pub(super) fn into_interrupted(mut self) -> Self {
        self.status = Status::Unknown.as_str().to_owned();
        self.error_type = Some("gateway_ended".to_owned());
        self
    }

    /// Converts the record into the row that follows the row with hash `previous`.
    pub(super) fn into_row(self, seq: i64, previous: &str) -> Row {
        let mut row = Row { seq, ..self.0 };
        row.hash = row.hash_after(previous);
        row
    }
}

fn printable(text: &str) -> String {
    text.chars().filter(|letter| letter.is_ascii_graphic()).take(MAX_NAME_CHARS).collect()
}

/// Declares the conversions between a row and its entity, which have the same fields.
macro_rules! conversions {
    ($($field:ident)*) => {
        pub(super) fn to_model(row: Row) -> audit::Model {
            audit::Model { $($field: row.$field),* }
        }

        pub(super) fn from_model(row: audit::Model) -> Row {
            Row { $($field: row.$field),* }
        }
    };
}

conversions! {
    seq created_at call_id agent subject user_id task_id project_id run_id job_id tool decision status
    error_type duration_us arguments_digest trace_id lease_id profile node node_line
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_earlier_versions_are_read() {
        let text = r#"{"created_at":5,"call_id":"c","agent":"admin","subject":null,"user_id":null,
            "task_id":null,"project_id":null,"run_id":null,"job_id":null,"tool":"a.tool",
            "decision":"allow","status":"unknown","error_type":"gateway_ended","duration_us":0,
            "arguments_digest":null,"trace_id":null}"#;
        let record: Record = serde_json::from_str(text).expect("readable");
        let again: Record = serde_json::from_value(serde_json::json!(record)).expect("readable");
        assert_eq!((record.call_id.as_str(), record.status.as_str()), ("c", "unknown"));
        assert_eq!(record.into_row(1, ""), again.into_row(1, ""));
    }
}
