//! Structured outputs by rules.

use serde_json::{Value, json};
use subjects::Message;

use super::{excerpt, intent::slug, review, steps};
use crate::inference::REPAIR;

/// Number of messages at the end that ask for the output.
const QUESTION_MESSAGES: usize = 1;

/// Returns the structured output `name` by rules. For an unknown name it is an empty object, which is never
/// valid.
pub(super) fn output_for(name: &str, messages: &[Message]) -> String {
    // Asked again for an output that did not fit, it answers the first request.
    let messages = match messages {
        [before @ .., Message::Assistant { .. }, Message::User { content }]
            if content.starts_with(REPAIR) =>
        {
            before
        }
        all => all,
    };
    // The last message asks for the output; its subject precedes it.
    let about = &messages[..messages.len().saturating_sub(QUESTION_MESSAGES)];
    let text = about.iter().rev().find(|message| matches!(message, Message::User { .. }));
    let text = text.map_or("", Message::content);
    let asked = messages.last().map_or("", Message::content);
    let output = match name {
        "assessment" => return assessment(text),
        "plan" => plan(text),
        "scheduled_task" => scheduled_task(text),
        "judgement" => judgement(text, asked),
        "steps" => steps::plan(text),
        "review" => review::decide(text),
        _ => json!({}),
    };
    output.to_string()
}

/// Assesses a text by its words and its length. Written without a serialiser, since every chat asks for one.
fn assessment(text: &str) -> String {
    let plain = text[..text.floor_char_boundary(200)].to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| plain.contains(word));
    let input = if has(&["new project", "from scratch", "start a project", "greenfield"]) {
        "new_project"
    } else if has(&["feature", "implement", "extend", "support for", "build", "plan"]) {
        "feature_request"
    } else {
        "quick_fix"
    };
    // ASCII whitespace and a limit, for speed: every chat is assessed, however long.
    let scope = match text.split_ascii_whitespace().take(151).count() {
        0..=6 => "trivial",
        7..=40 => "small",
        41..=150 => "medium",
        _ => "large",
    };
    format!(
        r#"{{"type":"{input}","scope":"{scope}","estimated_files":null,"components":[],"reasons":["by rules, without a model"]}}"#
    )
}

/// Makes each part of the goal a step that depends on the one before.
fn plan(text: &str) -> Value {
    let goal = text.lines().find_map(|line| line.strip_prefix("Goal: ")).unwrap_or(text);
    let criteria: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("Acceptance criterion: ")).collect();
    let parts = goal
        .replace(", then ", "\n")
        .replace(" and then ", "\n")
        .replace(" and ", "\n")
        .replace([',', ';'], "\n");
    let mut steps: Vec<Value> = Vec::new();
    let mut earlier: Vec<String> = Vec::new();
    for part in parts.lines().map(str::trim).filter(|part| !part.is_empty()).take(12) {
        let mut name = slug(part);
        if earlier.contains(&name) {
            name = format!("{name}-{}", earlier.len() + 1);
        }
        let own = vec![format!("It can be seen that this was done: {}", excerpt(part, 160))];
        steps.push(json!({
            "name": name, "description": excerpt(part, 400), "acceptance_criteria": own,
            "depends_on": earlier.last().into_iter().collect::<Vec<_>>(),
        }));
        earlier.push(name);
    }
    // The acceptance criteria of the goal become those of the last step.
    if let Some(list) = steps.last_mut().and_then(|step| step["acceptance_criteria"].as_array_mut()) {
        list.extend(criteria.into_iter().map(Value::from));
    }
    json!({ "summary": format!("In order: {}", excerpt(goal, 200)), "steps": steps, "question": null })
}

fn scheduled_task(text: &str) -> Value {
    let asked = text.split_once('\n').map_or(text, |(_, asked)| asked);
    let given: Option<Value> = serde_json::from_str(asked).ok();
    let field = |name: &str| given.as_ref().and_then(|given| given.get(name)).and_then(Value::as_str);
    let description = field("description").or(field("name")).unwrap_or(asked);
    json!({
        "name": field("name").map_or_else(|| slug(description), slug),
        "description": excerpt(description, 400),
        "acceptance_criteria": [format!("It can be seen that this was done: {}", excerpt(description, 160))],
    })
}

/// Words that deny what a line says.
const DENIALS: [&str; 6] = ["not", "no", "never", "without", "fails", "failed"];

/// Judges a criterion by the first line of the material that contains all its words of more than three
/// letters: not met if the line denies something, met otherwise. Without such a line it is unclear.
fn judgement(material: &str, asked: &str) -> Value {
    let criterion = asked.rsplit_once("Criterion: ").map_or(asked, |(_, criterion)| criterion);
    let criterion = criterion.to_lowercase();
    let words: Vec<&str> =
        criterion.split(|c: char| !c.is_alphanumeric()).filter(|word| word.chars().count() > 3).collect();
    let mut location = None;
    for line in material.lines() {
        if let Some(label) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            location = Some(label);
            continue;
        }
        let line = line.strip_prefix("> ").unwrap_or(line);
        let plain = line.to_lowercase();
        if location.is_some() && !words.is_empty() && words.iter().all(|word| plain.contains(word)) {
            let denies =
                |text: &str| text.split(|c: char| !c.is_alphanumeric()).any(|word| DENIALS.contains(&word));
            if denies(&plain) && !denies(&criterion) {
                return json!({
                    "verdict": "not_met", "severity": "major", "evidence": excerpt(line, 300),
                    "location": location, "recommended_action": "Do what the criterion asks for.",
                });
            }
            return json!({
                "verdict": "met", "severity": "info", "evidence": excerpt(line, 300), "location": location,
                "recommended_action": null,
            });
        }
    }
    json!({
        "verdict": "unclear", "severity": "info", "evidence": null, "location": null,
        "recommended_action": "Connect a language model, or add evidence in the words of the criterion, \
            then verify again.",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_is_asked_for_again_is_about_the_same_subject() {
        let material =
            "Review 1 of 3.\n\n[result]\n> Outcome: succeeded\n\n[findings]\n> not_met: It is fast\n";
        let mut messages = vec![Message::user(material), Message::user("Decide.")];
        let first = output_for("review", &messages);
        assert!(first.contains("revise"), "{first}");
        messages.push(Message::Assistant { content: first.clone(), calls: Vec::new() });
        messages.push(Message::user(format!("{REPAIR}: it has no changed step. Answer again.")));
        assert_eq!(output_for("review", &messages), first);
    }
}
