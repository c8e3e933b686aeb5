"""cargo-deny's verdict is that of the script, except where the database of advisories cannot be reached."""

import contextlib
import io
import subprocess
import unittest
from unittest import mock

import support  # noqa: F401  Makes the scripts importable.

import check_dependencies

NO_DATABASE = "error: failed to fetch advisory database https://example.org"
VULNERABLE = "error[vulnerability]: RUSTSEC-2099-0001"

# What cargo-deny returns for bans, licences and sources; for advisories; with which error; whether the script passes; what it says.
RUNS = {
    "all is well": (0, 0, "", True, "advisories ok"),
    "a crate is banned": (1, 0, "", False, ""),
    "an advisory matches": (0, 1, VULNERABLE, False, VULNERABLE),
    "the database cannot be fetched": (0, 1, NO_DATABASE, True, "NOT checked"),
    "the database cannot be loaded": (0, 1, "failed to load advisory database", True, "NOT checked"),
    "advisories fail in another way": (0, 2, "cannot parse deny.toml", False, "cannot parse deny.toml"),
    "a crate is banned and there is no database": (1, 1, NO_DATABASE, False, ""),
}


class DependenciesTest(unittest.TestCase):
    """Runs the script with a cargo-deny that returns what a case says."""

    def run_script(self, rules, advisories, error):
        """Returns whether the script passes, and what it says."""
        def deny(command, **_):
            status = advisories if command[-1] == "advisories" else rules
            return subprocess.CompletedProcess(command, status, "", error)
        printed = io.StringIO()
        with mock.patch.object(subprocess, "run", deny), mock.patch("sys.argv", ["check_dependencies.py", "cargo-deny"]), \
                contextlib.redirect_stdout(printed):
            try:
                check_dependencies.main()
            except SystemExit as exit:
                return exit.code == 0, exit.code if isinstance(exit.code, str) else ""
        return True, printed.getvalue()

    def test_verdict(self):
        for name, (rules, advisories, error, passes, says) in RUNS.items():
            with self.subTest(name):
                passed, said = self.run_script(rules, advisories, error)
                self.assertEqual(passed, passes)
                self.assertIn(says, said)

    def test_bans_licences_and_sources_are_checked(self):
        with mock.patch.object(subprocess, "run") as run:
            check_dependencies.run_deny("deny", "bans", "licenses", "sources")
        run.assert_called_once_with(["deny", "--workspace", "--all-features", "check", "bans", "licenses", "sources"])


if __name__ == "__main__":
    unittest.main()
