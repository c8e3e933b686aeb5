#!/usr/bin/env python3
"""Puts clients of OpenAI's API into .tools, for our tests to meet.

.tools/api-clients-python has OpenAI's SDK and LangChain; .tools/api-clients-node has a Node with OpenAI's SDK and the AI SDK;
.tools/open-webui has the modules of Open WebUI that make the prompts for its background tasks; .tools/schemathesis holds a server against
its OpenAPI document. Everything is pinned in scripts/api-clients. Where a part cannot be fetched the tests that need it are not run, which
is a failure only with CI=true.
"""

import hashlib
import os
import pathlib
import shutil
import sys
import tempfile
import zipfile

from get_mcp_peers import NODE, PIP, ROOT, TOOLS, npm_ci, step

PINNED = ROOT / "scripts" / "api-clients"
OPEN_WEBUI_MODULES = [f"open_webui/{name}.py" for name in ("config", "constants", "utils/headers", "utils/misc", "utils/task")]


def get_node(target):
    """Node, and the clients for it."""
    npm_ci(PINNED, target)


def get_python(target):
    """An environment with what the list names, and nothing besides."""
    step("making an environment", [sys.executable, "-m", "venv", target])
    step("fetching packages", [target / "bin" / "python", *PIP, "--requirement", PINNED / "requirements.txt"])


def get_schemathesis(target):
    """An environment with schemathesis."""
    step("making an environment", [sys.executable, "-m", "venv", target])
    step("fetching schemathesis", [target / "bin" / "python", *PIP, "--requirement", PINNED / "schemathesis.txt"])


def get_open_webui(target):
    """Some modules of Open WebUI. The whole has hundreds of dependencies, and a wheel of a hundred megabytes."""
    with tempfile.TemporaryDirectory() as folder:
        step("fetching Open WebUI", [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:",
            "--no-deps", "--ignore-requires-python", "--dest", folder, "--requirement", PINNED / "open-webui.txt"])
        with zipfile.ZipFile(next(pathlib.Path(folder).glob("*.whl"))) as wheel:
            for name in OPEN_WEBUI_MODULES:
                wheel.extract(name, target)


# The folder in .tools; what is in it, the files that pin it, how it is got.
PARTS = {
    "api-clients-python": ("clients of OpenAI's API for Python", ["requirements.txt"], get_python),
    "api-clients-node": ("clients of OpenAI's API for Node", ["package.json", "package-lock.json"], get_node),
    "schemathesis": ("schemathesis", ["schemathesis.txt"], get_schemathesis),
    "open-webui": ("the prompts of Open WebUI", ["open-webui.txt"], get_open_webui),
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
