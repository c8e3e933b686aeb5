#!/usr/bin/env python3
"""Makes the environment of the workflow runner in .tools/workflow: its packages, what its tests need, and
.tools/workflow/bin/cynode-workflow, which runs the source in workflow/. All pinned with checksums in workflow/.
"""

import pathlib
import sys
import sysconfig

from pinned_parts import PIP, ROOT, Part, get_for_tests, step

PROJECT = ROOT / "workflow"
LOCK = PROJECT / "requirements-dev.lock"
PROGRAM = """#!{python}
import sys

from cynode_workflow.cli import main

sys.exit(main())
"""


def fetch(target):
    """An environment in which the runner is imported from its source, so that nothing has to be built."""
    step("making an environment", [sys.executable, "-m", "venv", target])
    python = target / "bin" / "python"
    step("fetching packages", [python, *PIP, "--require-hashes", "--requirement", LOCK])
    paths = sysconfig.get_paths(vars={"base": str(target), "platbase": str(target)})
    (pathlib.Path(paths["purelib"]) / "cynode_workflow.pth").write_text(f"{PROJECT / 'src'}\n", encoding="utf-8")
    program = target / "bin" / "cynode-workflow"
    program.write_text(PROGRAM.format(python=python), encoding="utf-8")
    program.chmod(0o755)


RUNNER = Part("workflow", "the workflow runner", [LOCK], fetch)


if __name__ == "__main__":
    get_for_tests([RUNNER])
