#!/usr/bin/env python3
"""Puts restate-server into .tools/restate, for `make bench` to compare with.

It is a program in a package of npm, pinned in scripts/restate. Where it cannot be fetched the benches leave the comparison
out and say so.
"""

import hashlib
import pathlib
import shutil
import sys
import tempfile

from get_mcp_peers import ROOT, TOOLS, npm_ci

PINNED = ROOT / "scripts" / "restate"
TARGET = TOOLS / "restate"


def wanted():
    """Changes whenever what is pinned does."""
    return hashlib.sha256((PINNED / "package-lock.json").read_bytes()).hexdigest()


def fetch():
    with tempfile.TemporaryDirectory() as folder:
        packages = pathlib.Path(folder) / "packages"
        npm_ci(PINNED, packages)
        found = next(packages.glob("node_modules/@restatedev/restate-server-*/bin/restate-server"), None)
        if found is None:
            raise RuntimeError("its packages hold no program for this machine")
        shutil.rmtree(TARGET, ignore_errors=True)
        TARGET.mkdir(parents=True)
        shutil.copy2(found, TARGET / "restate-server")
    # Last, so that what was interrupted is begun anew.
    (TARGET / "stamp").write_text(wanted(), encoding="utf-8")


def main():
    stamp = TARGET / "stamp"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted():
        return
    print("getting restate-server ...", flush=True)
    try:
        fetch()
    except (OSError, RuntimeError) as error:
        print(f"restate-server could not be got: {error}\nThe benches go without it.", file=sys.stderr)


if __name__ == "__main__":
    main()
