"""A small copy of the repository, and ways to change it."""

import collections
import contextlib
import itertools
import pathlib
import subprocess
import sys
import tempfile

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
ROOT = SCRIPTS.parent
sys.path.insert(0, str(SCRIPTS))

from checked_rules import CHECKED_RULES  # noqa: E402
from source_tree import SourceTree  # noqa: E402

COPIED = [
    "AGENTS.md", "CHANGELOG.md", "Makefile", ".ci/run", ".config/nextest.toml", "clippy.toml", "deny.toml",
    "docs/metrics.md", "docs/settings.md", "scripts/run_tests.py",
    "Cargo.toml", "subjects/Cargo.toml", "crates/policy/Cargo.toml",
]
# The real one takes long to parse.
SMALL_LOCK = 'version = 4\n\n[[package]]\nname = "tokio"\nversion = "1.0.0"\n'


def modules_above(tests):
    """Returns the files through which crates reach their tests, as texts that have nothing but modules."""
    declared = collections.defaultdict(set)
    for file in tests:
        chain = SourceTree(ROOT).module_chain(file) or [file]
        for child, parent in itertools.pairwise(chain):
            declared[parent].add(f"#[cfg(test)]\nmod {pathlib.PurePath(child).stem};\n")
    return {file: "//! Modules.\n" + "".join(sorted(modules)) for file, modules in declared.items()}


def make_small_tree(root):
    """Makes a tree of what the checker reads: documents, some manifests, and the tests that check rules."""
    tests = {test.split("::")[0] for rule in CHECKED_RULES for test in rule.tests}
    copied = {file: read(ROOT, file) for file in tests.union(COPIED)}
    rust = [file for file in tests if file.endswith(".rs")]
    for file, text in (copied | modules_above(rust) | {"Cargo.lock": SMALL_LOCK}).items():
        write(root, file, text)
    subprocess.run(["git", "init", "--quiet", "--template=", str(root)], check=True)


def temporary_folder(test):
    """Returns a folder that is removed at the end of the test or class."""
    folder = tempfile.TemporaryDirectory()
    add_cleanup = test.addClassCleanup if isinstance(test, type) else test.addCleanup
    add_cleanup(folder.cleanup)
    return pathlib.Path(folder.name)


def read(root, path):
    """Returns the text of a file; None if it does not exist."""
    return (root / path).read_text(encoding="utf-8") if (root / path).is_file() else None


def write(root, path, text):
    """Writes a file; removes it if there is no text."""
    if text is None:
        (root / path).unlink()
        return
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")


@contextlib.contextmanager
def changed(root, change):
    """Changes a tree for a while. A change returns the new texts of files, given the tree."""
    after = change(root)
    before = {path: read(root, path) for path in after}
    try:
        for path, text in after.items():
            write(root, path, text)
        yield
    finally:
        for path, text in before.items():
            write(root, path, text)


def replaced(path, old, new):
    """A change: replaces the one place where a text occurs in a file."""
    def change(root):
        text = read(root, path)
        assert text.count(old) == 1, f"`{old}` occurs {text.count(old)} times in {path}"
        return {path: text.replace(old, new)}
    return change


def appended(path, text):
    """A change: adds a text to the end of a file."""
    return lambda root: {path: read(root, path) + text}


def written(files):
    """A change: writes files, given as texts by path."""
    return lambda root: files


def unchanged(_root):
    """A change: none."""
    return {}
