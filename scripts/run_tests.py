#!/usr/bin/env python3
"""Runs the tests: with nextest where it is installed, with plain `cargo test` elsewhere.

Says what could not be run and why. With CI=true a missing part is a failure.
"""

import os
import pathlib
import shutil
import subprocess
import sys

IN_CI = os.environ.get("CI") == "true"
CONFORMANCE = pathlib.Path(__file__).resolve().parent.parent / ".tools" / "conformance" / "stamp"


def cargo(*arguments):
    """Runs cargo; its failure is ours."""
    print("+ cargo", *arguments, flush=True)
    status = subprocess.run(["cargo", *arguments]).returncode
    if status != 0:
        sys.exit(status)


def main():
    missing = []
    skipped = []
    if not CONFORMANCE.is_file():
        missing.append("the MCP conformance suite: `make tools` gets it")
        skipped = ["--skip", "conformance"]
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
