use serde_json::Value;
use subjects::Message;

use super::excerpt;

const MOST_BYTES: usize = 2_000;
const MOST_LINES: usize = 50;

/// What the tools gave back: things with a name as lines, everything else word for word.
pub(super) fn of(results: &[&Message]) -> String {
    let mut out = "No language model is connected; this is what the tools say.".to_owned();
    for result in results {
        if let Message::Tool { name, content, .. } = result {
            let told = in_lines(content).unwrap_or_else(|| excerpt(content, MOST_BYTES));
            out.push_str(&format!("\n\n`{}`:\n{told}", name.replace("__", ".")));
        }
    }
    out
}

/// `None` for what has no names.
fn in_lines(content: &str) -> Option<String> {
    let result: Value = serde_json::from_str(content).ok()?;
    let lines: Vec<String> = match result.get("items").and_then(Value::as_array) {
        Some(items) if items.is_empty() => return Some("nothing".to_owned()),
        Some(items) => items.iter().take(MOST_LINES).map(line).collect::<Option<_>>()?,
        None => vec![line(&result)?],
    };
    Some(lines.join("\n"))
}

fn line(thing: &Value) -> Option<String> {
    let word = |member: &str| thing.get(member).and_then(Value::as_str).filter(|word| !word.is_empty());
    let name = word("name")?;
    let rest: Vec<&str> =
        [word("status"), word("title").filter(|title| *title != name)].into_iter().flatten().collect();
    Some(if rest.is_empty() { format!("- `{name}`") } else { format!("- `{name}`: {}", rest.join(", ")) })
}
