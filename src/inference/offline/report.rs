//! Renders tool results as the text of a reply.

use serde_json::Value;
use subjects::Message;

use super::excerpt;

const MAX_BYTES: usize = 2_000;
const MAX_LINES: usize = 50;

/// Renders tool results: jobs and workflows as sentences, items with a name as one line each, everything else
/// verbatim.
pub(super) fn render(results: &[&Message]) -> String {
    let mut out = "No language model is connected; this is what the tools say.".to_owned();
    for result in results {
        if let Message::Tool { name, content, .. } = result {
            let rendered = render_job(content).or_else(|| render_workflow(content));
            let rendered = rendered.or_else(|| render_lines(content));
            let rendered = rendered.unwrap_or_else(|| excerpt(content, MAX_BYTES));
            out.push_str(&format!("\n\n`{}`:\n{rendered}", name.replace("__", ".")));
        }
    }
    out
}

/// Renders one line for each item. Returns `None` if an item has no name.
fn render_lines(content: &str) -> Option<String> {
    let result: Value = serde_json::from_str(content).ok()?;
    let lines: Vec<String> = match result.get("items").and_then(Value::as_array) {
        Some(items) if items.is_empty() => return Some("nothing".to_owned()),
        Some(items) => items.iter().take(MAX_LINES).map(line).collect::<Option<_>>()?,
        None => vec![line(&result)?],
    };
    Some(lines.join("\n"))
}

/// Renders a job: how it ended and what it wrote last. Returns `None` for anything else.
fn render_job(content: &str) -> Option<String> {
    let job: Value = serde_json::from_str(content).ok()?;
    let (id, status) = (job.get("job_id")?.as_str()?, job.get("status")?.as_str()?);
    let mut out = format!("Job `{id}` is {status}");
    if let Some(end) = job.get("end").filter(|end| !end.is_null()) {
        let how = end.get("how").and_then(Value::as_str).unwrap_or_default();
        let code = end.get("code").map(|code| format!(" with code {code}")).unwrap_or_default();
        let why = end.get("why").and_then(Value::as_str).map(|why| format!(": {why}")).unwrap_or_default();
        out.push_str(&format!(": it {how}{code}{why}"));
    }
    out.push('.');
    if let Some(why) = job.get("waiting_because").and_then(Value::as_str) {
        out.push_str(&format!(" It waits: {why}."));
    }
    if let Some(log) = job.get("log_tail").and_then(Value::as_str).filter(|log| !log.trim().is_empty()) {
        out.push_str(&format!("\n\n```\n{}\n```", log.trim_end()));
    }
    Some(out)
}

/// Renders a workflow: how far it is, and what a person can do. Returns `None` for anything else.
fn render_workflow(content: &str) -> Option<String> {
    let workflow: Value = serde_json::from_str(content).ok()?;
    let word = |member: &str| workflow.get(member).and_then(Value::as_str).filter(|word| !word.is_empty());
    let (task, status, _) = (word("task_name")?, word("status")?, workflow.get("epoch")?);
    let is_active = workflow.get("already_active").and_then(Value::as_bool).unwrap_or_default();
    let mut out = match status {
        "queued" if is_active => format!("The workflow of `{task}` was started before, and is queued."),
        "queued" => format!("The workflow of `{task}` is queued."),
        "waiting" => format!("The workflow of `{task}` waits for a person."),
        "done" => format!("The workflow of `{task}` is done."),
        "failed" => format!("The workflow of `{task}` has failed."),
        "cancelled" => format!("The workflow of `{task}` is cancelled."),
        _ if is_active => format!("The workflow of `{task}` was started before, and is {status}."),
        _ => format!("The workflow of `{task}` is {status}."),
    };
    if let Some(question) = word("question") {
        // An approval names the question that was shown.
        let id = word("question_id").filter(|_| word("waiting_for") == Some("approval"));
        let id = id.map(|id| format!(" #{id}")).unwrap_or_default();
        out.push_str(&format!("\n\n{}\n\nAnswer with “answer {task}{id}: TEXT”.", question.trim_end()));
    } else if let Some(why) = word("waiting_because") {
        out.push_str(&format!(" It {why}."));
    }
    if let Some(error) = word("error") {
        out.push_str(&format!(" The reason: {}", excerpt(error, MAX_BYTES)));
    }
    if let Some(summary) = word("summary") {
        out.push_str(&format!("\n\n{}", summary.trim_end()));
    }
    Some(out)
}

fn line(item: &Value) -> Option<String> {
    let word = |member: &str| item.get(member).and_then(Value::as_str).filter(|word| !word.is_empty());
    let name = ["name", "path", "job_id", "node_id"].into_iter().find_map(word)?;
    let rest: Vec<&str> =
        [word("status").or_else(|| word("state")), word("title").filter(|title| *title != name)]
            .into_iter()
            .flatten()
            .collect();
    Some(if rest.is_empty() { format!("- `{name}`") } else { format!("- `{name}`: {}", rest.join(", ")) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(content: &Value) -> String {
        let result = Message::Tool {
            call_id: "c".into(),
            name: "workflow__start".into(),
            content: content.to_string(),
        };
        render(&[&result])
    }

    #[test]
    fn workflow_is_reported_in_sentences() {
        let workflow = |more: Value| {
            let mut workflow = json!({ "task_id": "t-1", "task_name": "paint-it", "task_title": "Paint it",
                                       "run": 1, "trigger": "start", "epoch": 0, "status": "queued" });
            workflow.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            rendered(&workflow)
        };
        for (more, said) in [
            (
                json!({ "waiting_because": "waits for a runner" }),
                "`workflow.start`:\nThe workflow of `paint-it` is queued. It waits for a runner.",
            ),
            (
                json!({ "status": "running", "already_active": true }),
                "The workflow of `paint-it` was started before, and is running.",
            ),
            (
                json!({ "status": "waiting", "question": "Which colour?", "waiting_because": "waits" }),
                "waits for a person.\n\nWhich colour?\n\nAnswer with “answer paint-it: TEXT”.",
            ),
            (
                json!({ "status": "waiting", "waiting_for": "approval", "question": "May it run?",
                        "question_id": "i-1" }),
                "\n\nMay it run?\n\nAnswer with “answer paint-it #i-1: TEXT”.",
            ),
            (json!({ "status": "failed", "error": "no paint" }), "has failed. The reason: no paint"),
            (json!({ "status": "done", "summary": "All blue." }), "is done.\n\nAll blue."),
        ] {
            let text = workflow(more);
            assert!(text.ends_with(said) && !text.contains('{'), "{text}");
        }
        assert!(
            rendered(&json!({ "name": "paint-it", "status": "pending" })).ends_with("- `paint-it`: pending")
        );
    }
}
