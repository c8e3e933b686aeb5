//! Engines that constrain the replies of models, for tests of schemas.

use std::fs::File;

use serde_json::Value;

use crate::{python_grammars, run, workspace};

/// Returns what xgrammar and llguidance, with which vLLM and others constrain replies, say of each schema
/// that one of them refuses.
///
/// # Panics
/// If it cannot be run; `make tools` gets it.
pub fn grammar_refusals(schemas: &[Value]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("schemas.json");
    serde_json::to_writer(File::create(&file).unwrap(), schemas).unwrap();
    let script = workspace().join("scripts/check_grammars.py").display().to_string();
    let arguments = [script.as_str(), &file.display().to_string()];
    let done = run(&python_grammars(), folder.path(), &arguments, &[]);
    assert_eq!(done.code, 0, "{}", done.stderr);
    done.stdout.lines().map(str::to_owned).collect()
}
