//! A workflow as people and managers see it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WorkflowStatus))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Waits for a runner, or for the tasks that its task depends on.
    Queued,
    /// A runner works on it.
    Running,
    /// Waits for a person: an answer, or the end of a pause.
    Waiting,
    Done,
    Failed,
    Cancelled,
}

impl Status {
    pub const ALL: [Self; 6] =
        [Self::Queued, Self::Running, Self::Waiting, Self::Done, Self::Failed, Self::Cancelled];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns whether the workflow has ended.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// What a workflow that waits for a person waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WorkflowWaitingFor))]
#[serde(rename_all = "snake_case")]
pub enum WaitingFor {
    /// An answer to its question.
    Question,
    /// A yes or no.
    Approval,
    /// The end of a pause.
    Pause,
}

impl WaitingFor {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Question => "question",
            Self::Approval => "approval",
            Self::Pause => "pause",
        }
    }
}

/// Why the newest run of a workflow began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WorkflowTrigger))]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    Start,
    /// After a pause, or with a person's answer.
    Resume,
    /// After it had failed or was cancelled.
    Retry,
}

impl Trigger {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Resume => "resume",
            Self::Retry => "retry",
        }
    }
}

/// How often things are tried, and how long steps may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WorkflowPolicy))]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// How often one step is tried: 3 when not given.
    #[schemars(range(min = 1, max = 20))]
    pub max_attempts: u32,
    /// How often the result of one step is reviewed: 3 when not given.
    #[schemars(range(min = 1, max = 20))]
    pub max_reviews: u32,
    /// How long a step may take that does not say so itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 604_800))]
    pub step_seconds: Option<u32>,
    /// How long the job of a step waits for a node: 3600 when not given. Then the attempt fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_QUEUE_SECONDS))]
    pub queue_seconds: Option<u32>,
}

/// How long a job of a workflow waits for a node at most: the queue of jobs keeps it for six days.
pub const MAX_QUEUE_SECONDS: u32 = 6 * 24 * 3_600;
const DEFAULT_QUEUE_SECONDS: u32 = 3_600;

impl Policy {
    /// Returns how long the job of a step waits for a node.
    pub fn queue_seconds(&self) -> u32 {
        self.queue_seconds.unwrap_or(DEFAULT_QUEUE_SECONDS)
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { max_attempts: 3, max_reviews: 3, step_seconds: None, queue_seconds: None }
    }
}

/// The workflow of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Workflow {
    pub task_id: String,
    pub task_name: String,
    pub task_title: String,
    pub status: Status,
    /// Of `workflow.start`: it was active before, and nothing was started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub already_active: bool,
    /// Of `workflow.cancel`: the names of the tasks that were cancelled with it, since they depend on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canceled_with: Vec<String>,
    /// How often it was given to runners: its start, and each resume and retry.
    pub run: i64,
    /// Why the newest run began.
    pub trigger: Trigger,
    /// Raised each time a runner takes it, and when it is paused, cancelled or tried again.
    pub epoch: i64,
    /// The node of the graph that was last completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_node: Option<String>,
    /// The runner that works on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Until when that runner holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
    /// Why it waits, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_because: Option<String>,
    /// The question that a person has to answer with `workflow.resume`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// Tells this question from others of the workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question_id: Option<String>,
    pub policy: Policy,
    /// Why it failed, or was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it reached, once it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    pub user_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    pub started_by: String,
    pub created_at: String,
    pub updated_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
}

/// A workflow with its state, its jobs and handoffs, and what happened last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WorkflowDetails))]
pub struct Details {
    #[serde(flatten)]
    pub workflow: Workflow,
    /// The state after the last node: plan, attempts, results, verification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub state: Option<Value>,
    /// The jobs and handoffs that it began, in order: the latest 500.
    pub effects: Vec<Effect>,
    /// What happened, in order: the latest 200.
    pub events: Vec<Event>,
}

/// A job or a handoff that a workflow began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WorkflowEffect))]
pub struct Effect {
    /// Names it within the workflow; the same key is the same job or handoff.
    pub key: String,
    pub kind: EffectKind,
    /// The id of the job or of the handoff.
    pub id: String,
    /// The step that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The status of the job, or that of the answer to the handoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    pub epoch: i64,
    pub began_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<String>,
    /// What the models of a handoff cost, if their prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WorkflowEffectKind))]
#[serde(rename_all = "snake_case")]
pub enum EffectKind {
    Job,
    Plan,
    Review,
    Chat,
}

impl EffectKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Plan => "plan",
            Self::Review => "review",
            Self::Chat => "chat",
        }
    }
}

/// Why a job or a handoff was ended before it ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Its answer did not come in time.
    GivenUp,
    /// Its workflow was cancelled, or has ended.
    Cancelled,
}

impl EndReason {
    /// Returns the reason as it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GivenUp => "given_up",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Something that happened to a workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WorkflowEvent))]
pub struct Event {
    /// Later events have higher numbers.
    pub sequence: i64,
    pub epoch: i64,
    pub at: String,
    /// The node of the graph; `runner` and `workflow` for what happened to the whole.
    pub node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    pub outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = WorkflowOutcome))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Started,
    Ended,
    Failed,
    /// It is tried again.
    Retried,
    /// It waits for a person.
    Waiting,
    /// A person answered.
    Answered,
    Paused,
    Resumed,
    Cancelled,
    /// A runner did not renew its lease in time, and another one took over.
    LeaseLost,
}

impl Outcome {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Ended => "ended",
            Self::Failed => "failed",
            Self::Retried => "retried",
            Self::Waiting => "waiting",
            Self::Answered => "answered",
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::Cancelled => "cancelled",
            Self::LeaseLost => "lease_lost",
        }
    }
}
