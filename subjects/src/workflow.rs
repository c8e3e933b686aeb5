//! Workflows: the steps of a task, and the review of what a step did.

mod given;
mod review;

use std::collections::BTreeSet;

pub use given::deserialize_given_steps;
pub use review::{Decision, Issue, IssueSeverity, Outcome, Review, ReviewDecision, StepResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::text::named_enum;

/// How many steps a task can have.
pub const MAX_STEPS: usize = 50;
/// How many acceptance criteria a step can have.
pub const MAX_CRITERIA: usize = 50;
/// How many files a step can bring along, and how many patterns and hosts it can name.
pub const MAX_STEP_FILES: usize = 32;

const MAX_NAME_BYTES: usize = 64;
const MAX_PATH_BYTES: usize = 512;
const MAX_TEXT_BYTES: usize = 16 * 1024;
/// As much as `sandbox.run` takes.
const MAX_SCRIPT_BYTES: usize = 64 * 1024;
/// The size of all files of a step together.
const MAX_FILES_BYTES: usize = 256 * 1024;
const MAX_SECONDS: u32 = 7 * 24 * 3_600;

named_enum! {
    /// Who does a step.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum StepKind {
        /// A job in a sandbox, which runs the step's script.
        Job = "job",
        /// A project manager, with its tools.
        Manager = "manager",
    }

    #[error("`{0}` is not a kind of step; it is `job` or `manager`")]
    pub struct UnknownStepKind;
}

/// One step of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Names the step within its task: letters, digits, `-`, `_` and `.`.
    #[schemars(length(min = 1, max = MAX_NAME_BYTES))]
    pub name: String,
    /// What is to be done.
    #[serde(default)]
    pub description: String,
    pub kind: StepKind,
    /// What a job runs with `/bin/sh`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Files that are in the job's folder when it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_STEP_FILES))]
    pub files: Vec<StepFile>,
    /// Artifacts of the task that are in the job's folder when it starts, as paths or patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_STEP_FILES))]
    pub artifacts: Vec<String>,
    /// Files of the job that become artifacts of the task, as paths or patterns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_STEP_FILES))]
    pub outputs: Vec<String>,
    /// Hosts that the job may reach, as `host` or `host:port`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_STEP_FILES))]
    pub network: Vec<String>,
    /// How long the step may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_SECONDS))]
    pub seconds: Option<u32>,
    /// The acceptance criteria of the step, each to be answered with yes or no.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_CRITERIA))]
    pub criteria: Vec<String>,
    /// Names of steps that must be done first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = MAX_STEPS))]
    pub depends_on: Vec<String>,
    /// Whether a person has to agree before the step begins.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_approval: bool,
}

/// A text file of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StepFile {
    /// Relative to the job's folder.
    #[schemars(length(min = 1, max = MAX_PATH_BYTES))]
    pub path: String,
    pub text: String,
}

/// What is wrong with the steps of a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSteps(String);

/// Checks the steps of a task: each by itself, that names are unique, and that dependencies are steps and
/// form no circle.
pub fn check_steps(steps: &[Step]) -> Result<(), InvalidSteps> {
    if steps.is_empty() {
        return invalid("there are no steps; a task has at least one".to_owned());
    }
    if steps.len() > MAX_STEPS {
        return invalid(format!("{} steps are too many; a task has at most {MAX_STEPS}", steps.len()));
    }
    let mut names = BTreeSet::new();
    for step in steps {
        step.check()?;
        if !names.insert(step.name.as_str()) {
            return invalid(format!("two steps are called `{}`; names are unique", step.name));
        }
    }
    for step in steps {
        if let Some(unknown) = step.depends_on.iter().find(|name| !names.contains(name.as_str())) {
            return invalid(format!("step `{}` depends on `{unknown}`, which is not a step", step.name));
        }
    }
    check_acyclic(steps)
}

/// Takes steps whose dependencies are taken, until all are taken or none can be.
fn check_acyclic(steps: &[Step]) -> Result<(), InvalidSteps> {
    let mut done: BTreeSet<&str> = BTreeSet::new();
    loop {
        let ready = |step: &&Step| {
            !done.contains(step.name.as_str())
                && step.depends_on.iter().all(|name| done.contains(name.as_str()))
        };
        let next: Vec<&str> = steps.iter().filter(ready).map(|step| step.name.as_str()).collect();
        if next.is_empty() {
            break;
        }
        done.extend(next);
    }
    let rest = steps.iter().filter(|step| !done.contains(step.name.as_str()));
    let rest: Vec<String> = rest.map(|step| format!("`{}`", step.name)).collect();
    if rest.is_empty() {
        return Ok(());
    }
    invalid(format!("the dependencies of {} form a circle", rest.join(", ")))
}

