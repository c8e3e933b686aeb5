//! The review of what a step did: what the manager is given, and what it decides.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InvalidSteps, Step, check_criteria};
use crate::{Refusal, ScopeId, job::End, text::named_enum};

/// A step whose result a manager reviews.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Review {
    pub task_id: ScopeId,
    pub step: Step,
    pub result: StepResult,
    /// The acceptance criteria that the result is judged by. Those of the step if there are none here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub criteria: Vec<String>,
    /// Which review of this step it is, counted from 1.
    pub iteration: NonZeroU32,
    /// How many reviews the step can have. The last one decides for good.
    pub max_iterations: NonZeroU32,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepResult {
    pub outcome: Outcome,
    /// How the job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<End>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The end of what the job wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tail: Option<String>,
    /// The paths of the artifacts that the step left.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
    /// What a manager answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Why the step could not be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Succeeded,
    Failed,
}

/// What a manager decides about the result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReviewDecision {
    pub decision: Decision,
    /// Why, in short sentences for people.
    #[serde(default)]
    pub reasons: Vec<String>,
    /// What is wrong with the result. Minor issues are for people, not for the next attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<Issue>,
    /// The changed step, for `revise` and `reduce_scope`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// What a person is asked, for `escalate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
}

named_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Decision {
        /// The step is done.
        Pass = "pass",
        /// The changed step is done again.
        Revise = "revise",
        /// The same step is done again.
        Retry = "retry",
        /// A smaller step is done instead.
        ReduceScope = "reduce_scope",
        /// A person is asked.
        Escalate = "escalate",
    }

    #[error("`{0}` is not a review decision")]
    pub struct UnknownDecision;
}

/// One thing that is wrong with the result of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Issue {
    pub severity: IssueSeverity,
    /// Where it is: a file and line, a passage of the output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    pub problem: String,
    /// What would cure it.
    pub fix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IssueSeverity {
    /// A blemish; it does not hold the step up.
    Minor,
    /// A criterion is not met.
    Major,
    /// The result must not be used.
    Critical,
}

impl Review {
    /// Returns the criteria that the result is judged by.
    pub fn effective_criteria(&self) -> &[String] {
        if self.criteria.is_empty() { &self.step.criteria } else { &self.criteria }
    }

    /// Returns whether no further review of this step follows.
    pub fn is_last(&self) -> bool {
        self.iteration >= self.max_iterations
    }

    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let wrong = |what: &str, why: InvalidSteps| Refusal::invalid(format!("{what} is invalid: {why}"));
        self.step.check().map_err(|why| wrong("payload.step", why))?;
        check_criteria(&self.criteria).map_err(|why| wrong("payload.criteria", why))?;
        if self.iteration > self.max_iterations {
            return Err(Refusal::invalid(format!(
                "payload.iteration is {}, more than max_iterations, {}",
                self.iteration, self.max_iterations
            )));
        }
        Ok(())
    }
}
