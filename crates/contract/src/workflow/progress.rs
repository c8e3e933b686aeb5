//! Where a workflow stands, read from its state, for people.
//!
//! The state is the runner's. What cannot be read in it is left out, so that people always see the rest.

use serde::Deserialize;
use serde_json::Value;
use subjects::workflow::{ReviewDecision, StepKind, StepResult};

use super::{Details, Effect, Event, Status, WaitingFor};

/// A node of the graph that runners follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    LoadTaskContext,
    PlanSteps,
    DecideNext,
    DispatchStep,
    CollectResult,
    VerifyStepResult,
    AskPerson,
    FinalizeSummary,
    MarkFailed,
}

impl Node {
    pub const ALL: [Self; 9] = [
        Self::LoadTaskContext,
        Self::PlanSteps,
        Self::DecideNext,
        Self::DispatchStep,
        Self::CollectResult,
        Self::VerifyStepResult,
        Self::AskPerson,
        Self::FinalizeSummary,
        Self::MarkFailed,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LoadTaskContext => "load_task_context",
            Self::PlanSteps => "plan_steps",
            Self::DecideNext => "decide_next",
            Self::DispatchStep => "dispatch_step",
            Self::CollectResult => "collect_result",
            Self::VerifyStepResult => "verify_step_result",
            Self::AskPerson => "ask_person",
            Self::FinalizeSummary => "finalize_summary",
            Self::MarkFailed => "mark_failed",
        }
    }

    /// Returns the node of this name; `None` for what is no node, such as `runner`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|node| node.as_str() == name)
    }
}

/// Where a step stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStatus {
    #[default]
    Pending,
    Running,
    /// It has ended, and its result is reviewed.
    Ended,
    /// A person is asked about it.
    Asking,
    Done,
    Failed,
}

impl StepStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Ended => "in review",
            Self::Asking => "asking",
            Self::Done => "done",
            Self::Failed => "failed",
        }
    }

    /// Returns whether something happens to the step now.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Running | Self::Ended | Self::Asking)
    }
}

/// A step of the plan, with what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepProgress {
    pub name: String,
    pub description: String,
    pub kind: Option<StepKind>,
    pub status: StepStatus,
    pub depends_on: Vec<String>,
    pub needs_approval: bool,
    /// How often it was tried since its last answer of a person.
    pub attempts: u64,
    /// The result of the last attempt.
    pub result: Option<StepResult>,
    /// The last decision about its result.
    pub review: Option<ReviewDecision>,
}

#[derive(Deserialize)]
struct PlannedStep {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    kind: Option<StepKind>,
    #[serde(default)]
    status: StepStatus,
    #[serde(default)]
    depends_on: Vec<String>,
    #[serde(default)]
    needs_approval: bool,
}

impl Details {
    /// Returns the steps of the plan; none before it is planned.
    pub fn steps(&self) -> Vec<StepProgress> {
        let Some(state) = &self.state else { return Vec::new() };
        let plan = state.get("plan").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let of_step = |field: &str, name: &str| state.get(field)?.get(name).cloned();
        let progress = |step: &Value| {
            let step = PlannedStep::deserialize(step).ok()?;
            let name = step.name.as_str();
            Some(StepProgress {
                attempts: of_step("attempts_by_step", name).as_ref().and_then(Value::as_u64).unwrap_or(0),
                result: of_step("results", name).and_then(|it| serde_json::from_value(it).ok()),
                review: of_step("verification", name).and_then(|it| serde_json::from_value(it).ok()),
                name: step.name,
                description: step.description,
                kind: step.kind,
                status: step.status,
                depends_on: step.depends_on,
                needs_approval: step.needs_approval,
            })
        };
        plan.iter().filter_map(progress).collect()
    }

    /// Returns the names of the steps to which something happens now.
    pub fn open_steps(&self) -> Vec<String> {
        if self.workflow.status.is_final() {
            return Vec::new();
        }
        self.steps().into_iter().filter(|step| step.status.is_open()).map(|step| step.name).collect()
    }

    /// Returns the node that the workflow is at, or at which it goes on; `None` if it has not begun or was
    /// cancelled.
    pub fn present_node(&self) -> Option<Node> {
        let has_begun = self.workflow.epoch > 0;
        match (self.workflow.status, self.workflow.waiting_for) {
            (Status::Done, _) => Some(Node::FinalizeSummary),
            (Status::Failed, _) => Some(Node::MarkFailed),
            (Status::Cancelled, _) => None,
            (Status::Waiting, Some(WaitingFor::Question | WaitingFor::Approval)) => Some(Node::AskPerson),
            (Status::Queued | Status::Waiting | Status::Running, _) => has_begun.then(|| self.next_node()),
        }
    }

