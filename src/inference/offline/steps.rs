//! Plans the steps of a task by rules: each command in the task becomes a job, in order. Never makes a
//! command up.

use serde_json::{Value, json};

use super::{excerpt, intent::slug};

const MAX_STEPS: usize = 20;
/// Names of steps have at most 64 bytes; a number may follow.
const MAX_NAME_BYTES: usize = 48;
/// How long a job may take, in seconds.
const JOB_SECONDS: u32 = 600;

/// Programs by which a text in backticks is known as a command: other texts there are names and words.
const PROGRAMS: &str = "\
    awk base64 bash bun bzip2 cargo cat cc cd chmod clang cmake cmp comm cp curl cut date deno df diff \
    dotnet du echo env exit expr false file find for gcc git go gradle grep gunzip gzip head hostname id \
    if java javac jq ln ls make md5sum mkdir mktemp mv mvn mypy node npm npx od paste patch perl php pip \
    pip3 pnpm printf pwd pytest python python3 rm ruby ruff rustc sed seq set sh sha256sum sleep sort \
    sqlite3 stat tail tar tee test touch tr true uname uniq unzip wc wget xargs";
/// Programs that are commands without arguments, too: `id`, `date` and `true` are often other words.
const SINGLE_PROGRAMS: [&str; 6] = ["hostname", "ls", "make", "pwd", "pytest", "uname"];

/// Returns the steps of a task: a job for each command in it, or one step for a manager if there is none.
pub(super) fn plan(text: &str) -> Value {
    let criteria: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("Acceptance criterion: ")).collect();
    let goal = text.lines().find_map(|line| line.strip_prefix("Goal: ")).unwrap_or(text).trim();
    let mut steps: Vec<Value> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for command in commands(text) {
        let name = unique_name(&command, &names);
        steps.push(json!({
            "name": name, "description": format!("Run: {}", excerpt(&command, 200)), "kind": "job",
            "script": command, "files": [], "outputs": ["**"], "network": [], "seconds": JOB_SECONDS,
            "criteria": [], "depends_on": names.last().into_iter().collect::<Vec<_>>(),
            "needs_approval": false,
        }));
        names.push(name);
    }
    if steps.is_empty() {
        steps.push(json!({
            "name": unique_name(goal, &[]), "description": describe(text), "kind": "manager", "script": null,
            "files": [], "outputs": [], "network": [], "seconds": null, "criteria": [], "depends_on": [],
            "needs_approval": false,
        }));
    }
    // The criteria of the task are those of its last step.
    if let Some(last) = steps.last_mut() {
        last["criteria"] = json!(criteria);
    }
    json!({ "summary": format!("In order: {}", excerpt(goal, 200)), "steps": steps, "question": null })
}

/// Returns what a manager is to do: goal and description, without criteria and artifacts.
fn describe(text: &str) -> String {
    let is_other = |line: &str| {
        ["Acceptance criterion: ", "Artifact of the task: "].iter().any(|start| line.starts_with(start))
    };
    let lines: Vec<&str> = text.lines().filter(|line| !is_other(line)).collect();
    let text = lines.join("\n");
    let text = text.strip_prefix("Goal: ").unwrap_or(&text);
    text[..text.floor_char_boundary(4_000)].trim().to_owned()
}

/// Returns the commands of a text in their order, each once: blocks of shell commands and single commands in
/// backticks.
fn commands(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut add = |command: &str| {
        let command = command.trim();
        if !command.is_empty() && found.len() < MAX_STEPS && !found.iter().any(|known| known == command) {
            found.push(command.to_owned());
        }
    };
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some((before, language)) = line.split_once("```") else {
            inline(line).filter(|command| is_command(command)).for_each(&mut add);
            continue;
        };
        // Written on one line, a block is like a command in backticks.
        if let Some((command, _)) = language.split_once("```") {
            add(command);
            continue;
        }
        inline(before).filter(|command| is_command(command)).for_each(&mut add);
        let block: Vec<&str> =
            lines.by_ref().take_while(|line| !line.trim_start().starts_with("```")).collect();
        if let Some(script) = script(language.trim(), &block) {
            add(&script);
        }
    }
    found
}

