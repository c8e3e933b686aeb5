//! Tests that the commands in documents exist, with their options.

use std::{fs, path::Path};

use clap::{Command, CommandFactory};

use super::Cli;

/// Returns what documents write after `cynodectl`, in code only, up to the end of the code or the line.
fn commands(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut is_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
            continue;
        }
        if is_block {
            let rest = line.trim_start().trim_start_matches("$ ").strip_prefix("cynodectl ");
            found.extend(rest.and_then(|rest| rest.split(" #").next()));
            continue;
        }
        // Every other part is code.
        let code = line.split('`').skip(1).step_by(2);
        found.extend(code.filter_map(|code| code.strip_prefix("cynodectl ")));
    }
    found
}

/// Returns what is wrong with a command line, as far as its words can be known.
fn check(root: &Command, line: &str) -> Result<(), String> {
    let (mut at, mut options): (&Command, Vec<&str>) = (root, Vec::new());
    for word in line.split_whitespace() {
        if word == "--" {
            break;
        }
        if let Some(option) = word.strip_prefix("--") {
            options.push(option.split('=').next().unwrap_or_default().trim_end_matches(']'));
            continue;
        }
        if !at.has_subcommands() {
            continue;
        }
        let is_name = word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-');
        match at.find_subcommand(word) {
            Some(next) => at = next,
            // The value of an option, or a placeholder.
            None if !is_name || !options.is_empty() => break,
            None => return Err(format!("`{}` has no command `{word}`", at.get_name())),
        }
    }
    let is_known = |option: &str| {
        let mut known = at.get_arguments().chain(root.get_arguments()).filter_map(|known| known.get_long());
        option == "help" || option == "version" || known.any(|known| known == option)
    };
    match options.into_iter().find(|option| !is_known(option)) {
        Some(option) => Err(format!("`{}` has no option `--{option}`", at.get_name())),
        None => Ok(()),
    }
}

#[test]
fn commands_in_documents_exist() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let documents = fs::read_dir(top.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let documents = documents.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let root = Cli::command();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in documents.chain([top.join("README.md")]) {
        let text = fs::read_to_string(&path).unwrap();
        for line in commands(&text) {
            count += 1;
            if let Err(why) = check(&root, line) {
                wrong.push(format!("{}: cynodectl {line}: {why}", path.display()));
            }
        }
    }
    assert!(count > 50, "only {count} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn commands_that_do_not_exist_are_found() {
    let root = Cli::command();
    let text = "Say `cynodectl keys issue ada`.\n```sh\n$ cynodectl jobs ls --now # all\n```\n";
    let found = commands(text);
    assert_eq!(found, ["keys issue ada", "jobs ls --now"]);
    assert!(check(&root, found[0]).unwrap_err().contains("no command `issue`"));
    assert!(check(&root, found[1]).unwrap_err().contains("no option `--now`"));
    assert_eq!(check(&root, "--json workflows start TASK --user ID"), Ok(()));
}
