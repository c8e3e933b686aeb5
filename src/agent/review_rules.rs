//! The rules of reviews, which hold whatever a model says. Pure.
//!
//! - A step without criteria that succeeded passes, without a model.
//! - A step that failed, or has a critical or major issue, does not pass.
//! - Minor issues alone pass, and do not change the step: they are for people.
//! - The last review of a step decides neither `revise` nor `retry`.

use subjects::{
    Finding, Severity, Verdict,
    workflow::{Decision, Issue, IssueSeverity, Outcome, Review, ReviewDecision, Step},
};

use super::workflow_outputs::{DraftReview, DraftStep};

/// How many bytes of a description the issues of an earlier attempt may take.
const MAX_ADDED_BYTES: usize = 4 * 1_024;
const MAX_REASONS: usize = 12;

/// The findings of analysts on the result of a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Verified {
    /// There was nothing to verify.
    NotAsked,
    Found(Vec<Finding>),
    /// No analyst answered; the reason says why.
    Absent(String),
}

impl Verified {
    /// Returns the findings that say that a criterion is not met.
    fn unmet(&self) -> impl Iterator<Item = &Finding> {
        let findings = match self {
            Self::Found(findings) => &findings[..],
            Self::NotAsked | Self::Absent(_) => &[],
        };
        findings.iter().filter(|finding| finding.verdict == Verdict::NotMet)
    }
}

/// Decides without a model, if nothing needs a judgement.
pub(super) fn decide_without_model(review: &Review) -> Option<ReviewDecision> {
    let is_clear = review.result.outcome == Outcome::Succeeded && review.effective_criteria().is_empty();
    is_clear.then(|| ReviewDecision {
        decision: Decision::Pass,
        reasons: vec!["The step succeeded and has no acceptance criteria.".to_owned()],
        issues: Vec::new(),
        step: None,
        question: None,
    })
}

/// Returns what a draft lacks. The model is asked for it once more.
pub(super) fn check_draft(review: &Review, draft: &DraftReview) -> Result<(), String> {
    let has_question = draft.question.as_ref().is_some_and(|question| !question.trim().is_empty());
    match Decision::from(draft.decision) {
        Decision::Revise | Decision::ReduceScope => match &draft.step {
            None => Err("it has no changed step".to_owned()),
            Some(step) => changed_step(&review.step, step, Decision::from(draft.decision))
                .check()
                .map_err(|error| error.to_string()),
        },
        Decision::Escalate if !has_question => Err("it escalates without a question".to_owned()),
        Decision::Pass | Decision::Retry | Decision::Escalate => Ok(()),
    }
}

/// Applies the rules to what a model decided.
pub(super) fn decide(review: &Review, draft: &DraftReview, verified: &Verified) -> ReviewDecision {
    let mut reasons: Vec<String> = draft.reasons.iter().filter_map(|reason| tidy(reason)).collect();
    reasons.truncate(MAX_REASONS);
    if let Verified::Absent(why) = verified {
        reasons.push(format!("No analyst verified the result: {why}. The manager decided alone."));
    }
    let issues = collect_issues(draft, verified);
    let is_blocked = issues.iter().any(|issue| issue.severity > IssueSeverity::Minor);
    let has_failed = review.result.outcome == Outcome::Failed;
    let wanted = Decision::from(draft.decision);
    let decision = match wanted {
        Decision::Pass if has_failed => {
            reasons.push("A step that failed does not pass.".to_owned());
            Decision::Retry
        }
        Decision::Pass if is_blocked => {
            reasons.push("A critical or major issue does not pass.".to_owned());
            Decision::Revise
        }
        Decision::Revise | Decision::Retry | Decision::ReduceScope
            if !has_failed && !is_blocked && !issues.is_empty() =>
        {
            reasons.push("Minor issues alone pass.".to_owned());
            Decision::Pass
        }
        wanted => wanted,
    };
    let changed = draft.step.as_ref().map(|step| changed_step(&review.step, step, decision));
    let changed = changed.filter(|step| step.check().is_ok());
    let decision = match decision {
        Decision::Revise | Decision::Retry if review.is_last() => {
            reasons.push(format!("It was the last of {} reviews.", review.max_iterations));
            Decision::Escalate
        }
        Decision::ReduceScope if changed.is_none() => {
            reasons.push("No smaller step was given.".to_owned());
            Decision::Escalate
        }
        decision => decision,
    };
    let step = match decision {
        Decision::Revise => Some(changed.unwrap_or_else(|| with_fixes(&review.step, &issues))),
        Decision::ReduceScope => changed,
        Decision::Pass | Decision::Retry | Decision::Escalate => None,
    };
    let question = (decision == Decision::Escalate).then(|| {
        draft.question.as_deref().and_then(tidy).unwrap_or_else(|| compose_question(review, &issues))
    });
    ReviewDecision { decision, reasons, issues, step, question }
}

