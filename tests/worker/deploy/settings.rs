//! Variables in `deploy/` are settings of the programs, with values that they accept.

use std::{collections::BTreeMap, fs, path::Path};

use testkit::{binary, run, workflow_runner, workspace};

/// Written in Python, and not built with the others.
pub(crate) const RUNNER: &str = "cynode-workflow";

/// Runs `<program> config` with only these variables. Secret files that they name are created in a temporary
/// folder.
#[track_caller]
pub(crate) fn accepts(program: &str, arguments: &[&str], variables: &BTreeMap<String, String>) {
    let folder = tempfile::tempdir().unwrap();
    let here: BTreeMap<String, String> =
        variables.iter().map(|(name, value)| (name.clone(), found(folder.path(), name, value))).collect();
    let pairs: Vec<(&str, &str)> = here.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut all = vec!["config"];
    all.extend(arguments);
    let path = if program == RUNNER { workflow_runner() } else { binary(program) };
    let finished = run(&path, folder.path(), &all, &pairs);
    assert_eq!(finished.code, 0, "{program}: {}\n{here:#?}", finished.stderr);
    for name in here.keys().filter(|name| name.as_str() != "PMA_ROLE" || arguments.is_empty()) {
        let name_in_program = name.strip_prefix("CYNODE_").unwrap_or(name);
        let (_, key) = name_in_program.split_once('_').expect("a prefix");
        let key = key.to_lowercase().replace("__", ".");
        let line = finished.stdout.lines().find(|line| line.starts_with(&format!("{key} = ")));
        let line =
            line.unwrap_or_else(|| panic!("{name} is not a setting of {program}:\n{}", finished.stdout));
        assert!(line.contains("# environment"), "{name} has no effect: {line}");
    }
}

fn found(folder: &Path, name: &str, value: &str) -> String {
    if name.ends_with("_FILE") {
        let file = folder.join(name);
        fs::write(&file, "secret").unwrap();
        return file.display().to_string();
    }
    // Maps a path of the image to the repository.
    match value {
        "/usr/share/cynode/instructions" => workspace().join("instructions").display().to_string(),
        other => other.to_owned(),
    }
}

/// `NAME=value` lines, as in a unit's environment file.
pub(crate) fn lines(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}
