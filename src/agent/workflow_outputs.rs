//! The structured outputs of workflows: the steps of a task, and the decision about what a step did.

use std::sync::{Arc, OnceLock};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use subjects::workflow::{Decision, IssueSeverity, Step, StepFile, StepKind, check_steps};

use super::ask_structured::StructuredOutput;

const MAX_NAME_CHARS: usize = 60;
const MAX_TEXT_CHARS: usize = 1_000;
/// Engines that turn a schema into a grammar reject higher repetition counts.
const MAX_FILE_CHARS: usize = 2_000;

/// All files that a job left are kept if its step names none: later steps need them.
const ALL_FILES: &str = "**";

/// The steps of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DraftSteps {
    /// One or two sentences on how the task is done.
    pub(crate) summary: String,
    pub(crate) steps: Vec<DraftStep>,
    /// Set only when the task cannot be planned without an answer.
    pub(crate) question: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DraftStep {
    /// Short, lowercase, with hyphens: `convert-table`.
    #[schemars(length(max = MAX_NAME_CHARS))]
    pub(crate) name: String,
    #[schemars(length(max = MAX_TEXT_CHARS))]
    pub(crate) description: String,
    pub(crate) kind: DraftKind,
    /// What a job runs with /bin/sh; null for a manager.
    #[schemars(length(max = MAX_FILE_CHARS))]
    pub(crate) script: Option<String>,
    /// Files that are in the job's folder when it starts, in full.
    pub(crate) files: Vec<DraftFile>,
    /// Paths or patterns of the files to keep.
    pub(crate) outputs: Vec<String>,
    /// Hosts that the job must reach.
    pub(crate) network: Vec<String>,
    /// How long it may take, in seconds; null for the default.
    pub(crate) seconds: Option<u32>,
    /// Each can be answered with yes or no.
    pub(crate) criteria: Vec<String>,
    /// Names of steps that must be done first.
    pub(crate) depends_on: Vec<String>,
    pub(crate) needs_approval: bool,
}

// Without comments on the variants, which would make it a schema that some servers refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DraftKind {
    Job,
    Manager,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DraftFile {
    pub(crate) path: String,
    #[schemars(length(max = MAX_FILE_CHARS))]
    pub(crate) text: String,
}

impl DraftSteps {
    /// Returns whether the model asks instead of planning, and what.
    pub(crate) fn question(&self) -> Option<&str> {
        self.question.as_deref().map(str::trim).filter(|question| !question.is_empty())
    }

    pub(crate) fn to_steps(&self) -> Vec<Step> {
        self.steps.iter().map(DraftStep::to_step).collect()
    }
}

impl DraftStep {
    /// Returns the step as the contract has it. A job is given all artifacts of its task.
    pub(crate) fn to_step(&self) -> Step {
        let is_job = self.kind == DraftKind::Job;
        let given = |list: &[String]| -> Vec<String> {
            list.iter().filter(|text| is_job && !text.trim().is_empty()).cloned().collect()
        };
        let mut outputs = given(&self.outputs);
        if is_job && outputs.is_empty() {
            outputs.push(ALL_FILES.to_owned());
        }
        Step {
            name: tidy_name(&self.name),
            description: self.description.trim().to_owned(),
            kind: if is_job { StepKind::Job } else { StepKind::Manager },
            script: self.script.clone().filter(|script| is_job || !script.trim().is_empty()),
            files: self.files.iter().map(DraftFile::to_file).collect(),
            artifacts: if is_job { vec![ALL_FILES.to_owned()] } else { Vec::new() },
            outputs,
            network: given(&self.network),
            seconds: self.seconds.filter(|seconds| *seconds > 0),
            criteria: self.criteria.iter().filter(|it| !it.trim().is_empty()).cloned().collect(),
            depends_on: self.depends_on.iter().map(|name| tidy_name(name)).collect(),
            needs_approval: self.needs_approval,
        }
    }
}

impl DraftFile {
    fn to_file(&self) -> StepFile {
        let path = self.path.trim();
        StepFile { path: path.strip_prefix("./").unwrap_or(path).to_owned(), text: self.text.clone() }
    }
}

/// Returns a name in the letters that names of steps have: models write `Convert table`.
fn tidy_name(name: &str) -> String {
    let is_letter = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
    let words = name.trim().split(|letter: char| !is_letter(letter)).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

impl StructuredOutput for DraftSteps {
    const NAME: &'static str = "steps";
    const MAX_TOKENS: u32 = 4_096;

    fn schema_cell() -> &'static OnceLock<Arc<Value>> {
        static SCHEMA: OnceLock<Arc<Value>> = OnceLock::new();
        &SCHEMA
    }

    fn check(&self) -> Result<(), String> {
        match self.question() {
            Some(_) => Ok(()),
            None => check_steps(&self.to_steps()).map_err(|error| error.to_string()),
        }
    }
}

