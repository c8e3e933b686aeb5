#!/usr/bin/env python3
"""Puts clients of OpenAI's API into .tools, for our tests to meet.

.tools/api-clients-python has OpenAI's SDK and LangChain; .tools/api-clients-node has a Node with OpenAI's SDK and the AI
SDK; .tools/open-webui has the modules of Open WebUI that make the prompts for its background tasks; .tools/schemathesis
holds a server against its OpenAPI document. Everything is pinned in scripts/api-clients.
"""

import pathlib
import sys
import tempfile
import zipfile

from pinned_parts import ROOT, Part, get_for_tests, node_part, python_part, step

PINNED = ROOT / "scripts" / "api-clients"
OPEN_WEBUI_PIN = PINNED / "open-webui.txt"
OPEN_WEBUI_MODULES = [f"open_webui/{name}.py" for name in ("config", "constants", "utils/headers", "utils/misc", "utils/task")]


def get_open_webui(target):
    """Some modules of Open WebUI. The whole has hundreds of dependencies, and a wheel of a hundred megabytes."""
    with tempfile.TemporaryDirectory() as folder:
        step("fetching Open WebUI", [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:",
            "--no-deps", "--ignore-requires-python", "--dest", folder, "--requirement", OPEN_WEBUI_PIN])
        with zipfile.ZipFile(next(pathlib.Path(folder).glob("*.whl"))) as wheel:
            for name in OPEN_WEBUI_MODULES:
                wheel.extract(name, target)


PYTHON = python_part("api-clients-python", "clients of OpenAI's API for Python", PINNED / "requirements.txt")
NODE = node_part("api-clients-node", "clients of OpenAI's API for Node", PINNED)
SCHEMATHESIS = python_part("schemathesis", "schemathesis", PINNED / "schemathesis.txt")
OPEN_WEBUI = Part("open-webui", "the prompts of Open WebUI", [OPEN_WEBUI_PIN], get_open_webui)


if __name__ == "__main__":
    get_for_tests([PYTHON, NODE, SCHEMATHESIS, OPEN_WEBUI])
