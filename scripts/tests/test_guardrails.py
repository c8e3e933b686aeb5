"""Every check of the guardrails checker reports a tree that breaks its rule, and nothing else; a good tree is clean."""

import unittest
from unittest import mock

from support import changed, make_small_tree, read, replaced, temporary_folder, unchanged
from broken_trees import BROKEN_TREES, GOOD_TREES, linking

import check_guardrails
from check_guardrails import CHECKED_RULES, CHECKS, problems, rules_of
from source_tree import SourceTree


class GuardrailsTest(unittest.TestCase):
    """Runs the checker on small trees, good and broken."""

    @classmethod
    def setUpClass(cls):
        cls.tree = temporary_folder(cls)
        make_small_tree(cls.tree)
        found = cls.problems_after(unchanged)
        assert not found, f"the repository itself breaks a rule; `make check` says which: {found}"

    @classmethod
    def problems_after(cls, change, **patch):
        """Returns what the checker reports about the changed tree."""
        with changed(cls.tree, change), mock.patch.multiple(check_guardrails, **linking() | patch):
            return problems(cls.tree)

    def test_good_tree_is_clean(self):
        for name, change in GOOD_TREES.items():
            with self.subTest(name):
                self.assertEqual(self.problems_after(change), [])

    def test_broken_tree_is_reported(self):
        for check, faults in BROKEN_TREES.items():
            for fault in faults:
                with self.subTest(check, fault=fault.name):
                    found = self.problems_after(fault.change, **fault.patch)
                    self.assertEqual({name for name, _ in found}, {check}, found)
                    self.assertIn(fault.report, " ".join(text for _, text in found))

    def test_missing_test_of_a_rule_is_reported(self):
        for rule in CHECKED_RULES:
            for test in rule.tests:
                with self.subTest(rule.opening, test=test):
                    file, name = test.split("::")
                    with changed(self.tree, replaced(file, f" {name}(", " renamed(")):
                        found = list(CHECKS["evidence"](SourceTree(self.tree)))
                    self.assertTrue(any(text.startswith(f"`{rule.opening}`") and test in text for text in found), found)

    def test_every_check_has_a_red_case(self):
        self.assertEqual({check for check, faults in BROKEN_TREES.items() if faults}, set(CHECKS))

    def test_every_checked_rule_has_a_red_case(self):
        for rule in CHECKED_RULES:
            with self.subTest(rule.opening):
                self.assertTrue(rule.checks or rule.tests, "nothing checks it")
                self.assertLessEqual(set(rule.checks), set(BROKEN_TREES))

    def test_opening_words_name_one_rule(self):
        rules = rules_of(read(self.tree, "AGENTS.md"))
        for rule in CHECKED_RULES:
            self.assertEqual(sum(text.startswith(rule.opening) for text in rules), 1, rule.opening)


if __name__ == "__main__":
    unittest.main()
