//! Checks that the upstream for the conformance suite passes the suite itself, except for what does not
//! concern tools.

use std::fs;

use testkit::{ConformanceUpstream, conformance_suite, loopback_preload, run};

/// Scenarios that need specific resources and prompts, or requests from server to client.
const OLDER: [&str; 13] = [
    "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
    "prompts-get-embedded-resource",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-with-image",
    "resources-read-binary",
    "resources-read-text",
    "resources-subscribe",
    "resources-templates-read",
    "resources-unsubscribe",
    "tools-call-elicitation",
    "tools-call-sampling",
];
const NEWER: [&str; 8] = [
    "input-required-result-non-tool-request",
    "prompts-get-embedded-resource",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-with-image",
    "resources-read-binary",
    "resources-read-text",
    "resources-templates-read",
];

/// The suite fails if a scenario fails unexpectedly, or if one that is expected to fail passes.
async fn check(era: &str, expected: &[&str]) {
    let upstream = ConformanceUpstream::start().await;
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("expected.yaml"), format!("server: {expected:?}\n")).unwrap();
    let (node, script) = conformance_suite();
    let (preload, script) = (loopback_preload().display().to_string(), script.display().to_string());
    let start = ["--require", &preload, &script, "server", "--url", upstream.url(), "--suite", "all"];
    let judged = ["--spec-version", era, "--expected-failures", "expected.yaml", "-o", "out"];
    let finished = run(&node, folder.path(), &[start.as_slice(), &judged].concat(), &[("NO_COLOR", "1")]);
    assert_eq!(finished.code, 0, "{}\n{}", finished.stdout, finished.stderr);
    assert!(finished.stdout.contains("tools-call-mixed-content: 2 passed, 0 failed"), "{}", finished.stdout);
}

#[tokio::test]
async fn conformance_of_the_upstream_in_the_older_era() {
    check("2025-11-25", &OLDER).await;
}

#[tokio::test]
async fn conformance_of_the_upstream_in_the_newer_era() {
    check("2026-07-28", &NEWER).await;
}