    fn next_node(&self) -> Node {
        match self.workflow.last_node.as_deref().map(Node::named) {
            None => Node::LoadTaskContext,
            Some(Some(Node::LoadTaskContext)) => Node::PlanSteps,
            Some(Some(Node::DispatchStep)) => Node::CollectResult,
            Some(Some(Node::CollectResult)) => Node::VerifyStepResult,
            Some(Some(end @ (Node::FinalizeSummary | Node::MarkFailed))) => end,
            Some(Some(Node::DecideNext)) => self.decided_node(),
            Some(Some(Node::PlanSteps | Node::VerifyStepResult | Node::AskPerson) | None) => Node::DecideNext,
        }
    }

    /// Returns what a decision leads to, as the runner chooses it.
    fn decided_node(&self) -> Node {
        let holds = |field: &str| {
            self.state.as_ref().and_then(|state| state.get(field)).is_some_and(|value| !value.is_null())
        };
        let steps = self.steps();
        let has = |status: StepStatus| steps.iter().any(|step| step.status == status);
        match () {
            () if holds("error") => Node::MarkFailed,
            () if holds("question") => Node::AskPerson,
            () if steps.is_empty() => Node::PlanSteps,
            () if has(StepStatus::Running) => Node::DispatchStep,
            () if has(StepStatus::Ended) => Node::VerifyStepResult,
            () => Node::FinalizeSummary,
        }
    }

    /// Returns what the models cost, as far as prices are known; `None` if none is.
    pub fn cost_usd(&self) -> Option<f64> {
        sum_of_costs(self.effects.iter())
    }
}

/// Returns the sum of the costs that are known.
pub fn sum_of_costs<'e>(effects: impl Iterator<Item = &'e Effect>) -> Option<f64> {
    effects.filter_map(|effect| effect.cost_usd).fold(None, |sum, cost| Some(sum.unwrap_or(0.0) + cost))
}

impl Event {
    /// Returns whether the event only says that the graph went on, which is of no use to people.
    pub fn is_routing(&self) -> bool {
        self.step.is_none() && self.detail.is_none() && self.node == Node::DecideNext.as_str()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn details(more: &Value) -> Details {
        let mut workflow = json!({
            "task_id": "t", "task_name": "t", "task_title": "T", "status": "running", "run": 1,
            "trigger": "start", "epoch": 1, "policy": {}, "user_id": "ada", "started_by": "ada",
            "created_at": "", "updated_at": "", "effects": [], "events": [],
        });
        for (name, value) in more.as_object().unwrap() {
            workflow[name] = value.clone();
        }
        serde_json::from_value(workflow).unwrap()
    }

    #[test]
    fn present_node_follows_from_status_last_node_and_state() {
        let running = json!({ "plan": [{ "name": "a", "status": "running" }] });
        let done = json!({ "plan": [{ "name": "a", "status": "done" }] });
        for (more, expected) in [
            (json!({ "status": "queued", "epoch": 0 }), None),
            (json!({}), Some(Node::LoadTaskContext)),
            (json!({ "last_node": "load_task_context" }), Some(Node::PlanSteps)),
            (json!({ "last_node": "dispatch_step" }), Some(Node::CollectResult)),
            (json!({ "last_node": "collect_result" }), Some(Node::VerifyStepResult)),
            (json!({ "last_node": "retry" }), Some(Node::DecideNext)),
            (json!({ "last_node": "decide_next" }), Some(Node::PlanSteps)),
            (json!({ "last_node": "decide_next", "state": running }), Some(Node::DispatchStep)),
            (json!({ "last_node": "decide_next", "state": done }), Some(Node::FinalizeSummary)),
            (json!({ "last_node": "decide_next", "state": { "error": "no" } }), Some(Node::MarkFailed)),
            (json!({ "status": "waiting", "waiting_for": "approval" }), Some(Node::AskPerson)),
            (json!({ "status": "waiting", "waiting_for": "pause" }), Some(Node::LoadTaskContext)),
            (json!({ "status": "done" }), Some(Node::FinalizeSummary)),
            (json!({ "status": "cancelled" }), None),
        ] {
            assert_eq!(details(&more).present_node(), expected, "{more}");
        }
    }

    #[test]
    fn steps_are_read_as_far_as_they_can_be() {
        let state = json!({
            "plan": [{ "name": "a", "kind": "job", "status": "ended", "script": "true" }, 7, { "name": "b" }],
            "attempts_by_step": { "a": 2 },
            "results": { "a": { "outcome": "failed", "exit_code": 1, "question": "?" }, "b": "nonsense" },
            "verification": { "a": { "decision": "retry", "reasons": ["no"], "iteration": 1 }, "b": null },
        });
        let read = details(&json!({ "state": state }));
        let steps = read.steps();
        assert_eq!(steps.iter().map(|step| &*step.name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!((steps[0].attempts, steps[0].status), (2, StepStatus::Ended));
        assert_eq!(steps[0].result.as_ref().unwrap().exit_code, Some(1));
        assert_eq!(steps[0].review.as_ref().unwrap().reasons, ["no"]);
        assert_eq!((steps[1].attempts, &steps[1].result, steps[1].kind), (0, &None, None));
        assert_eq!(read.open_steps(), ["a"]);
        assert!(details(&json!({ "state": "nonsense" })).steps().is_empty());
        assert!(details(&json!({})).steps().is_empty());
    }
}
