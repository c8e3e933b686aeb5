//! Finds the tool calls that a sentence asks for, by its first words.

use serde_json::{Map, Value, json};
use subjects::{Message, ToolCall};

use super::{
    super::{ASK_USER, Function, Request},
    dialogue::{Asked, WHAT_TO_RUN, WHICH_NAME, WHICH_STEPS, WHICH_TASK, WHICH_TASK_RUNS},
};

const PLAN: &str = "plan";
const CREATE: &str = "db__task__create";
/// Beginnings of a goal to be done.
const GOALS: [&str; 2] = ["do:", "carry out"];
/// Separates a goal from its acceptance criterion.
const SO_THAT: &str = ", so that ";
const START: &str = "workflow__start";
const RESUME: &str = "workflow__resume";
const VERIFY: &str = "request_verification";
const MAX_STEPS: usize = 8;
const RUN: &str = "sandbox__run";
const RUN_PARAMETERS: [&str; 4] = ["task_id", "script", "artifacts", "wait_seconds"];
const TESTS: [&str; 3] = ["run the tests", "run all tests", "run tests"];
/// Runs the tests of a folder by what is in it.
const RUN_TESTS: &str = "\
if [ -f Makefile ]; then make test
elif [ -f Cargo.toml ]; then cargo test
elif [ -f package.json ]; then npm test
elif [ -f go.mod ]; then go test ./...
elif [ -d tests ] || ls *test*.py >/dev/null 2>&1; then python3 -m unittest discover -v
else echo 'no tests were found: neither a Makefile nor a project of Rust, Node, Go or Python'; exit 2
fi";
/// How long a reply waits for a job, in seconds.
const RUN_WAIT: u64 = 60;

/// A command that is understood.
struct Command {
    /// Beginnings of a sentence.
    beginnings: &'static [&'static str],
    /// The function to call, and the parameters that are filled in if it is not among the offered ones.
    function: &'static str,
    parameters: &'static [&'static str],
}

const COMMANDS: [Command; 17] = [
    command(&["plan the tasks", "plan tasks", PLAN], CREATE, &["name", "title", "project_id"]),
    command(
        &["create a task", "create task", "add a task", "add task", "new task"],
        CREATE,
        &["name", "title", "project_id"],
    ),
    command(
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
        &["project_id"],
    ),
    command(&["list projects", "show projects", "which projects"], "db__project__list", &[]),
    command(&["show task", "show the task"], "db__task__get", &["task_id"]),
    command(&GOALS, CREATE, &["name", "title", "description", "project_id"]),
    command(
        &["start the workflow of", "start workflow", "start the task", "start task"],
        START,
        &["task_id"],
    ),
    command(&["show the workflow of", "show workflow"], "workflow__get", &["task_id"]),
    command(&["answer"], RESUME, &["task_id", "input"]),
    command(&["verify"], VERIFY, &["task_id"]),
    command(&["list artifacts", "show artifacts", "which artifacts"], "artifact__list", &[]),
    command(&["list nodes", "show nodes", "which nodes"], "node__list", &[]),
    command(&["list models", "show models", "which models"], "model__list", &[]),
    command(&["list skills", "show skills"], "skills__list", &[]),
    command(&TESTS, RUN, &RUN_PARAMETERS),
    command(&["run", "execute"], RUN, &RUN_PARAMETERS),
    command(&["help"], "help__list", &[]),
];

const fn command(
    beginnings: &'static [&'static str],
    function: &'static str,
    parameters: &'static [&'static str],
) -> Command {
    Command { beginnings, function, parameters }
}

/// The help text: all commands that are understood.
const UNDERSTOOD: &str = "“create a task: NAME”, “plan: STEP, STEP”, “do: GOAL, so that CRITERION”, “start \
    task TASK”, “answer TASK: TEXT”, “list tasks” (or projects, artifacts, nodes, models, skills), “show \
    task TASK” (or workflow), “verify TASK”, “run in TASK: COMMAND”, “run the tests in TASK”, “use TOOL: \
    TEXT” and “help”, which lists the tools";

/// Returns the function of the command that a text begins with.
pub(super) fn command_of(text: &str) -> Option<&'static str> {
    find_command(text.trim()).map(|(_, command)| command.function)
}

fn find_command(text: &str) -> Option<(&'static str, &'static Command)> {
    // No beginning of a command is longer than this.
    let plain = text[..text.floor_char_boundary(64)].to_lowercase();
    COMMANDS.iter().find_map(|command| {
        let beginning = command.beginnings.iter().find(|beginning| begins(&plain, beginning))?;
        Some((*beginning, command))
    })
}

