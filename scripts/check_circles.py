#!/usr/bin/env python3
"""Finds circles of files that span modules: top-level modules of a crate that need each other, directly or through others.

A file needs another if it names an item that is defined there, in a `use` or in a path. A re-export is followed to the definition, so a
file that takes its sibling's type through their parent needs the sibling. `mod x;` and a re-export by themselves need nothing. Code
under `#[cfg(test)]` does not count. A module needs what its files need; `src/agent.rs` and `src/agent/` are one top-level module, and
what the root file defines is another.

`--all` also shows circles of files inside one module. Exits with 1 if it shows any.
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

TOKEN = re.compile(r"""
    (?P<skip>\s+|//[^\n]*)
  | (?P<comment>/\*)
  | (?P<raw>[bc]?r(?P<hashes>\#*)")
  | (?P<text>[bc]?"(?:[^"\\]|\\.)*")
  | (?P<char>b?'(?:[^'\\]|\\(?:u\{[^}]*\}|x..|.))')
  | (?P<word>(?:r\#)?[A-Za-z_]\w*|'[A-Za-z_]\w*|\d[\w.]*)
  | (?P<sign>::|[^\w\s])
""", re.X | re.S)
PATH_IN_TEXT = re.compile(r'"(?:crate|super|self)(?:::\w+)+"')
OPEN, CLOSE = {"{": "}", "(": ")", "[": "]"}, {"}", ")", "]"}
USE_FOLLOWS = {"", ";", "{", "}", "]", "pub", ")"}
ITEMS = {"fn", "struct", "enum", "union", "trait", "type", "const", "static"}


def tokens_of(text):
    """The words and signs of a source text, without comments; of text literals only those that are paths."""
    found, at = [], 0
    while at < len(text):
        match = TOKEN.match(text, at)
        at = match.end()
        if match["comment"]:
            depth = 1
            while depth and at < len(text):
                step = re.compile(r"/\*|\*/").search(text, at)
                at, depth = step.end(), depth + (1 if step.group() == "/*" else -1)
        elif match["raw"]:
            at = text.index('"' + match["hashes"], at) + 1 + len(match["hashes"])
        elif match["text"]:
            found += re.findall(r"\w+|::", match["text"]) if PATH_IN_TEXT.fullmatch(match["text"]) else ['""']
        elif match["word"] or match["sign"]:
            found.append(match.group().removeprefix("r#"))
    return found


def group_end(tokens, at):
    """The place after the group that opens at `at`."""
    depth = 0
    while at < len(tokens):
        depth += (tokens[at] in OPEN) - (tokens[at] in CLOSE)
        at += 1
        if depth == 0:
            break
    return at


def without_tests(tokens):
    """The tokens without the items, fields and statements under `#[cfg(test)]`."""
    kept, at = [], 0
    while at < len(tokens):
        if tokens[at:at + 2] != ["#", "["]:
            kept.append(tokens[at])
            at += 1
            continue
        end = group_end(tokens, at + 1)
        inside = tokens[at + 2:end - 1]
        if inside[:3] != ["cfg", "(", "test"] and inside[:5] != ["cfg", "(", "all", "(", "test"]:
            kept += tokens[at:end]
            at = end
            continue
        while tokens[end:end + 2] == ["#", "["]:
            end = group_end(tokens, end + 1)
        while end < len(tokens) and tokens[end] not in (";", ",", "{", "}"):
            end = group_end(tokens, end) if tokens[end] in OPEN else end + 1
        at = group_end(tokens, end) if tokens[end:end + 1] == ["{"] else end + (tokens[end:end + 1] != ["}"])
    return kept


class Module:
    """A module: the file it is in, the names that it defines and imports, and the paths that it mentions."""

    def __init__(self, path, file):
        self.path, self.file = path, file
        self.items, self.children = set(), {}
        self.imports, self.globs = collections.defaultdict(list), []  # name -> [(path, is a re-export)]
        self.mentions, self.words = set(), set()


def use_tree(tokens, at, prefix):
    """The paths of a use tree that begins at `at`, each with the name it is bound to, and the place after it."""
    leaves, path = [], list(prefix)
    while at < len(tokens):
        token = tokens[at]
        if token == "{":
            end = group_end(tokens, at) - 1
            at += 1
            while at < end:
                inner, at = use_tree(tokens, at, path)
                leaves += inner
                at += tokens[at] == ","
            return leaves, end + 1
        if token in (",", ";", "}"):
            break
        if token == "as":
            return [(path, tokens[at + 1])], at + 2
        if token != "::" and not (token == "self" and path):
            path.append(token)
        at += 1
    return [(path, path[-1])], at


def folder_of(file, is_root):
    """Where the child modules of a file are."""
    return file.parent if is_root else file.with_suffix("")


def read_module(path, file, is_root=False):
    """The module that a file is, with its children."""
    module = Module(path, file)
    read_body(module, without_tests(tokens_of(file.read_text(encoding="utf-8"))), folder_of(file, is_root))
    return module


def read_body(module, tokens, folder):
    at = 0
    while at < len(tokens):
        token, follows = tokens[at], tokens[at + 1:at + 2]
        before = tokens[at - 1] if at else ""
        if token == "use" and follows != ["<"] and before in USE_FOLLOWS:
            leaves, at = use_tree(tokens, at + 1, [])
            for path, name in leaves:
                if name == "*":
                    module.globs.append(path[:-1])
                else:
                    module.imports[name].append((path, before in ("pub", ")")))
        elif token == "mod" and tokens[at + 2:at + 3] == [";"]:
            file = folder / (follows[0] + ".rs")
            file = file if file.is_file() else folder / follows[0] / "mod.rs"
            if file.is_file():
                module.children[follows[0]] = read_module((*module.path, follows[0]), file, file.name == "mod.rs")
            at += 3
        elif token == "mod" and tokens[at + 2:at + 3] == ["{"]:
            end = group_end(tokens, at + 2)
            child = module.children[follows[0]] = Module((*module.path, follows[0]), module.file)
            read_body(child, tokens[at + 3:end - 1], folder / follows[0])
            at = end
        elif token == "macro_rules" and follows == ["!"]:
            module.items.add(tokens[at + 2])
            at += 3
        elif re.match(r"[A-Za-z_]", token):
            if before in ITEMS:
                module.items.add(token)
            path = [token]
            at += 1
            while tokens[at:at + 1] == ["::"] and re.match(r"[A-Za-z_]", "".join(tokens[at + 1:at + 2])):
                path.append(tokens[at + 1])
                at += 2
            module.words.add(path[0])
            if len(path) > 1 and before != "::":
                module.mentions.add(tuple(path))
        else:
            at += 1


class Crate:
    """The modules of a crate, and which file needs which."""

    def __init__(self, root):
        self.src = root.parent
        self.root = read_module((), root, True)
        self.modules = {}
        self.collect(self.root)

    def collect(self, module):
        self.modules[module.path] = module
        for child in module.children.values():
            self.collect(child)

    def name(self, module, name, seen):
        """What a name is in a module: another module, or the file that defines it and its name; None if it is not of this crate."""
        if (module.path, name) in seen:
            return None
        seen = seen | {(module.path, name)}
        if name in module.children:
            return module.children[name]
        if name in module.items:
            return module.file, name
        for path, _ in module.imports.get(name, []):
            found = self.resolve(module, path, seen)
            if found:
                return found
        for path in module.globs:
            source = self.resolve(module, path, seen)
            found = self.name(source, name, seen) if isinstance(source, Module) else None
            if found:
                return found
        return None

    def resolve(self, module, path, seen=frozenset()):
        """Follows a path from a module; the same answers as `name`."""
        here, rest = module, list(path)
        if rest[0] == "crate":
            here, rest = self.root, rest[1:]
        elif rest[0] in ("self", "super"):
            while rest and rest[0] in ("self", "super"):
                here = self.modules[here.path[:-1]] if rest[0] == "super" else here
                rest = rest[1:]
        for segment in rest:
            here = self.name(here, segment, seen)
            if not isinstance(here, Module):
                return here
        return here

    def edges(self):
        """file -> file it needs -> names."""
        needs = collections.defaultdict(lambda: collections.defaultdict(set))
        for module in self.modules.values():
            paths = set(module.mentions)
            for name, imports in module.imports.items():
                paths |= {tuple(path) for path, reexport in imports if not reexport or name in module.words}
            for path in paths:
                found = self.resolve(module, path)
                if isinstance(found, tuple) and found[0] != module.file:
                    needs[module.file][found[0]].add(found[1])
            for path in module.globs:
                found = self.resolve(module, path)
                for word in module.words if isinstance(found, Module) else ():
                    item = self.name(found, word, frozenset())
                    if isinstance(item, tuple) and item[0] != module.file:
                        needs[module.file][item[0]].add(item[1])
        return needs

    def top(self, file):
        """The top-level module that a file is in."""
        return file.relative_to(self.src).with_suffix("").parts[0]


def circles_of(needs):
    """The sets of files, or modules, that all reach each other (strongly connected components, by Tarjan's algorithm)."""
    index, low, stack, found = {}, {}, [], []
    for start in sorted(needs):
        if start in index:
            continue
        work = [(start, iter(sorted(needs[start])))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while work:
            file, rest = work[-1]
            following = next(rest, None)
            if following is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[file])
                if low[file] == index[file]:
                    circle = set(stack[stack.index(file):])
                    del stack[stack.index(file):]
                    if len(circle) > 1:
                        found.append(circle)
            elif following not in index:
                index[following] = low[following] = len(index)
                stack.append(following)
                work.append((following, iter(sorted(needs.get(following, ())))))
            elif following in stack:
                low[file] = min(low[file], index[following])
    return found


def roots(tree):
    """The root files of every crate in the tree, libraries and programs."""
    for src in [tree / "src", tree / "subjects/src", *sorted(tree.glob("crates/*/src"))]:
        programs = [*sorted(src.glob("bin/*.rs")), *sorted(src.glob("bin/*/main.rs"))]
        yield from (path for path in (src / "lib.rs", src / "main.rs", *programs) if path.is_file())


def describe(title, crate, needs, pairs):
    """A circle as text: which file needs which, and for what."""
    lines = [title]
    for file, other in sorted(pairs):
        names = ", ".join(sorted(needs[file][other]))
        lines.append(f"  {file.relative_to(crate.src)} needs {other.relative_to(crate.src)}: {names}")
    return "\n".join(lines)


def circles(tree=ROOT, inside_modules=False):
    """The circles of all crates in the tree as texts."""
    texts = []
    for root in roots(tree):
        crate = Crate(root)
        needs = crate.edges()
        pairs = {(file, other) for file in needs for other in needs[file]}
        place = root.relative_to(tree)
        modules = collections.defaultdict(set)
        for file, other in pairs:
            if crate.top(file) != crate.top(other):
                modules[crate.top(file)].add(crate.top(other))
        for circle in circles_of(modules):
            inside = {pair for pair in pairs if {crate.top(file) for file in pair} <= circle
                      and crate.top(pair[0]) != crate.top(pair[1])}
            title = f"{place}: the modules {', '.join(sorted(circle))} need each other:"
            texts.append(describe(title, crate, needs, inside))
        for circle in circles_of(needs) if inside_modules else ():
            if len({crate.top(file) for file in circle}) == 1:
                title = f"{place}: {len(circle)} files of one module need each other:"
                texts.append(describe(title, crate, needs, {pair for pair in pairs if set(pair) <= circle}))
    return texts


def main():
    found = circles(inside_modules="--all" in sys.argv[1:])
    for text in found:
        print(text)
    if found:
        sys.exit(1)
    print("circles ok")


if __name__ == "__main__":
    main()