impl Step {
    /// Checks the step by itself, without the others of its task.
    pub fn check(&self) -> Result<(), InvalidSteps> {
        let is_letter = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '_' | '.');
        if self.name.is_empty() || self.name.len() > MAX_NAME_BYTES || !self.name.chars().all(is_letter) {
            return invalid(format!(
                "`{}` is not a name of a step; it has 1 to {MAX_NAME_BYTES} bytes of letters, digits, `-`, \
                 `_` and `.`",
                excerpt(&self.name)
            ));
        }
        let (name, wrong) = (&self.name, |why: String| invalid(format!("step `{}`: {why}", self.name)));
        if self.description.len() > MAX_TEXT_BYTES {
            return wrong(format!("description has more than {MAX_TEXT_BYTES} bytes"));
        }
        match (self.kind, &self.script) {
            (StepKind::Job, None) => return wrong("a job needs a script".to_owned()),
            (StepKind::Job, Some(script)) if script.trim().is_empty() => {
                return wrong("the script is empty".to_owned());
            }
            (StepKind::Job, Some(script)) if script.len() > MAX_SCRIPT_BYTES => {
                return wrong(format!("the script has more than {MAX_SCRIPT_BYTES} bytes; use a file"));
            }
            (StepKind::Manager, None) if self.description.trim().is_empty() => {
                return wrong("a manager's step needs a description of what to do".to_owned());
            }
            (StepKind::Manager, Some(_)) => {
                return wrong("a manager runs no script; the kind of the step is `job`".to_owned());
            }
            (StepKind::Job, Some(_)) | (StepKind::Manager, None) => {}
        }
        let lists = [("artifacts", &self.artifacts), ("outputs", &self.outputs), ("network", &self.network)];
        for (what, list) in lists {
            if self.kind == StepKind::Manager && !list.is_empty() {
                return wrong(format!("a manager's step has no {what}; the kind of the step is `job`"));
            }
            if list.len() > MAX_STEP_FILES {
                return wrong(format!("{} {what} are too many; at most {MAX_STEP_FILES}", list.len()));
            }
            if list.iter().any(|text| text.trim().is_empty() || text.len() > MAX_PATH_BYTES) {
                return wrong(format!("an item of {what} is empty or has more than {MAX_PATH_BYTES} bytes"));
            }
        }
        self.check_files()?;
        if self.seconds.is_some_and(|seconds| !(1..=MAX_SECONDS).contains(&seconds)) {
            return wrong(format!("seconds lies outside 1 to {MAX_SECONDS}"));
        }
        check_criteria(&self.criteria).or_else(|InvalidSteps(why)| wrong(why))?;
        if self.depends_on.len() > MAX_STEPS {
            return wrong(format!("depends_on names more than {MAX_STEPS} steps"));
        }
        if self.depends_on.contains(name) {
            return wrong("it depends on itself".to_owned());
        }
        Ok(())
    }

    fn check_files(&self) -> Result<(), InvalidSteps> {
        let wrong = |why: String| invalid(format!("step `{}`: {why}", self.name));
        if self.kind == StepKind::Manager && !self.files.is_empty() {
            return wrong("a manager's step has no files; the kind of the step is `job`".to_owned());
        }
        if self.files.len() > MAX_STEP_FILES {
            return wrong(format!("{} files are too many; at most {MAX_STEP_FILES}", self.files.len()));
        }
        let mut paths = BTreeSet::new();
        for file in &self.files {
            let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
            if file.path.len() > MAX_PATH_BYTES || !file.path.split('/').all(is_part) {
                return wrong(format!(
                    "`{}` is not the path of a file; it is relative to the job's folder and stays in it",
                    excerpt(&file.path)
                ));
            }
            if !paths.insert(&file.path) {
                return wrong(format!("files names `{}` twice", file.path));
            }
        }
        let size: usize = self.files.iter().map(|file| file.text.len()).sum();
        if size > MAX_FILES_BYTES {
            return wrong(format!("the files have {size} bytes; at most {MAX_FILES_BYTES}"));
        }
        Ok(())
    }
}

fn check_criteria(criteria: &[String]) -> Result<(), InvalidSteps> {
    if criteria.len() > MAX_CRITERIA {
        return invalid(format!("{} criteria are too many; at most {MAX_CRITERIA}", criteria.len()));
    }
    if criteria.iter().any(|criterion| criterion.trim().is_empty() || criterion.len() > MAX_TEXT_BYTES) {
        return invalid(format!("a criterion is empty or has more than {MAX_TEXT_BYTES} bytes"));
    }
    Ok(())
}

fn invalid<T>(why: String) -> Result<T, InvalidSteps> {
    Err(InvalidSteps(why))
}

/// Returns the beginning of a text that is shown in an error.
fn excerpt(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests;
