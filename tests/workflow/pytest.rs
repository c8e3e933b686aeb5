//! Runs tests of `workflow/` against the gateway of a stage.

use std::fs;

use testkit::{workflow_runner, workspace};

use crate::stage::Stage;

/// Runs one test of `workflow/tests/` as `real_gateway.py` there describes it, with further variables of the
/// environment, and returns what it wrote. It has to run, and to pass.
pub(crate) async fn run(stage: &Stage, test: &str, variables: &[(&'static str, String)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let token = |name: &str, secret: String| {
        let file = folder.path().join(name);
        fs::write(&file, secret).unwrap();
        file.display().to_string()
    };
    let mut variables = variables.to_vec();
    variables.extend([
        ("CYNODE_GATEWAY", stage.gateway.url()),
        ("CYNODE_TOKEN_FILE", token("workflow.token", stage.gateway.unbound("workflow").await)),
        ("CYNODE_MANAGER_TOKEN_FILE", token("manager.token", stage.gateway.manager().await)),
        ("CYNODE_USER", "ada".to_owned()),
    ]);
    let program = workflow_runner().with_file_name("pytest");
    let arguments = ["--capture=no".to_owned(), format!("tests/{test}")];
    let running = tokio::task::spawn_blocking(move || {
        let variables: Vec<(&str, &str)> =
            variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        testkit::run(&program, &workspace().join("workflow"), &arguments, &variables)
    });
    let finished = running.await.unwrap();
    assert_eq!(finished.code, 0, "{}\n{}", finished.stdout, finished.stderr);
    // A test that was skipped shows nothing.
    let counted = finished.stdout.lines().last().unwrap_or_default();
    assert!(counted.starts_with("1 passed in"), "{}", finished.stdout);
    finished.stdout
}
