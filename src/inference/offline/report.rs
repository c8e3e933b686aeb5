//! Renders tool results as the text of a reply.

use serde_json::Value;
use subjects::Message;

use super::excerpt;

const MAX_BYTES: usize = 2_000;
const MAX_LINES: usize = 50;

/// Renders tool results: items with a name as one line each, everything else verbatim.
pub(super) fn render(results: &[&Message]) -> String {
    let mut out = "No language model is connected; this is what the tools say.".to_owned();
    for result in results {
        if let Message::Tool { name, content, .. } = result {
            let rendered = render_lines(content).unwrap_or_else(|| excerpt(content, MAX_BYTES));
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

fn line(item: &Value) -> Option<String> {
    let word = |member: &str| item.get(member).and_then(Value::as_str).filter(|word| !word.is_empty());
    let name = word("name")?;
    let rest: Vec<&str> =
        [word("status"), word("title").filter(|title| *title != name)].into_iter().flatten().collect();
    Some(if rest.is_empty() { format!("- `{name}`") } else { format!("- `{name}`: {}", rest.join(", ")) })
}
