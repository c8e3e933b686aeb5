use serde_json::{Map, Value, json};
use subjects::ToolCall;

use super::super::{Function, Request};

const PLAN: &str = "plan";
const MOST_STEPS: usize = 8;

/// Beginnings of a sentence and the functions they stand for. The first that is offered is called.
const ORDERS: [(&[&str], &str); 11] = [
    (&["plan the tasks", "plan tasks", PLAN], "db__task__create"),
    (&["create a task", "create task", "add a task", "add task", "new task"], "db__task__create"),
    (
        &["list tasks", "list the tasks", "show tasks", "show the tasks", "what tasks", "which tasks"],
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

/// The calls that a sentence asks for in so many words, if that function is offered.
pub(super) fn of(asked: &str, request: &Request<'_>) -> Vec<ToolCall> {
    understood(asked, request).unwrap_or_default()
}

fn understood(asked: &str, request: &Request<'_>) -> Option<Vec<ToolCall>> {
    // No order begins with more words than this.
    let asked = asked.trim();
    let plain = asked[..asked.floor_char_boundary(64)].to_lowercase();
    let (beginning, function) = ORDERS.iter().find_map(|(beginnings, name)| {
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
    let made = each.into_iter().enumerate().map(|(number, text)| {
        call(number, &function.name, &Value::Object(arguments(function, text, request)))
    });
    Some(made.collect())
}

/// Each becomes a task.
fn steps(text: &str) -> Vec<&str> {
    let parts = text.split([',', ';', '\n']).map(|part| part.trim_matches(is_padding));
    parts.filter(|part| !part.is_empty()).take(MOST_STEPS).collect()
}

/// What it understands, so that a person need not guess.
pub(super) fn hint(request: &Request<'_>) -> String {
    let understood: Vec<String> = ORDERS
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

/// Fills what a schema has a place for from the sentence and from the ids in the layers.
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

fn in_layers(request: &Request<'_>, name: &str) -> Option<Value> {
    let beginning = format!("> {name}: ");
    request.system.own_lines().find_map(|line| line.strip_prefix(&beginning)).map(|id| json!(id))
}

/// A name as people would say it: `write-the-release-notes`.
pub(super) fn slug(text: &str) -> String {
    const MOST_WORDS: usize = 6;
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .take(MOST_WORDS)
        .map(str::to_lowercase)
        .collect();
    if words.is_empty() { "task".to_owned() } else { words.join("-") }
}
