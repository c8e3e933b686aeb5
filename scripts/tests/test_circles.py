"""Circles of modules are found however a file names what it needs, and nowhere else."""

import contextlib
import io
import unittest
from unittest import mock

from support import temporary_folder, write

import check_circles

# The crate has two modules, `a` and `b`, and `b` needs `a`; each case says what else there is.
MODULES = {"lib.rs": "mod a;\nmod b;\n", "a.rs": "pub struct A;\n", "b.rs": "use crate::a::A;\npub struct B(A);\n"}

CIRCLES = {
    "a use": {"a.rs": "use crate::b::B;\npub struct A(B);\n"},
    "a path without a use": {"a.rs": "pub struct A;\nfn f() { crate::b::B::new() }\n"},
    "a path in an attribute": {"a.rs": '#[serde(default = "crate::b::B")]\npub struct A;\n'},
    "a path through super": {"a.rs": "pub struct A;\nfn f(b: super::b::B) {}\n"},
    "a use of several": {"a.rs": "use crate::{b::{B as Other}, nothing};\npub struct A(Other);\n"},
    "a glob": {"a.rs": "use crate::b::*;\npub struct A(B);\n"},
    "a re-export": {"lib.rs": "mod a;\nmod b;\npub use b::B;\n", "a.rs": "use crate::B;\npub struct A(B);\n"},
    "a function": {"a.rs": "pub struct A;\nfn f() { crate::b::make() }\n", "b.rs": "use crate::a::A;\npub fn make() -> A { A }\n"},
    "a child module": {"a.rs": "mod child;\npub struct A;\n", "a/child.rs": "use crate::b::B;\nstruct Child(B);\n"},
    "a folder with mod.rs": {"a.rs": None, "a/mod.rs": "use crate::b::B;\npub struct A(B);\n"},
    "a third module between": {
        "lib.rs": "mod a;\nmod b;\nmod c;\n", "a.rs": "use crate::c::C;\npub struct A(C);\n",
        "c.rs": "use crate::b::B;\npub struct C(B);\n",
    },
    "what the root defines": {
        "lib.rs": "mod a;\nmod b;\nuse b::B;\npub struct Root(B);\n", "a.rs": "use crate::Root;\npub struct A(Root);\n",
    },
    "code that is not for tests": {"a.rs": "#[cfg(not(test))]\nuse crate::b::B;\npub struct A(B);\n"},
}

NO_CIRCLES = {
    "one direction": {},
    "a re-export alone": {"a.rs": "pub use crate::b::B;\npub struct A;\n"},
    "a test": {"a.rs": "pub struct A;\n#[cfg(test)]\nmod tests { use crate::b::B; fn f(b: B) {} }\n"},
    "a use for tests": {"a.rs": "#[cfg(test)]\nuse crate::b::B;\npub struct A;\n"},
    "a comment": {"a.rs": "// crate::b::B\n/* crate::b::B /* crate::b::B */ */\npub struct A;\n"},
    "a text": {"a.rs": 'pub struct A;\nconst T: &str = "use crate::b::B;";\nconst R: &str = r#"crate::b::B"#;\n'},
    "another crate": {"a.rs": "use other::b::B;\npub struct A(B);\n"},
    "the same name elsewhere": {"a.rs": "pub struct A;\nstruct B;\nfn f(b: B) {}\n"},
    "files of one module": {
        "a.rs": "mod one;\nmod two;\npub struct A;\n", "a/one.rs": "use super::two::Two;\npub struct One(Two);\n",
        "a/two.rs": "use super::one::One;\npub struct Two(Option<Box<One>>);\n",
    },
}


class CirclesTest(unittest.TestCase):
    """Looks for circles in small crates."""

    def tree(self, files, crate="crates/example/src"):
        root = temporary_folder(self)
        for path, text in (MODULES | files).items():
            if text is not None:
                write(root, f"{crate}/{path}", text)
        return root

    def test_circle_is_found(self):
        for name, files in CIRCLES.items():
            with self.subTest(name):
                found = check_circles.circles(self.tree(files))
                self.assertEqual(len(found), 1, found)
                self.assertRegex(found[0], r"^crates/example/src/lib\.rs: the modules a, b(, c|, lib)? need each other:\n")

    def test_circle_names_files_and_items(self):
        found = check_circles.circles(self.tree(CIRCLES["a use"]))
        self.assertEqual(found[0].splitlines()[1:], ["  a.rs needs b.rs: B", "  b.rs needs a.rs: A"])

    def test_circle_is_found_in_every_crate(self):
        for crate in ("src", "subjects/src", "crates/other/src"):
            with self.subTest(crate):
                self.assertEqual(len(check_circles.circles(self.tree(CIRCLES["a use"], crate))), 1)

    def test_circle_is_found_in_programs(self):
        modules = MODULES | CIRCLES["a use"]
        for root, folder in ("main.rs", "."), ("bin/tool.rs", "bin"), ("bin/tool/main.rs", "bin/tool"):
            files = {"lib.rs": None, root: modules["lib.rs"], f"{folder}/a.rs": modules["a.rs"], f"{folder}/b.rs": modules["b.rs"]}
            with self.subTest(root):
                self.assertEqual(len(check_circles.circles(self.tree(files))), 1)

    def test_no_circle_is_found(self):
        for name, files in NO_CIRCLES.items():
            with self.subTest(name):
                self.assertEqual(check_circles.circles(self.tree(files)), [])

    def test_circle_inside_a_module_is_found_on_request(self):
        found = check_circles.circles(self.tree(NO_CIRCLES["files of one module"]), inside_modules=True)
        self.assertEqual([text.splitlines()[0] for text in found],
                         ["crates/example/src/lib.rs: 2 files of one module need each other:"])

    def test_main_fails_for_a_circle_only(self):
        for found, status in (["a circle"], 1), ([], None):
            with self.subTest(found=found), contextlib.redirect_stdout(io.StringIO()) as printed, \
                    mock.patch.object(check_circles, "circles", lambda **_: found), mock.patch("sys.argv", ["check_circles.py"]):
                try:
                    check_circles.main()
                    ended = None
                except SystemExit as exit:
                    ended = exit.code
                self.assertEqual(ended, status)
                self.assertEqual(printed.getvalue(), "a circle\n" if found else "circles ok\n")


if __name__ == "__main__":
    unittest.main()
