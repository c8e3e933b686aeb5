"""The files of a repository as the guardrails checker reads them."""

import functools
import pathlib
import re
import subprocess
import tomllib

NOT_PRODUCTION = re.compile(r"(^|/)(tests|benches|testkit)(/|\.rs$)")


class SourceTree:
    """A repository: its Rust files, manifests and tests."""

    def __init__(self, root):
        self.root = pathlib.Path(root)

    def read(self, path):
        return (self.root / path).read_text(encoding="utf-8")

    def toml(self, path):
        return tomllib.loads(self.read(path))

    def tracked(self, *patterns):
        """Returns the files that git knows, so that build output does not count."""
        listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns], cwd=self.root,
                                capture_output=True, text=True, check=True).stdout
        return [name for name in listed.splitlines() if (self.root / name).is_file()]

    @functools.cached_property
    def sources(self):
        """All Rust files with their text."""
        return {name: self.read(name) for name in self.tracked("*.rs")}

    @functools.cached_property
    def production(self):
        """The Rust files that are neither tests nor benches, with their text."""
        return {name: text for name, text in self.sources.items() if not NOT_PRODUCTION.search(name)}

    @functools.cached_property
    def manifests(self):
        """The manifests of all packages of the workspace, parsed."""
        folders = [self.root]
        for member in self.toml("Cargo.toml")["workspace"]["members"]:
            folders += sorted(self.root.glob(member))
        files = [folder / "Cargo.toml" for folder in folders if (folder / "Cargo.toml").is_file()]
        return {str(file.relative_to(self.root)): tomllib.loads(file.read_text(encoding="utf-8")) for file in files}

    def has_test(self, place):
        """Returns whether a test, named as `file::function`, is there and runs."""
        file, name = place.split("::")
        if not (self.root / file).is_file():
            return False
        if file.endswith(".py"):
            return re.search(rf"^    def {name}\(self", self.read(file), re.M) is not None
        test = rf"#\[(tokio::)?test\b[^\]]*\]\s*((#\[[^\]]*\]|//[^\n]*)\s*)*(async )?fn {name}\("
        return re.search(test, self.read(file)) is not None and self.module_chain(file) is not None

    def module_chain(self, file):
        """Returns a Rust file and the files through which its crate reaches it; None if the crate does not."""
        path = pathlib.PurePath(file)
        if path.name in ("lib.rs", "main.rs") or path.parent.name == "tests":
            return [file]
        folder = path.parent
        for parent in (folder / "lib.rs", folder / "main.rs", folder.with_suffix(".rs")):
            if (self.root / parent).is_file() and re.search(rf"^\s*(pub(\(\w+\))? )?mod {path.stem};", self.read(parent), re.M):
                rest = self.module_chain(str(parent))
                return rest and [file, *rest]
        return None
