//! The structured outputs that the agent asks models for, and the prompts for them.

use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subjects::{Assessment, Severity, Verdict};

use super::ask_structured::StructuredOutput;

/// Maximum number of steps of a plan.
const MAX_STEPS: usize = 40;
/// Maximum length of a task or step name.
const MAX_NAME_CHARS: usize = 60;
/// Maximum length of a description or of quoted evidence.
const MAX_TEXT_CHARS: usize = 1_000;

impl StructuredOutput for Assessment {
    const NAME: &'static str = "assessment";

    fn schema_cell() -> &'static OnceLock<Arc<Value>> {
        static SCHEMA: OnceLock<Arc<Value>> = OnceLock::new();
        &SCHEMA
    }
}

/// O2, O3: asks for an [`Assessment`].
pub(super) const ASSESS_PROMPT: &str = "Assess the request above; do not answer it. `type`: new_project when \
    something is to be built that does not exist yet, feature_request when something that exists is to do \
    more, quick_fix for everything small, questions included. `scope`: trivial (a word or a line), small \
    (one file or one task), medium (several files or tasks), large (it changes the architecture). \
    `estimated_files`: your best guess, or null. `components`: the parts that are touched. `reasons`: one or \
    two short sentences.";

/// A goal as steps that one worker can finish and one analyst can check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DraftPlan {
    /// One or two sentences on how the goal is reached.
    pub(crate) summary: String,
    /// In the order in which they are to be done.
    #[schemars(length(max = MAX_STEPS))]
    pub(crate) steps: Vec<DraftStep>,
    /// Set only when the goal cannot be planned without an answer.
    pub(crate) question: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DraftStep {
    /// Short, lowercase, with hyphens, as people would say it: `deploy-docs`.
    #[schemars(length(max = MAX_NAME_CHARS))]
    pub(crate) name: String,
    #[schemars(length(max = MAX_TEXT_CHARS))]
    pub(crate) description: String,
    /// Each can be answered with yes or no.
    pub(crate) acceptance_criteria: Vec<String>,
    /// Names of earlier steps that must be done first.
    pub(crate) depends_on: Vec<String>,
}

impl StructuredOutput for DraftPlan {
    const NAME: &'static str = "plan";
    const MAX_TOKENS: u32 = 4_096;

    fn schema_cell() -> &'static OnceLock<Arc<Value>> {
        static SCHEMA: OnceLock<Arc<Value>> = OnceLock::new();
        &SCHEMA
    }

    fn check(&self) -> Result<(), String> {
        if self.question.as_ref().is_some_and(|question| !question.trim().is_empty()) {
            return Ok(());
        }
        if self.steps.is_empty() {
            return Err("a plan without a question has at least one step".to_owned());
        }
        if self.steps.len() > MAX_STEPS {
            return Err(format!("{} steps are too many; at most {MAX_STEPS}", self.steps.len()));
        }
        for (index, step) in self.steps.iter().enumerate() {
            if step.name.trim().is_empty() {
                return Err(format!("step {} has no name", index + 1));
            }
            if self.steps[..index].iter().any(|earlier| earlier.name == step.name) {
                return Err(format!("two steps are called `{}`", step.name));
            }
            let is_earlier = |name: &String| self.steps[..index].iter().any(|earlier| earlier.name == *name);
            if let Some(unknown) = step.depends_on.iter().find(|name| !is_earlier(name)) {
                return Err(format!("`{}` depends on `{unknown}`, which is not an earlier step", step.name));
            }
        }
        Ok(())
    }
}

pub(super) const PLAN_PROMPT: &str = "Make a plan for the goal above: steps in their order, each small \
    enough for one worker to finish and one analyst to check, with acceptance criteria that can be answered \
    with yes or no. Keep every criterion and constraint that was given. Ask a question only when two \
    readings of the goal would lead to different plans; otherwise `question` is null.";

/// What a schedule that fired means today.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ScheduledTask {
    /// Short, lowercase, with hyphens: `weekly-report`.
    #[schemars(length(max = MAX_NAME_CHARS))]
    pub(crate) name: String,
    #[schemars(length(max = MAX_TEXT_CHARS))]
    pub(crate) description: String,
    pub(crate) acceptance_criteria: Vec<String>,
}

impl StructuredOutput for ScheduledTask {
    const NAME: &'static str = "scheduled_task";

    fn schema_cell() -> &'static OnceLock<Arc<Value>> {
        static SCHEMA: OnceLock<Arc<Value>> = OnceLock::new();
        &SCHEMA
    }

    fn check(&self) -> Result<(), String> {
        if self.name.trim().is_empty() { Err("the task has no name".to_owned()) } else { Ok(()) }
    }
}

pub(super) const INTERPRET_PROMPT: &str = "The schedule above fired. Say which one task it calls for now: \
    its name, what is to be done, and acceptance criteria that can be answered with yes or no. Invent \
    nothing that the schedule does not ask for.";

/// One acceptance criterion, judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    pub(crate) severity: Severity,
    /// The passage that decides it, quoted; null when there is none.
    #[schemars(length(max = MAX_TEXT_CHARS))]
    pub(crate) evidence: Option<String>,
    /// Where that passage stands.
    pub(crate) location: Option<String>,
    /// What would change the verdict; null when it is met.
    pub(crate) recommended_action: Option<String>,
}

impl StructuredOutput for Judgement {
    const NAME: &'static str = "judgement";

    fn schema_cell() -> &'static OnceLock<Arc<Value>> {
        static SCHEMA: OnceLock<Arc<Value>> = OnceLock::new();
        &SCHEMA
    }

    fn check(&self) -> Result<(), String> {
        let has_evidence = self.evidence.as_ref().is_some_and(|evidence| !evidence.trim().is_empty());
        if self.verdict != Verdict::Unclear && !has_evidence {
            return Err("a verdict other than unclear needs evidence".to_owned());
        }
        Ok(())
    }
}

pub(super) const JUDGE_PROMPT: &str = "Judge the one acceptance criterion below by the material above, and \
    by nothing else. `met` and `not_met` need a passage of the material as evidence; without one the verdict \
    is `unclear`.";