/// Returns a block as a script, if its language is the shell's or not said.
fn script(language: &str, block: &[&str]) -> Option<String> {
    match language.to_lowercase().as_str() {
        "" | "sh" | "bash" | "shell" => Some(block.join("\n")),
        "console" | "shell-session" => {
            let typed = block.iter().filter_map(|line| line.trim_start().strip_prefix("$ "));
            Some(typed.collect::<Vec<_>>().join("\n"))
        }
        _ => None,
    }
}

/// Returns the texts in backticks of a line.
fn inline(line: &str) -> impl Iterator<Item = &str> {
    let closed = line.matches('`').count() / 2;
    line.split('`').skip(1).step_by(2).take(closed)
}

/// Returns whether a text begins with a program: one that is known, or a path. A variable may be set first.
fn is_command(text: &str) -> bool {
    let is_setting = |word: &&str| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| !name.is_empty() && name.chars().all(|it| it.is_alphanumeric() || it == '_'))
    };
    let mut words = text.split_whitespace().skip_while(is_setting);
    let Some(first) = words.next() else { return false };
    let is_path = first.starts_with("./") || (first.starts_with('/') && first.len() > 1);
    is_path
        || match words.next() {
            Some(_) => PROGRAMS.split(' ').any(|program| program == first.trim_end_matches(';')),
            None => SINGLE_PROGRAMS.contains(&first),
        }
}

fn unique_name(text: &str, names: &[String]) -> String {
    let name = slug(text);
    let name = name[..name.floor_char_boundary(MAX_NAME_BYTES)].trim_end_matches('-').to_owned();
    if names.contains(&name) { format!("{name}-{}", names.len() + 1) } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripts(text: &str) -> Vec<String> {
        let planned = plan(text);
        let steps = planned["steps"].as_array().unwrap();
        steps.iter().filter_map(|step| step["script"].as_str().map(str::to_owned)).collect()
    }

    #[test]
    fn each_command_of_a_task_becomes_a_job_in_order() {
        let text = "Goal: Run `python3 convert.py table.csv` on the `table` of `deploy-docs`\n\
            Acceptance criterion: `make test` passes\nAcceptance criterion: `table.json` is there\n\
            Description: First `python3 convert.py table.csv`.\n\
            ```sh\ncat table.json\nwc -l table.json\n```\n\
            ```json\n{}\n```\n```console\n$ ls -l\ntable.json\n```\nThen ```./check.sh```.";
        let found = scripts(text);
        let expected = [
            "python3 convert.py table.csv",
            "make test",
            "cat table.json\nwc -l table.json",
            "ls -l",
            "./check.sh",
        ];
        assert_eq!(found, expected);
        let planned = plan(text);
        assert_eq!(planned["steps"][1]["depends_on"], json!([planned["steps"][0]["name"]]));
        assert_eq!(planned["steps"][0]["criteria"], json!([]));
        assert_eq!(planned["steps"][4]["criteria"], json!(["`make test` passes", "`table.json` is there"]));
    }

    #[test]
    fn command_is_never_invented() {
        for text in [
            "Goal: Write the release notes of `deploy-docs`",
            "Goal: Say `hello world`",
            "Goal: Sort by `id` and `date`, and set `done` to `true`",
            "Goal: an open `tick",
            "Goal: a block\n```python\nprint(1)\n```",
            "Goal: nothing in it ``",
        ] {
            let planned = plan(text);
            let [step] = &planned["steps"].as_array().unwrap()[..] else { panic!("{planned}") };
            assert_eq!((&step["kind"], &step["script"]), (&json!("manager"), &Value::Null), "{planned}");
        }
        assert_eq!(scripts("Goal: Do `CI=1 make check` and `LANG=C`"), ["CI=1 make check"]);
    }

    #[test]
    fn names_are_unique_and_short() {
        let long = "echo a-word-that-is-longer-than-any-name-of-a-step-could-be";
        let planned = plan(&format!("Goal: `echo 1; echo 2` and `echo 1, echo 2` and `{long}`"));
        let names: Vec<&str> =
            planned["steps"].as_array().unwrap().iter().map(|step| step["name"].as_str().unwrap()).collect();
        assert_eq!(names[..2], ["echo-1-echo-2", "echo-1-echo-2-2"]);
        assert!(names.iter().all(|name| name.len() <= 50), "{names:?}");
    }
}