/// Returns the calls that are asked for; none if no beginning matches or there is no such function.
pub(super) fn calls_for(asked: &Asked<'_>, request: &Request<'_>) -> Vec<ToolCall> {
    parse(asked, request).unwrap_or_default()
}

fn parse(asked: &Asked<'_>, request: &Request<'_>) -> Option<Vec<ToolCall>> {
    let text = asked.text.trim();
    if let Some(call) = named_tool(text, request) {
        return Some(vec![call]);
    }
    let (beginning, command) = find_command(text)?;
    let offered = request.tools.iter().find(|function| function.name == command.function);
    // A tool of the gateway can be called even if it is not among those that match the request best.
    if offered.is_none() && !has_gateway(request) {
        return None;
    }
    let rest = text.get(beginning.len()..).unwrap_or_default();
    // A goal keeps its commands in backticks.
    let (rest, criteria) = if GOALS.contains(&beginning) {
        split_criteria(rest.trim_start_matches([':', ' ']).trim())
    } else {
        (rest.trim_matches(is_padding), Vec::new())
    };
    let ask = |question: &str| {
        let can_ask = request.tools.iter().any(|function| function.name == ASK_USER);
        can_ask.then(|| vec![call(0, ASK_USER, &json!({ "question": question }))])
    };
    let (named, question, rest) = match command.function {
        RUN => {
            let (task, rest) = split_task(rest);
            (task, None, rest)
        }
        RESUME => split_answer(rest),
        _ => (None, None, rest),
    };
    let is_tests = TESTS.contains(&beginning);
    let task = asked.task.or(named).map(|task| task.trim_matches(is_padding));
    let needs_task = |task: Option<&str>| task.is_none() && in_layers(request, "task_id").is_none();
    match command.function {
        CREATE if rest.is_empty() && beginning.starts_with(PLAN) => return ask(WHICH_STEPS),
        CREATE if rest.is_empty() => return ask(WHICH_NAME),
        RESUME if task.is_none() => return None,
        RUN if rest.is_empty() && !is_tests => return ask(WHAT_TO_RUN),
        RUN if needs_task(task) => return ask(WHICH_TASK_RUNS),
        "db__task__get" | "workflow__get" | START | VERIFY if rest.is_empty() && needs_task(None) => {
            return ask(WHICH_TASK);
        }
        _ => {}
    }
    let each: Vec<&str> = match beginning {
        plan if plan.starts_with(PLAN) => steps(rest),
        _ if is_tests => vec![RUN_TESTS],
        _ => vec![rest],
    };
    let declared = offered.and_then(|function| properties(function));
    let parameters = declared.unwrap_or_else(|| command.parameters.to_vec());
    let calls = each.into_iter().enumerate().map(|(number, text)| {
        let mut arguments = arguments(command.function, &parameters, text, task, request);
        if !criteria.is_empty() {
            arguments.insert("acceptance_criteria".to_owned(), json!(criteria));
        }
        if let Some(question) = question {
            arguments.insert("question_id".to_owned(), json!(question));
        }
        call(number, command.function, &Value::Object(arguments))
    });
    Some(calls.collect())
}

/// Splits `GOAL, so that CRITERION; CRITERION` into the goal and its criteria. A command is not split.
fn split_criteria(rest: &str) -> (&str, Vec<&str>) {
    match rest.rsplit_once(SO_THAT) {
        Some((goal, criteria)) if goal.matches('`').count() % 2 == 0 => {
            let criteria = criteria.split(';').map(|criterion| criterion.trim_matches([' ', '.', '\n']));
            (goal, criteria.filter(|criterion| !criterion.is_empty()).collect())
        }
        _ => (rest, Vec::new()),
    }
}

/// Splits `in TASK: COMMAND`, or `in TASK` alone, into the task and the command.
fn split_task(rest: &str) -> (Option<&str>, &str) {
    let beginning = |text: &str| text.get(..3).is_some_and(|it| it.eq_ignore_ascii_case("in "));
    if !beginning(rest) {
        return (None, rest);
    }
    let (task, command) = rest[3..].split_once(':').unwrap_or((&rest[3..], ""));
    let task = task.trim_matches(is_padding);
    let task = task.strip_prefix("task ").unwrap_or(task).trim_matches(is_padding);
    let is_one_word = !task.is_empty() && !task.contains(char::is_whitespace);
    if is_one_word { (Some(task), command.trim_matches(is_padding)) } else { (None, rest) }
}

