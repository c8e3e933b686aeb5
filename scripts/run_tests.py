#!/usr/bin/env python3
"""Runs the tests: those of scripts/ first, then with nextest where it is installed, with plain `cargo test` elsewhere.

A test that needs something which not every machine has carries its word in its own name: see `NEEDED`. Where
that is missing these tests are left out, and it says so at the end. With CI=true a missing part is a failure.
"""

import os
import shutil
import subprocess
import sys

import get_api_clients
import get_deploy_linters
import get_mcp_peers
import get_model
import get_system_packages
import get_workflow_runner
import test_workflow_runner

IN_CI = os.environ.get("CI") == "true"

# The word in a test's name, whether what it needs is there, what that is and how to get it.
SUITE = "the MCP conformance suite and servers for Node: `make tools` gets them"
CLIENTS = "clients of OpenAI's API for {}: `make tools` gets them"
SDKS = "the Python SDKs of MCP: `make tools` gets them"
NEEDED = [
    ("postgres", get_system_packages.has_postgres, "a PostgreSQL server: `make system-packages` installs it"),
    ("browser", get_system_packages.has_browser, "Chromium with chromedriver: `make system-packages` installs them"),
    ("promtool", get_system_packages.has_promtool, "promtool: `make system-packages` installs it"),
    ("systemd", get_system_packages.has_systemd_analyze, "systemd-analyze: `make system-packages` installs it"),
    ("linter", get_deploy_linters.has, "hadolint and Kubernetes' schemas: `make tools` gets them"),
    ("go_producer", get_system_packages.has_go_with_client, "Go with NATS' client: `make system-packages` installs them"),
    ("real_model", get_model.has, "a small language model: `make tools` gets it"),
    ("conformance", get_mcp_peers.SUITE.is_there, SUITE),
    ("node_peer", get_mcp_peers.SUITE.is_there, SUITE),
    ("xgrammar", get_mcp_peers.GRAMMARS.is_there, "xgrammar and llguidance: `make tools` gets them"),
    ("python_client", get_api_clients.PYTHON.is_there, CLIENTS.format("Python")),
    ("node_client", get_api_clients.NODE.is_there, CLIENTS.format("Node")),
    ("curl_client", lambda: shutil.which("curl"), "curl: install it with the system's package manager"),
    ("schemathesis", get_api_clients.SCHEMATHESIS.is_there, "schemathesis: `make tools` gets it"),
    ("open_webui", get_api_clients.OPEN_WEBUI.is_there, "the prompts of Open WebUI: `make tools` gets them"),
    ("workflow_runner", get_workflow_runner.RUNNER.is_there, "the workflow runner: `make tools` gets it"),
    ("python_peer", lambda: get_mcp_peers.SDK.is_there() and get_mcp_peers.NEWER_SDK.is_there(), SDKS),
]


def run(program, *arguments):
    """Runs a program; its failure is ours."""
    print("+", os.path.basename(program), *arguments, flush=True)
    status = subprocess.run([program, *arguments]).returncode
    if status != 0:
        sys.exit(status)


def cargo(*arguments):
    run("cargo", *arguments)


def test_scripts():
    """Runs the tests of the guardrails checker and its parts; they take seconds."""
    run(sys.executable, "-m", "unittest", "discover", "-s", "scripts/tests")
    print("guardrails tests ok: every check reports a tree that breaks its rule", flush=True)


def main():
    test_scripts()
    if get_workflow_runner.RUNNER.is_there():
        test_workflow_runner.main()
    absent = [(word, how) for word, there, how in NEEDED if not there()]
    missing = [f"tests named `{word}`, which need {how}" for word, how in absent]
    if not get_workflow_runner.RUNNER.is_there():
        missing.append("the tests of workflow/, which need its packages: `make tools` gets them")
    skipped = [argument for word, _ in absent for argument in ("--skip", word)]
    if shutil.which("cargo-nextest"):
        cargo("nextest", "run", "--workspace", "--locked", "--no-fail-fast", "--", *skipped)
    elif IN_CI:
        missing.append("cargo-nextest: install it with `cargo install cargo-nextest --locked`")
    else:
        # One test binary after the other; within one, one test at a time, since many start servers and load.
        cargo("test", "--workspace", "--locked", "--no-fail-fast", "--bins", "--lib", "--tests", "--",
              "--test-threads=2", *skipped)
    cargo("test", "--workspace", "--locked", "--doc", "--quiet")
    if missing:
        print("not run:", *missing, sep="\n  ")
        if IN_CI:
            sys.exit(1)


if __name__ == "__main__":
    main()
