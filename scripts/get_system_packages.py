#!/usr/bin/env python3
"""Installs what the tests need of the system and pip cannot bring: a PostgreSQL server, Chromium with chromedriver,
promtool, systemd-analyze, Go with a NATS client, bubblewrap for the sandboxes of nodes.

Takes Debian's packages, as root or through a sudo that asks for no password. What is there already, on PATH or where
POSTGRES_BIN, CHROMIUM, CHROMEDRIVER, PROMTOOL and SYSTEMD_ANALYZE say, is left as it is. crates/testkit looks in the same places.
"""

import os
import pathlib
import shutil
import subprocess
import sys

POSTGRES_PROGRAMS = ("postgres", "initdb", "psql")
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")


def has_postgres():
    """Whether there is a folder with the server, what makes its data folder, and the client."""
    named = os.environ.get("POSTGRES_BIN")
    if named:
        folders = [pathlib.Path(named)]
    else:
        folders = [pathlib.Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
        folders += pathlib.Path("/usr/lib/postgresql").glob("*/bin")
    return any(all((folder / name).is_file() for name in POSTGRES_PROGRAMS) for folder in folders)


def found(variable, names):
    """Whether the program that a variable names is there, or else one of these on PATH."""
    named = os.environ.get(variable)
    return pathlib.Path(named).is_file() if named else any(shutil.which(name) for name in names)


def has_promtool():
    return found("PROMTOOL", ("promtool",))


def has_systemd_analyze():
    return found("SYSTEMD_ANALYZE", ("systemd-analyze",))


def has_go_with_client():
    """Whether there is Go, and NATS' client for it where Debian puts it."""
    return pathlib.Path("/usr/bin/go").is_file() and pathlib.Path("/usr/share/gocode/src/github.com/nats-io/nats.go").is_dir()


def has_bubblewrap():
    return shutil.which("bwrap") is not None


def has_sandboxes():
    """Whether there are the programs that run jobs in sandboxes. Some are where only root looks."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    return all(shutil.which(name, path=path) for name in ("bwrap", "runc"))


def has_browser():
    """Whether there is a browser and what drives it."""
    return found("CHROMIUM", CHROMIUM_NAMES) and found("CHROMEDRIVER", ("chromedriver",))


# What a part is called, whether it is there, which packages bring it.
PARTS = [
    ("PostgreSQL", has_postgres, ["postgresql"]),
    ("promtool", has_promtool, ["prometheus"]),
    ("systemd-analyze", has_systemd_analyze, ["systemd"]),
    ("bubblewrap", has_bubblewrap, ["bubblewrap"]),
    ("bubblewrap and runc", has_sandboxes, ["bubblewrap", "runc"]),
    ("Go with NATS' client", has_go_with_client, ["golang-go", "golang-github-nats-io-go-nats-dev"]),
    ("Chromium with chromedriver", has_browser, ["chromium", "chromium-driver", "fonts-dejavu-core"]),
]


def as_root():
    """How a command is run as root: with nothing before it, with sudo, or not at all (None)."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n"]
    return None


def install(packages):
    """Installs packages; tells what went wrong, or None."""
    before = as_root()
    if not shutil.which("apt-get"):
        return "there is no apt-get here"
    if before is None:
        return "that needs root, or a sudo that asks for no password"
    # What asks would wait for ever.
    quiet = [*before, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "Dpkg::Use-Pty=0"]
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run([*quiet, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            return f"`apt-get {command[0]}` failed:\n{done.stdout.strip()}"
    return None


def main():
    missing = [part for part in PARTS if not part[1]()]
    if not missing:
        return
    names = " and ".join(name for name, _, _ in missing)
    packages = [package for _, _, packages in missing for package in packages]
    print(f"installing {names} ...", flush=True)
    trouble = install(packages)
    still = [name for name, there, _ in missing if not there()]
    if trouble or still:
        sys.exit(f"{names} could not be installed: {trouble or 'the packages were installed, the programs are not there'}\n"
                 f"On Debian they are the packages {' '.join(packages)}; elsewhere install them by hand and, if they are "
                 "not on PATH, name them by POSTGRES_BIN (a folder), CHROMIUM, CHROMEDRIVER, PROMTOOL and SYSTEMD_ANALYZE.")


if __name__ == "__main__":
    main()
