//! What the scripted model decides about results.

use serde_json::{Value, json};
use testkit::{ModelRequest, Script, typical};

pub(super) const CRITICAL: &str = "The page is empty.";
pub(super) const MAJOR: &str = "The page has no title.";
pub(super) const MINOR: &str = "The title is long-winded.";

pub(super) fn issue(severity: &str, problem: &str) -> Value {
    let fix = format!("Cure it: {problem}");
    json!({ "severity": severity, "location": null, "problem": problem, "fix": fix })
}

/// A decision. Its changed step, if it has one, is left to the rules.
pub(super) fn decision(decision: &str, issues: &Value) -> Value {
    json!({ "decision": decision, "reasons": [format!("The model decides to {decision}.")], "issues": issues,
            "step": null, "question": null })
}

/// Returns the number of the review that a model is asked for.
pub(super) fn iteration(asked: &ModelRequest) -> u32 {
    let material = material(asked);
    let number = material.strip_prefix("Review ").and_then(|rest| rest.split(' ').next());
    number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no review: {material}"))
}

/// Returns what a model is to judge.
pub(super) fn material(asked: &ModelRequest) -> &str {
    asked.messages()[1]["content"].as_str().unwrap()
}

/// Answers reviews by `decide`, and everything else as usual.
pub(super) fn reviewing(
    decide: impl Fn(&ModelRequest) -> Value + Send + Sync + 'static,
) -> impl Fn(&ModelRequest) -> Script + Send + Sync + 'static {
    move |asked| match asked.form() {
        Some("review") => Script::Say(decide(asked).to_string()),
        form => Script::Say(typical(form.unwrap_or_default()).to_string()),
    }
}
