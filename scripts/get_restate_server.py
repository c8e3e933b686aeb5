#!/usr/bin/env python3
"""Puts restate-server into .tools/restate, for `make bench` to compare with.

It is a program in a package of npm, pinned in scripts/restate.
"""

import pathlib
import shutil
import tempfile

from pinned_parts import ROOT, Part, npm_ci

PINNED = ROOT / "scripts" / "restate"


def fetch(target):
    with tempfile.TemporaryDirectory() as folder:
        packages = pathlib.Path(folder) / "packages"
        npm_ci(PINNED, packages)
        found = next(packages.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"), None)
        if found is None:
            raise RuntimeError("its packages hold no program for this machine")
        target.mkdir(parents=True)
        shutil.copy2(found, target / "restate-server")


if __name__ == "__main__":
    Part("restate", "restate-server", [PINNED / "package-lock.json"], fetch).get("The benches go without it.")
