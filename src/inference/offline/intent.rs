//! Finds the tool calls that a sentence asks for, by its first words.

use serde_json::{Map, Value, json};
use subjects::ToolCall;

use super::super::{Function, Request};

const PLAN: &str = "plan";
const MAX_STEPS: usize = 8;

/// Beginnings of a sentence, each with the function to call. The first one whose function is offered is used.
const COMMANDS: [(&[&str], &str); 11] = [
    (&["plan the tasks", "plan tasks", PLAN], "db__task__create"),
    (&["create a task", "create task", "add a task", "add task", "new task"], "db__task__create"),
    (
        &[
            "list tasks",
            "list the tasks",
            "show tasks",
            "show the tasks",
            "what tasks",
            "which tasks",
            "what is left to do",
            "what is there to do",
        ],
        "db__task__list",
    ),
    (&["list projects", "show projects", "which projects"], "db__project__list"),
    (&["show task", "show the task"], "db__task__get"),
    (&["verify"], "request_verification"),
    (&["list artifacts", "show artifacts", "which artifacts"], "artifact__list"),
    (&["list nodes", "show nodes", "which nodes"], "node__list"),
    (&["list models", "show models", "which models"], "model__list"),
    (&["list skills", "show skills"], "skills__list"),
    (&["help"], "help__list"),
];

/// Returns the calls that a sentence asks for; none if no beginning matches or the function is not offered.
pub(super) fn calls_for(asked: &str, request: &Request<'_>) -> Vec<ToolCall> {
    parse(asked, request).unwrap_or_default()
}

fn parse(asked: &str, request: &Request<'_>) -> Option<Vec<ToolCall>> {
    let asked = asked.trim();
    if let Some(call) = named_tool(asked, request) {
        return Some(vec![call]);
    }
    // No beginning of a command is longer than this.
    let plain = asked[..asked.floor_char_boundary(64)].to_lowercase();
    let (beginning, function) = COMMANDS.iter().find_map(|(beginnings, name)| {
        let beginning = beginnings.iter().find(|beginning| begins(&plain, beginning))?;
        let function = request.tools.iter().find(|function| function.name == *name)?;
        Some((*beginning, function))
    })?;
    let rest = asked.get(beginning.len()..).unwrap_or_default().trim_matches(is_padding);
    if function.name == "db__task__create" && rest.is_empty() {
        let is_plan = beginning.starts_with(PLAN);
        let question = if is_plan { "Which steps are there?" } else { "What should the task be called?" };
        let can_ask = request.tools.iter().any(|function| function.name == "ask_user");
        return can_ask.then(|| vec![call(0, "ask_user", &json!({ "question": question }))]);
    }
    let each: Vec<&str> = if beginning.starts_with(PLAN) { steps(rest) } else { vec![rest] };
    let calls = each.into_iter().enumerate().map(|(number, text)| {
        call(number, &function.name, &Value::Object(arguments(function, text, request)))
    });
    Some(calls.collect())
}

/// Returns the call that `Use <tool>: <text>` asks for, if the tool is offered.
fn named_tool(asked: &str, request: &Request<'_>) -> Option<ToolCall> {
    let (verb, rest) = asked.split_once(' ')?;
    let (tool, text) = rest.split_once([' ', ':']).unwrap_or((rest, ""));
    let name = tool.replace('.', "__");
    let function = request.tools.iter().find(|function| function.name == name)?;
    let arguments = || arguments(function, text.trim_matches(is_padding), request);
    verb.eq_ignore_ascii_case("use").then(|| call(0, &function.name, &Value::Object(arguments())))
}

/// Splits a text into steps, each of which becomes a task.
fn steps(text: &str) -> Vec<&str> {
    let parts = text.split([',', ';', '\n']).map(|part| part.trim_matches(is_padding));
    parts.filter(|part| !part.is_empty()).take(MAX_STEPS).collect()
}

/// Lists the commands that can be understood, for the user.
pub(super) fn hint(request: &Request<'_>) -> String {
    let understood: Vec<String> = COMMANDS
        .iter()
        .filter(|(_, name)| request.tools.iter().any(|function| function.name == *name))
        .filter_map(|(beginnings, _)| beginnings.first())
        .map(|first| format!("“{first}”"))
        .collect();
    if understood.is_empty() { String::new() } else { format!(" I do understand {}.", understood.join(", ")) }
}

fn begins(text: &str, beginning: &str) -> bool {
    text.strip_prefix(beginning).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

fn is_padding(character: char) -> bool {
    character.is_whitespace() || matches!(character, ':' | '.' | '"' | '`' | '\'' | '“' | '”' | '?')
}

fn call(number: usize, name: &str, arguments: &Value) -> ToolCall {
    ToolCall { id: format!("call_{number}"), name: name.to_owned(), arguments: arguments.to_string() }
}

/// Fills the arguments that the schema declares from the sentence and from the ids in the layers.
fn arguments(function: &Function, rest: &str, request: &Request<'_>) -> Map<String, Value> {
    let mut out = Map::new();
    let Some(properties) = function.parameters.get("properties").and_then(Value::as_object) else {
        return out;
    };
    for name in properties.keys() {
        let value = match name.as_str() {
            "name" => Some(json!(slug(rest))),
            "title" | "description" | "text" | "content" => Some(json!(rest)),
            "project_id" => in_layers(request, "project_id"),
            "task_id" if rest.is_empty() => in_layers(request, "task_id"),
            "task_id" => Some(json!(rest)),
            _ => None,
        };
        if let Some(value) = value {
            out.insert(name.clone(), value);
        }
    }
    out
}

/// Returns the value of a field in layers 3 to 5.
fn in_layers(request: &Request<'_>, name: &str) -> Option<Value> {
    let beginning = format!("> {name}: ");
    request.system.handoff_lines().find_map(|line| line.strip_prefix(&beginning)).map(|id| json!(id))
}

/// Returns a name such as `write-the-release-notes`.
pub(super) fn slug(text: &str) -> String {
    const MAX_WORDS: usize = 6;
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .take(MAX_WORDS)
        .map(str::to_lowercase)
        .collect();
    if words.is_empty() { "task".to_owned() } else { words.join("-") }
}
