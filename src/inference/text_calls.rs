//! Recognises a tool call that a model wrote as text.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{
    request::Function,
    steps::{after_thoughts, first_object},
};

/// Where models put the name of the tool.
const NAME_KEYS: [&str; 5] = ["tool", "name", "function", "tool_name", "action"];

/// Marks that models put around calls. They mean nothing else.
const MARKS: [&str; 8] = [
    "<tool_call>",
    "[tool_calls]",
    "<|python_tag|>",
    "<function=",
    "<function_call",
    "<invoke name=",
    "<|tool_call",
    "to=functions.",
];

/// Returns the name of the offered tool that the text calls instead of calling it. A call that a sentence
/// quotes is an example.
pub(super) fn find<'t>(text: &str, tools: &'t [Arc<Function>]) -> Option<&'t str> {
    let named = |name: &str| {
        let is_it = |tool: &&Arc<Function>| tool.name == name || tool.name.replace("__", ".") == name;
        tools.iter().find(is_it).map(|tool| tool.name.as_str())
    };
    let text = after_thoughts(text);
    let lower = text.to_lowercase();
    if MARKS.iter().any(|mark| lower.contains(mark)) {
        let is_in = |tool: &&Arc<Function>| {
            let name = tool.name.to_lowercase();
            lower.contains(&name) || lower.contains(&name.replace("__", "."))
        };
        return tools.iter().find(is_in).map(|tool| tool.name.as_str());
    }
    let alone = without_fence(text);
    // Some models write a list of one call: `[name(argument=1)]`.
    let listed = alone.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).map(str::trim);
    let program = listed.filter(|call| !call.starts_with(['{', '[', '"']));
    if program.is_none() && alone.starts_with(['{', '[']) {
        return first_object(alone).as_ref().and_then(named_tool).and_then(named);
    }
    // As in a program: the name with its arguments in parentheses, and nothing else.
    let (name, rest) = program.unwrap_or(alone).trim_matches('`').split_once('(')?;
    named(name).filter(|_| rest.trim_end_matches(';').ends_with(')') && !rest.contains('\n'))
}

/// Returns what is in the only code block of a text, or the whole text.
fn without_fence(text: &str) -> &str {
    let parts: Vec<&str> = text.split("```").collect();
    let [_, block, _] = parts[..] else { return text.trim() };
    block.split_once('\n').map_or(block, |(_, code)| code).trim()
}

/// Returns the name in an object that has the form of a call. Data that only mentions a tool has no
/// arguments.
fn named_tool(object: &Map<String, Value>) -> Option<&str> {
    let has_arguments =
        ["arguments", "parameters", "args", "input"].iter().any(|key| object.contains_key(*key));
    NAME_KEYS.iter().find_map(|key| match object.get(*key)? {
        Value::String(name) if has_arguments => Some(name.as_str()),
        Value::Object(function) => function.get("name")?.as_str(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_in_text_are_told_from_answers() {
        let tools = [Arc::new(Function::new("db__task__list", "Lists.", &json!({})))];
        for call in [
            r#"{"tool": "db__task__list", "arguments": {}}"#,
            "```json\n{\"name\": \"db.task.list\", \"parameters\": {\"limit\": 3}}\n```",
            r#"Sure. <tool_call>{"name": "db__task__list", "arguments": {}}</tool_call>"#,
            r#"{"type": "function", "function": {"name": "db__task__list", "arguments": "{}"}}"#,
            "db__task__list(limit=3)",
            "<function=db__task__list>{}</function>",
            "[TOOL_CALLS]db__task__list{\"limit\": 3}",
            "[db__task__list(limit=3)]",
            "<think>A list, then.</think>\n{\"name\": \"db__task__list\", \"arguments\": {}}",
        ] {
            assert_eq!(find(call, &tools), Some("db__task__list"), "{call}");
        }
        let of_upper_case = [Arc::new(Function::new("wiki__getPage", "Gets.", &json!({})))];
        let call = r#"<tool_call>{"name": "wiki__getPage", "arguments": {}}</tool_call>"#;
        assert_eq!(find(call, &of_upper_case), Some("wiki__getPage"));
        for answer in [
            "Two tasks are open.",
            r#"The file holds {"name": "db__task__list"}."#,
            r#"{"tool": "other", "arguments": {}}"#,
            "I used db__task__list (see above).",
            "[see db__task__list(limit=3)]",
            "<think>Perhaps db__task__list(limit=3)?</think>Two tasks are open.",
            r#"You would write {"name": "db.task.list", "arguments": {}}. I have done nothing."#,
            "",
        ] {
            assert_eq!(find(answer, &tools), None, "{answer}");
        }
    }
}
