//! What documents say of defaults is what the programs do.

use std::{collections::BTreeMap, fs};

use subjects::streams;
use testkit::{binary, run, workspace};

fn document(path: &str) -> String {
    let text = fs::read_to_string(workspace().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    // A sentence may be broken anywhere.
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Every setting and its default, as the program lists them. Those that are not set are empty.
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

/// The cells of the README's table of settings: keys, defaults.
fn rows() -> Vec<(Vec<String>, Vec<String>)> {
    let text = fs::read_to_string(workspace().join("README.md")).unwrap();
    let table = text.split("### Settings").nth(1).expect("the section is there");
    let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let cells = rows.take_while(|line| line.starts_with('|')).map(|line| {
        let mut cells = line.trim_matches('|').split('|').map(str::trim);
        let mut list = || {
            let cell = cells.next().unwrap_or_default();
            cell.split(", ").map(|it| it.trim_matches('`').to_owned()).collect::<Vec<_>>()
        };
        (list(), list())
    });
    cells.collect()
}

/// `.tries` after `inference.timeout` is `inference.tries`.
fn full_keys(keys: &[String]) -> Vec<String> {
    let mut prefix = String::new();
    let full = keys.iter().map(|key| match key.strip_prefix('.') {
        Some(rest) => format!("{prefix}.{rest}"),
        None => {
            prefix = key.rsplit_once('.').map_or(String::new(), |(prefix, _)| prefix.to_owned());
            key.clone()
        }
    });
    full.collect()
}

#[test]
fn defaults_in_the_readme_are_those_of_the_program() {
    let (defaults, mut checked) = (defaults(), 0);
    for (keys, said) in rows() {
        let keys = full_keys(&keys);
        for (position, key) in keys.iter().enumerate() {
            let Some(default) = defaults.get(key) else {
                // Of the other role, or one that has no single value.
                let of_other_role = key.ends_with(".verify");
                assert!(
                    of_other_role || defaults.keys().any(|known| known.starts_with(key.as_str())),
                    "{key} is no setting"
                );
                continue;
            };
            // One value for all, or one for each.
            let said = said.get(position).or(said.last()).expect("a default");
            let is_told_in_words =
                !said.chars().any(|c| c.is_ascii_digit()) && !defaults.values().any(|it| it == said);
            if said == "–" || is_told_in_words {
                continue;
            }
            assert_eq!(said, default, "the README's default of {key}");
            checked += 1;
        }
    }
    assert!(checked > 30, "only {checked} defaults were compared");
    let named: Vec<String> = rows().iter().flat_map(|(keys, _)| full_keys(keys)).collect();
    for key in defaults.keys() {
        let is_named = named.iter().any(|it| it == key || key.starts_with(&format!("{it}.")));
        assert!(is_named, "{key} has no row in the README");
    }
}

#[test]
fn figures_in_prose_are_those_of_the_code() {
    let days = streams::ANSWERS_KEPT.as_secs() / (24 * 3_600);
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
        assert!(document(path).contains(&sentence), "{path} does not say: {sentence}");
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

/// `30m` as documents write it.
fn spaced(duration: &str) -> String {
    match duration.strip_suffix('m') {
        Some(minutes) => format!("{minutes} minutes"),
        None => {
            duration.strip_suffix('s').map_or_else(|| duration.to_owned(), |seconds| format!("{seconds} s"))
        }
    }
}
