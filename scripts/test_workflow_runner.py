#!/usr/bin/env python3
"""Checks the workflow runner: formatting and lints with ruff, types with mypy, behaviour with pytest."""

import subprocess
import sys

from pinned_parts import ROOT, TOOLS

PROJECT = ROOT / "workflow"
CHECKS = [
    ["ruff", "format", "--check", "--no-cache", "--quiet"],
    ["ruff", "check", "--no-cache", "--quiet"],
    ["mypy", "--cache-dir", ROOT / "target" / "mypy"],
    ["pytest"],
]


def main(*arguments):
    """Runs all of them; the first failure is ours. What is given goes to pytest."""
    for program, *given in CHECKS:
        print("+", program, "of workflow/", flush=True)
        given += arguments if program == "pytest" else ()
        status = subprocess.run([TOOLS / "workflow" / "bin" / program, *given], cwd=PROJECT).returncode
        if status != 0:
            sys.exit(status)


if __name__ == "__main__":
    main(*sys.argv[1:])
