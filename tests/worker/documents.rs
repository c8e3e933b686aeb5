//! Defaults and figures in the documentation match the programs.

use std::{collections::BTreeMap, fs};

use subjects::streams;
use testkit::{binary, run, workspace};

fn document(path: &str) -> String {
    let text = fs::read_to_string(workspace().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    // A sentence may contain line breaks.
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every setting with its default as the program prints it; unset ones are empty.
fn defaults() -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let root = workspace().join("instructions").display().to_string();
    let line = ["config", "--role=project_manager", &format!("--instructions-root={root}")];
    let listed = run(&binary("cynode-pma"), folder.path(), &line, &[]);
    assert_eq!(listed.code, 0, "{}", listed.stderr);
    let setting = |line: &str| {
        if let Some(unset) = line.strip_prefix("# ") {
            return Some((unset.strip_suffix(" is not set")?.to_owned(), String::new()));
        }
        let (key, rest) = line.split_once(" = ")?;
        let (value, _) = rest.split_once("  # ")?;
        Some((key.to_owned(), value.trim_matches('"').to_owned()))
    };
    listed.stdout.lines().filter_map(setting).collect()
}

/// The tables between the `begin` and `end` markers are what the programs print. `make docs` writes them.
#[test]
fn settings_reference_is_what_the_programs_print() {
    let path = workspace().join("docs/settings.md");
    let text = fs::read_to_string(&path).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut expected = text.clone();
    for program in ["cynode-pma", "cynode-gateway", "cynode-orchestrator", "cynode-node"] {
        let printed = run(&binary(program), folder.path(), &["config", "--reference"], &[]);
        assert_eq!(printed.code, 0, "{printed:?}");
        let (begin, end) = (format!("<!-- begin: {program} -->\n"), format!("<!-- end: {program} -->"));
        let (before, rest) = expected.split_once(&begin).unwrap_or_else(|| panic!("no {begin}"));
        let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("no {end}"));
        expected = format!("{before}{begin}{}\n{end}{after}", printed.stdout.trim_end());
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &expected).unwrap();
    }
    let current = fs::read_to_string(&path).unwrap();
    assert!(current == expected, "docs/settings.md is not what the programs print; `make docs` writes it");
    for line in expected.lines().filter(|line| line.starts_with("| `")) {
        assert!(!line.ends_with("|  |"), "a setting without a description: {line}");
    }
}

#[test]
fn figures_in_prose_match_the_code() {
    let days = streams::ANSWER_RETENTION.as_secs() / (24 * 3_600);
    assert_eq!(days, 7, "the documents say seven days");
    let defaults = defaults();
    for (path, sentence) in [
        ("README.md", "kept 7 days".to_owned()),
        ("docs/promises.md", "kept for seven days (`calls.keep_keys`)".to_owned()),
        ("docs/promises.md", format!("`gateway.patience` ({} each)", spaced(&defaults["gateway.patience"]))),
        (
            "docs/errors/deadline_exceeded.md",
            format!("`agent.max_turn` ({})", spaced(&defaults["agent.max_turn"])),
        ),
        ("docs/errors/stale_handoff.md", "(7 days)".to_owned()),
        ("docs/scaling.md", format!("`nats.dedupe_window` ({})", spaced(&defaults["nats.dedupe_window"]))),
    ] {
        assert!(document(path).contains(&sentence), "{path} does not contain: {sentence}");
    }
    let folder = tempfile::tempdir().unwrap();
    let gateway = run(&binary("cynode-gateway"), folder.path(), &["config"], &[]);
    let keep_keys = gateway.stdout.lines().find(|line| line.starts_with("calls.keep_keys = "));
    let keep_keys = keep_keys.unwrap_or_else(|| panic!("{}", gateway.stdout));
    assert!(
        keep_keys.contains("\"7d\"") || keep_keys.contains("\"7days\""),
        "the documents say seven days: {keep_keys}"
    );
}

/// Formats `30m` as the documents write it: `30 minutes`.
fn spaced(duration: &str) -> String {
    match duration.strip_suffix('m') {
        Some(minutes) => format!("{minutes} minutes"),
        None => {
            duration.strip_suffix('s').map_or_else(|| duration.to_owned(), |seconds| format!("{seconds} s"))
        }
    }
}