pub(super) const STEPS_PROMPT: &str = "Plan the steps of the task above. A `job` is a script for /bin/sh. It \
    runs in a sandbox, in a folder with the artifacts of the task and the `files` of the step, and has no \
    network but the hosts in `network`. Write scripts and files in full, for programs that every system has, \
    such as sh and python3. A script ends with exit code 0 only if it did its work: let it check what it \
    made. `outputs` are the files to keep; with none given, all are kept. A step for a `manager` needs tools \
    of the control plane or a judgement, and has no script. Give each step criteria that its result can be \
    judged by with yes or no, and keep every criterion of the task. Steps that do not depend on each other \
    run at the same time. `needs_approval` is for what cannot be undone. Ask a question only when two \
    readings of the task would lead to different steps; otherwise `question` is null.";

/// What a manager decides about the result of a step, before the rules of reviews are applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DraftReview {
    /// What is wrong with the result; empty if nothing is.
    pub(crate) issues: Vec<DraftIssue>,
    pub(crate) decision: DraftDecision,
    /// One or two short sentences.
    pub(crate) reasons: Vec<String>,
    /// The whole changed step, for revise and reduce_scope; otherwise null.
    pub(crate) step: Option<DraftStep>,
    /// What a person is asked, for escalate; otherwise null.
    pub(crate) question: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DraftDecision {
    Pass,
    Revise,
    Retry,
    ReduceScope,
    Escalate,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DraftIssue {
    pub(crate) severity: DraftSeverity,
    /// A file and line, or a passage of the output; null when there is none.
    pub(crate) location: Option<String>,
    pub(crate) problem: String,
    pub(crate) fix: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DraftSeverity {
    Critical,
    Major,
    Minor,
}

impl From<DraftDecision> for Decision {
    fn from(decision: DraftDecision) -> Self {
        match decision {
            DraftDecision::Pass => Self::Pass,
            DraftDecision::Revise => Self::Revise,
            DraftDecision::Retry => Self::Retry,
            DraftDecision::ReduceScope => Self::ReduceScope,
            DraftDecision::Escalate => Self::Escalate,
        }
    }
}

impl From<DraftSeverity> for IssueSeverity {
    fn from(severity: DraftSeverity) -> Self {
        match severity {
            DraftSeverity::Critical => Self::Critical,
            DraftSeverity::Major => Self::Major,
            DraftSeverity::Minor => Self::Minor,
        }
    }
}

impl StructuredOutput for DraftReview {
    const NAME: &'static str = "review";
    const MAX_TOKENS: u32 = 4_096;

    fn schema_cell() -> &'static OnceLock<Arc<Value>> {
        static SCHEMA: OnceLock<Arc<Value>> = OnceLock::new();
        &SCHEMA
    }
}

pub(super) const REVIEW_PROMPT: &str = "Decide about the result of the step above, by the findings and the \
    result and by nothing else. `issues`: critical if the result must not be used, major if a criterion is \
    not met, minor for a blemish; each with what would cure it. `pass`: nothing critical or major is wrong. \
    `revise`: the step itself is wrong; give the whole changed step. `retry`: the same step can succeed next \
    time, as after an outage. `reduce_scope`: the step cannot be done as it is, but a smaller one is worth \
    having; give it. `escalate`: only a person can decide; ask one question.";

pub(super) const LAST_REVIEW_PROMPT: &str =
    " This is the last review of the step: decide `pass`, `reduce_scope` or `escalate`.";

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(name: &str, kind: DraftKind) -> DraftStep {
        DraftStep {
            name: name.to_owned(),
            description: "Convert the table.".to_owned(),
            kind,
            script: Some("python3 convert.py".to_owned()).filter(|_| kind == DraftKind::Job),
            files: Vec::new(),
            outputs: Vec::new(),
            network: Vec::new(),
            seconds: None,
            criteria: Vec::new(),
            depends_on: Vec::new(),
            needs_approval: false,
        }
    }

    #[test]
    fn job_is_given_the_artifacts_and_keeps_its_files() {
        let step = draft("Convert the table", DraftKind::Job).to_step();
        assert_eq!((step.name.as_str(), step.check()), ("Convert-the-table", Ok(())));
        assert_eq!((&step.artifacts, &step.outputs), (&vec!["**".to_owned()], &vec!["**".to_owned()]));
        let named = DraftStep { outputs: vec!["table.json".to_owned()], ..draft("a", DraftKind::Job) };
        assert_eq!(named.to_step().outputs, ["table.json"]);
        let manager = draft("decide", DraftKind::Manager).to_step();
        assert!(manager.check().is_ok() && manager.artifacts.is_empty() && manager.outputs.is_empty());
    }

    #[test]
    fn steps_that_cannot_be_done_are_sent_back() {
        let steps = |steps: Vec<DraftStep>, question: Option<&str>| DraftSteps {
            summary: String::new(),
            steps,
            question: question.map(str::to_owned),
        };
        let job = || draft("a", DraftKind::Job);
        assert_eq!(steps(vec![job()], None).check(), Ok(()));
        assert_eq!(steps(vec![], Some("Which table?")).check(), Ok(()));
        for (drafts, why) in [
            (vec![], "at least one"),
            (vec![job(), job()], "two steps are called `a`"),
            (vec![DraftStep { depends_on: vec!["b".to_owned()], ..job() }], "`b`, which is not a step"),
            (vec![DraftStep { script: None, ..job() }], "a job needs a script"),
        ] {
            let said = steps(drafts, Some(" ")).check().unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }
}