/// Returns the issues of the model and those of the findings that it does not mention, the worst first.
fn collect_issues(draft: &DraftReview, verified: &Verified) -> Vec<Issue> {
    let mut issues: Vec<Issue> = Vec::new();
    for issue in &draft.issues {
        let Some(problem) = tidy(&issue.problem) else { continue };
        issues.push(Issue {
            severity: issue.severity.into(),
            location: issue.location.as_deref().and_then(tidy),
            problem,
            fix: tidy(&issue.fix).unwrap_or_else(|| "Not said.".to_owned()),
        });
    }
    for finding in verified.unmet() {
        let severity = severity(finding);
        let criterion = finding.criterion.to_lowercase();
        let is_known =
            |issue: &Issue| issue.severity >= severity && issue.problem.to_lowercase().contains(&criterion);
        if !issues.iter().any(is_known) {
            let evidence = finding.evidence.as_deref().map(|it| format!(" ({it})")).unwrap_or_default();
            issues.push(Issue {
                severity,
                location: finding.location.clone(),
                problem: format!("Not met: {}{evidence}", finding.criterion),
                fix: format!("Meet the criterion: {}", finding.criterion),
            });
        }
    }
    issues.sort_by_key(|issue| std::cmp::Reverse(issue.severity));
    issues
}

/// Returns how grave it is that a criterion is not met. That it is not even a blemish contradicts itself.
fn severity(finding: &Finding) -> IssueSeverity {
    match finding.severity {
        Severity::Critical => IssueSeverity::Critical,
        Severity::Major | Severity::Info => IssueSeverity::Major,
        Severity::Minor => IssueSeverity::Minor,
    }
}

/// Returns the step that is done next. It keeps its name, its dependencies and its approval, what the model
/// did not repeat, and, unless its scope is reduced, its criteria.
fn changed_step(original: &Step, draft: &DraftStep, decision: Decision) -> Step {
    let drafted = draft.to_step();
    let is_same_kind = drafted.kind == original.kind;
    let mut files = drafted.files;
    let is_new = |path: &str| !files.iter().any(|file| file.path == path);
    let kept: Vec<_> = original.files.iter().filter(|it| is_same_kind && is_new(&it.path)).cloned().collect();
    files.extend(kept);
    let or = |drafted: Vec<String>, original: &[String]| match (is_same_kind, drafted.is_empty()) {
        (true, true) => original.to_vec(),
        _ => drafted,
    };
    let outputs =
        if is_same_kind && draft.outputs.is_empty() { original.outputs.clone() } else { drafted.outputs };
    let keeps_criteria = decision != Decision::ReduceScope || drafted.criteria.is_empty();
    Step {
        name: original.name.clone(),
        description: tidy(&drafted.description).unwrap_or_else(|| original.description.clone()),
        kind: drafted.kind,
        script: drafted.script,
        files,
        artifacts: if is_same_kind { original.artifacts.clone() } else { drafted.artifacts },
        outputs,
        network: or(drafted.network, &original.network),
        seconds: drafted.seconds.or(original.seconds),
        criteria: if keeps_criteria { original.criteria.clone() } else { drafted.criteria },
        depends_on: original.depends_on.clone(),
        needs_approval: original.needs_approval || drafted.needs_approval,
    }
}

/// Returns the same step with what is to be cured in its description. Minor issues are withheld.
fn with_fixes(original: &Step, issues: &[Issue]) -> Step {
    const HEADING: &str = "To be cured:";
    let before = original.description.split(HEADING).next().unwrap_or_default().trim_end();
    let mut added = String::new();
    for issue in issues.iter().filter(|issue| issue.severity > IssueSeverity::Minor) {
        let line = format!("\n- {} Fix: {}", issue.problem, issue.fix);
        if added.len() + line.len() <= MAX_ADDED_BYTES {
            added.push_str(&line);
        }
    }
    let changed =
        Step { description: format!("{before}\n\n{HEADING}{added}").trim().to_owned(), ..original.clone() };
    // A description that is full already stays as it is.
    if changed.check().is_ok() { changed } else { original.clone() }
}

fn compose_question(review: &Review, issues: &[Issue]) -> String {
    let result = &review.result;
    let why = match (issues.first(), &result.error, result.exit_code) {
        (Some(issue), _, _) => issue.problem.clone(),
        (None, Some(error), _) => error.clone(),
        (None, None, Some(code)) if code != 0 => format!("it ended with exit code {code}"),
        (None, None, _) => "its result cannot be judged".to_owned(),
    };
    let why: String = why.chars().take(500).collect();
    format!("The step `{}` is not done: {why}. What should be done?", review.step.name)
}

/// Returns a text without the spaces around it; `None` if nothing is left.
fn tidy(text: &str) -> Option<String> {
    Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests;
