//! The example configuration and the error pages.

use testkit::{binary, run, workspace};

#[test]
fn the_example_configuration_is_accepted_for_both_roles() {
    let file = workspace().join("deploy/pma.toml").display().to_string();
    for role in ["project_manager", "project_analyst"] {
        let role = format!("--role={role}");
        // The secret does not exist on this machine.
        let token = tempfile::NamedTempFile::new().unwrap();
        let token = format!("gateway.token_file={}", token.path().display());
        let arguments = ["config", "--config", &file, &role, "--set", &token];
        let finished = run(&binary("cynode-pma"), workspace(), &arguments, &[]);
        assert_eq!(finished.code, 0, "{}", finished.stderr);
        assert!(finished.stdout.contains("nats.layout = \"by_role\"  # file"), "{}", finished.stdout);
        assert!(finished.stdout.contains("nats.provision = \"verify\"  # file"), "{}", finished.stdout);
    }
}

/// Each error code has a page, and each page has an error code.
#[test]
fn every_error_code_has_a_page() {
    let mut pages: Vec<String> = std::fs::read_dir(workspace().join("docs/errors"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    pages.sort();
    let mut codes: Vec<String> = subjects::ErrorCode::ALL.iter().map(|code| format!("{code}.md")).collect();
    codes.sort();
    assert_eq!(pages, codes);
}
