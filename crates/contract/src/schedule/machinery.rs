//! How orchestrators fire schedules: `schedule.fire` and `schedule.run.*`.
//!
//! A run is stored first, then published, then marked as sent. An orchestrator may die at any point in
//! between: `schedule.run.unsent` returns what is not known to be published, and publishing again is
//! harmless, since the id of the handoff is made of schedule and slot.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use subjects::{Context, Handoff, HandoffId, Schedule, SchedulePayloadType, Scope, ScopeId, Timestamp, Work};

use super::Payload;
use crate::tool;

pub const MAX_FIRED: u64 = 100;
pub const MAX_MARKED: usize = 200;
pub const MAX_UNSENT: u64 = 50;
/// How long after its handoff was published an open run is returned by `schedule.run.unsent` again. After
/// that, it is returned each time its age has doubled, at least every hour.
pub const RESEND_AFTER_SECONDS: u64 = crate::thread::RESEND_AFTER_SECONDS;

/// `schedule.fire`: claims the slots that are due, of all users, and stores their runs. A slot is claimed
/// once, however many orchestrators call this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fire {
    /// The largest number of runs to return. Default 50.
    #[schemars(range(min = 1, max = MAX_FIRED))]
    pub limit: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fired {
    /// To be published.
    pub runs: Vec<DueRun>,
    /// Handoffs of runs that were replaced or took too long, to be cancelled. Their leases are revoked.
    pub cancels: Vec<HandoffId>,
    /// How many jobs were queued.
    pub jobs: u64,
    /// How many slots were skipped.
    pub skipped: u64,
    /// When the next schedule is due; absent if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<String>,
    /// Whether more is due now: call again at once.
    pub has_more: bool,
}

tool!("schedule.fire": Fire => Fired);

/// A run for a project manager, to be published as a handoff.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DueRun {
    /// Also the id of the run.
    pub handoff_id: HandoffId,
    pub schedule_id: ScopeId,
    pub user_id: ScopeId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<ScopeId>,
    pub slot: Timestamp,
    pub fired_at: Timestamp,
    /// When the run is given up.
    pub deadline: Timestamp,
    pub payload: ManagerPayload,
    /// When the handoff was last published. Absent while it is not known that it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
    /// The signed lease for the handoff.
    pub lease: String,
}

/// What a project manager is asked for. A job specification is not among it: W7.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ManagerPayload {
    Prompt {
        prompt: String,
    },
    Task {
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        acceptance_criteria: Vec<String>,
    },
}

impl ManagerPayload {
    /// Returns what a payload asks a project manager for; `None` for a job specification.
    pub fn of(payload: Payload) -> Option<Self> {
        match payload {
            Payload::Prompt { prompt } => Some(Self::Prompt { prompt }),
            Payload::Task { name, description, acceptance_criteria } => {
                Some(Self::Task { name, description, acceptance_criteria })
            }
            Payload::JobSpec { .. } => None,
        }
    }
}

impl DueRun {
    /// Composes the handoff. The same run always gives the same one, whichever orchestrator composes it.
    pub fn to_handoff(&self) -> Handoff {
        let (payload_type, payload) = match &self.payload {
            ManagerPayload::Prompt { prompt } => (SchedulePayloadType::Prompt, json!(prompt)),
            ManagerPayload::Task { name, description, acceptance_criteria } => {
                let task = json!({
                    "name": name, "description": description, "acceptance_criteria": acceptance_criteria,
                });
                (SchedulePayloadType::Task, task)
            }
        };
        let run_id = ScopeId::from(self.handoff_id);
        Handoff {
            id: self.handoff_id,
            issued_at: self.fired_at.clone(),
            deadline: Some(self.deadline.clone()),
            reply_to: None,
            scope: Scope {
                user_id: Some(self.user_id.clone()),
                project_id: self.project_id.clone(),
                run_id: Some(run_id.clone()),
                ..Scope::default()
            },
            context: Context::default(),
            replays: Vec::new(),
            work: Work::Schedule(Schedule {
                schedule_id: self.schedule_id.clone(),
                run_id,
                fired_at: self.slot.clone(),
                payload_type,
                payload,
            }),
        }
    }
}

/// `schedule.run.sent`: records that handoffs of runs were published, for the first time or again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MarkSent {
    #[schemars(length(max = MAX_MARKED))]
    pub handoff_ids: Vec<HandoffId>,
    /// Ignored: a cancel is due until the run has its end. Orchestrators of earlier builds name here what
    /// they cancelled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_MARKED))]
    pub cancelled: Vec<HandoffId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MarkedSent {
    /// How many were not marked before.
    pub marked: u64,
    /// Of the published handoffs, those whose runs were given up meanwhile, to be cancelled.
    pub cancels: Vec<HandoffId>,
}

tool!("schedule.run.sent": MarkSent => MarkedSent);

/// `schedule.run.unsent`: open runs that were fired some time ago and are not known to be published, each
/// with a lease, and handoffs of runs that were given up, again and again until they have their ends, for a
/// week at most.
///
/// Open runs that were published five minutes ago are among them, with their `sent_at`: the handoff or
/// its answer may be lost with a stream that was restored from an older backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListUnsent {
    pub older_than_seconds: u64,
    #[schemars(range(min = 1, max = MAX_UNSENT))]
    pub limit: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unsent {
    pub runs: Vec<DueRun>,
    pub cancels: Vec<HandoffId>,
}

tool!("schedule.run.unsent": ListUnsent => Unsent);

/// `schedule.run.end`: stores the answer to the handoff of a run. A run that has ended keeps its end; one
/// that was given up needs no cancel any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndRun {
    pub handoff_id: HandoffId,
    pub outcome: RunOutcome,
    /// The text of the answer; of a failure, what failed. Only its beginning is kept.
    #[serde(default)]
    pub text: String,
    /// Of a failure: its code.
    #[serde(default)]
    pub error_code: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunOutcome {
    Completed,
    Question,
    Failed,
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedRun {
    /// Whether this call ended the run. Otherwise it had ended, or there is no such run.
    pub ended: bool,
}

tool!("schedule.run.end": EndRun => EndedRun);