/// Splits `TASK: TEXT`, or `TASK #QUESTION: TEXT`, into the task, the id of the question of its workflow, and
/// the answer.
fn split_answer(rest: &str) -> (Option<&str>, Option<&str>, &str) {
    let Some((named, text)) = rest.split_once(':') else { return (None, None, rest) };
    let mut words = named.split_whitespace();
    let (task, question) = (words.next(), words.next());
    let id = question.and_then(|question| question.strip_prefix('#'));
    if task.is_none() || question.is_some() != id.is_some() || words.next().is_some() {
        return (None, None, rest);
    }
    (task.map(|task| task.trim_matches(is_padding)), id, text.trim())
}

/// Returns the call that follows the results of earlier calls: a goal to be done is first a task, whose
/// workflow is then started.
pub(super) fn follow_up(asked: &Asked<'_>, results: &[&Message], request: &Request<'_>) -> Option<ToolCall> {
    let (beginning, _) = find_command(asked.text.trim())?;
    let [Message::Tool { name, content, .. }] = results else { return None };
    if !GOALS.contains(&beginning) || name != CREATE || !has_gateway(request) {
        return None;
    }
    let created: Value = serde_json::from_str(content).ok()?;
    let task = created.get("task_id")?.as_str()?;
    Some(call(1, START, &json!({ "task_id": task })))
}

/// Returns whether tools of the gateway are offered, not only the worker's own functions.
fn has_gateway(request: &Request<'_>) -> bool {
    request.tools.iter().any(|function| ![ASK_USER, VERIFY].contains(&function.name.as_str()))
}

/// Returns the call that `Use <tool>: <text>` asks for, if the tool is offered.
fn named_tool(asked: &str, request: &Request<'_>) -> Option<ToolCall> {
    let (verb, rest) = asked.split_once(' ')?;
    let (tool, text) = rest.split_once([' ', ':']).unwrap_or((rest, ""));
    let name = tool.replace('.', "__");
    let function = request.tools.iter().find(|function| function.name == name)?;
    let parameters = properties(function).unwrap_or_default();
    let text = text.trim_matches(is_padding);
    let arguments = || arguments(&function.name, &parameters, text, None, request);
    verb.eq_ignore_ascii_case("use").then(|| call(0, &function.name, &Value::Object(arguments())))
}

/// Splits a text into steps, each of which becomes a task.
fn steps(text: &str) -> Vec<&str> {
    let parts = text.split([',', ';', '\n']).map(|part| part.trim_matches(is_padding));
    parts.filter(|part| !part.is_empty()).take(MAX_STEPS).collect()
}

/// Says which commands are understood, for the user.
pub(super) fn hint(request: &Request<'_>) -> String {
    if has_gateway(request) {
        return format!(" I understand {UNDERSTOOD}.");
    }
    let has = |name: &str| request.tools.iter().any(|function| function.name == name);
    if has(VERIFY) {
        " I understand “verify TASK”; tools need a gateway.".to_owned()
    } else {
        String::new()
    }
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

/// Returns the parameters that a function declares.
fn properties(function: &Function) -> Option<Vec<&str>> {
    let properties = function.parameters.get("properties").and_then(Value::as_object)?;
    Some(properties.keys().map(String::as_str).collect())
}

/// Fills parameters from the sentence, from the task that it names, and from the ids in the layers.
fn arguments(
    function: &str,
    parameters: &[&str],
    rest: &str,
    task: Option<&str>,
    request: &Request<'_>,
) -> Map<String, Value> {
    let mut out = Map::new();
    for name in parameters {
        let value = match *name {
            "name" => Some(json!(slug(rest))),
            "title" | "description" | "text" | "content" => Some(json!(rest)),
            "project_id" => in_layers(request, "project_id"),
            "script" => Some(json!(rest)),
            "input" if function == RESUME => Some(json!(rest)),
            // The files of the task are those of the job.
            "artifacts" => Some(json!(["**"])),
            "wait_seconds" => Some(json!(RUN_WAIT)),
            "task_id" if task.is_some() => Some(json!(task)),
            "task_id" if rest.is_empty() || function == RUN => in_layers(request, "task_id"),
            "task_id" => Some(json!(rest)),
            _ => None,
        };
        if let Some(value) = value {
            out.insert((*name).to_owned(), value);
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
