#!/usr/bin/env python3
"""Puts clients of OpenAI's API into .tools, for our tests to meet.

.tools/api-clients-python has OpenAI's SDK and LangChain; .tools/api-clients-node has a Node with OpenAI's SDK and the AI SDK.
Everything is pinned in scripts/api-clients. Where a part cannot be fetched the tests that need it are not run, which is a
failure only with CI=true.
"""

import hashlib
import os
import shutil
import sys

from get_mcp_peers import NODE, PIP, ROOT, TOOLS, npm_ci, step

PINNED = ROOT / "scripts" / "api-clients"


def get_node(target):
    """Node, and the clients for it."""
    npm_ci(PINNED, target)


def get_python(target):
    """An environment with what the list names, and nothing besides."""
    step("making an environment", [sys.executable, "-m", "venv", target])
    step("fetching packages", [target / "bin" / "python", *PIP, "--requirement", PINNED / "requirements.txt"])


# The folder in .tools; what is in it, the files that pin it, how it is got.
PARTS = {
    "api-clients-python": ("clients of OpenAI's API for Python", ["requirements.txt"], get_python),
    "api-clients-node": ("clients of OpenAI's API for Node", ["package.json", "package-lock.json"], get_node),
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
