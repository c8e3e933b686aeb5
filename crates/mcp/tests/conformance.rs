//! Runs the official MCP conformance suite against the client, in both eras of the protocol.
//!
//! The suite acts as the server and checks what it receives; `mcp-conformance-client` drives the worker's
//! client. Scenarios that do not apply to a worker are listed here with the reason. Both tables together must
//! cover the suite's own list, so that a new scenario is not overlooked.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::Value;
use testkit::{binary, conformance_suite, loopback_preload, run};

const OLDER: &str = "2025-11-25";
const NEWER: &str = "2026-07-28";

/// Era and scenario.
const RUN: [(&str, &str); 12] = [
    (OLDER, "initialize"),
    (OLDER, "tools_call"),
    (OLDER, "sse-retry"),
    (OLDER, "json-schema-2020-12-preservation"),
    (NEWER, "tools_call"),
    (NEWER, "request-metadata"),
    (NEWER, "http-standard-headers"),
    (NEWER, "http-custom-headers"),
    (NEWER, "http-invalid-tool-headers"),
    (NEWER, "json-schema-ref-no-deref"),
    (NEWER, "json-schema-2020-12-preservation"),
    (NEWER, "sep-2322-client-request-state"),
];

/// A scenario, or a prefix of several, and why it does not apply to a worker.
const NOT_APPLICABLE: [(&str, &str); 3] = [
    (
        "auth/*",
        "the worker takes a bearer token from a file; it is no OAuth client and never asks for a token",
    ),
    (
        "elicitation-sep1034-client-defaults",
        "a worker has no user to ask: it declares no elicitation, and declines",
    ),
    ("sep-2640-client-*", "an extension for skills; the worker has its instructions from its own bundle"),
];

fn applies(scenario: &str) -> bool {
    let matches = |pattern: &str| match pattern.strip_suffix('*') {
        Some(beginning) => scenario.starts_with(beginning),
        None => scenario == pattern,
    };
    !NOT_APPLICABLE.iter().any(|(pattern, _)| matches(pattern))
}

/// Runs the suite and returns its exit code and its output.
fn suite(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let (node, script) = conformance_suite();
    let loopback = loopback_preload().display().to_string();
    let script = script.display().to_string();
    let arguments = [&["--require", loopback.as_str(), script.as_str()], arguments].concat();
    let finished = run(&node, folder, &arguments, &[("NO_COLOR", "1")]);
    (finished.code, format!("{}\n{}", finished.stdout, finished.stderr))
}

/// Runs a scenario. Fails with a description of the first problem.
fn judge(era: &str, scenario: &str) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let client = binary("mcp-conformance-client").display().to_string();
    let (code, output) = suite(
        folder.path(),
        &["client", "--command", &client, "--scenario", scenario, "--spec-version", era, "-o", "out"],
    );
    if code != 0 {
        return Err(format!("{scenario} ended with {code}:\n{output}"));
    }
    let results: Vec<_> = fs::read_dir(folder.path().join("out")).unwrap().collect();
    let [result] = results.as_slice() else { return Err(format!("{scenario} left {results:?}")) };
    let checks = fs::read(result.as_ref().unwrap().path().join("checks.json")).unwrap();
    let checks: Vec<Value> = serde_json::from_slice(&checks).unwrap();
    let with = |status| checks.iter().filter(move |check| check["status"] == status);
    // Skipped checks are about optional features, so at least one check must have succeeded.
    if with("SUCCESS").count() == 0 {
        return Err(format!("{scenario} saw nothing succeed: {checks:#?}"));
    }
    match with("FAILURE").chain(with("WARNING")).next() {
        Some(check) => Err(format!("{scenario}: {check:#}")),
        None => Ok(()),
    }
}

fn check(era: &str) {
    let scenarios = RUN.iter().filter(|(of, _)| *of == era).map(|(_, scenario)| scenario);
    let problems: Vec<_> = scenarios.filter_map(|scenario| judge(era, scenario).err()).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}

#[test]
fn conformance_with_the_older_era() {
    check(OLDER);
}

#[test]
fn conformance_with_the_newer_era() {
    check(NEWER);
}

#[test]
fn conformance_leaves_no_scenario_out() {
    let folder = tempfile::tempdir().unwrap();
    let (code, output) = suite(folder.path(), &["list", "--client"]);
    assert_eq!(code, 0, "{output}");
    // Lines such as `  - tools_call [2025-06-18,2025-11-25,2026-07-28]`.
    let listed: Vec<(&str, &str)> =
        output.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split_once(" [")).collect();
    assert!(listed.len() > 40, "{output}");

    let mut wanted = BTreeSet::new();
    for (scenario, versions) in listed.iter().filter(|(scenario, _)| applies(scenario)) {
        let eras: Vec<_> = [OLDER, NEWER].into_iter().filter(|era| versions.contains(era)).collect();
        assert!(!eras.is_empty(), "{scenario} is of neither era: {versions}");
        wanted.extend(eras.into_iter().map(|era| (era, *scenario)));
    }
    assert_eq!(
        BTreeSet::from(RUN),
        wanted,
        "the scenarios that are run, and those that the suite lists and apply"
    );

    for (pattern, reason) in NOT_APPLICABLE {
        let beginning = pattern.trim_end_matches('*');
        assert!(
            listed.iter().any(|(scenario, _)| scenario.starts_with(beginning)),
            "the suite lists no {pattern} any more ({reason})"
        );
    }
}
