#!/usr/bin/env python3
"""Holds the tree against AGENTS.md: its text, and the rules there that a program can check.

Each check is a function that yields the problems it finds in a `SourceTree`. `checked_rules.py` names the checks and tests of each
rule; `tests/broken_trees.py` has broken trees for each check.
"""

import hashlib
import pathlib
import re
import subprocess
import sys

import check_circles
from checked_rules import CHECKED_RULES
from source_tree import SourceTree

ROOT = pathlib.Path(__file__).resolve().parent.parent

SECTIONS = [
    "Framework Governance", "Design Tenets", "Agent Roles & Interfaces", "Planning Protocol", "Tool Contract",
    "Memory & RAG", "Coordinator Policy", "Configuration Policy", "Observability & Tracing", "Testing Invariants",
    "Change Management",
]

# What an entry about a changed guardrail says.
CHANGELOG_PARTS = ("Why:", "Compatibility:", "Migration:")

# Which of our crates may depend on which. Tests may use the kit on top.
MAY_DEPEND_ON = {
    "subjects": set(),
    "policy": set(),
    "protocol": set(),
    "retrieval": {"policy"},
    "mcp": set(),
    "secrets": set(),
    "listener": set(),
    "schema": set(),
    "crash": set(),
    "sandbox": {"policy", "crash"},
    "contract": {"subjects", "policy"},
    "timing": {"contract"},
    "api": {"subjects", "policy", "contract"},
    "broker": {"subjects"},
    "operate": {"subjects", "broker"},
    "chain": {"subjects", "broker"},
    "intake": {"broker", "chain"},
    "leased": {"contract", "policy", "mcp", "broker"},
    "edge": {"subjects", "contract", "policy", "schema", "mcp", "upstream", "broker", "leased"},
    "telemetry": {"secrets"},
    "settings": {"subjects", "secrets", "broker", "telemetry"},
    "upstream": {"mcp"},
    "store": {"broker"},
    "control": {"subjects", "contract", "timing", "policy", "retrieval", "secrets", "broker", "operate", "store"},
    "audit": {"subjects", "policy", "secrets", "broker", "store"},
    "access": {"policy", "secrets", "store", "audit"},
    "registry": {"subjects", "policy", "api", "mcp", "upstream", "store", "control", "schema"},
    "admin": {"subjects", "contract", "policy", "api", "secrets", "listener", "broker", "operate", "upstream", "store", "control",
              "audit", "access", "registry"},
    "cynode-gateway": {"subjects", "policy", "mcp", "secrets", "listener", "broker", "telemetry", "settings", "upstream",
                       "store", "control", "audit", "access", "registry", "admin"},
    "cynode-pma": {"schema", "subjects", "contract", "policy", "protocol", "mcp", "secrets", "crash", "broker", "chain", "intake",
                   "leased", "telemetry", "settings", "retrieval"},
    "cynode-orchestrator": {"subjects", "contract", "policy", "mcp", "secrets", "crash", "listener", "broker", "operate", "telemetry",
                            "settings"},
    "cynode-node": {"subjects", "contract", "protocol", "mcp", "secrets", "crash", "listener", "sandbox", "broker", "chain", "intake",
                    "leased", "edge", "telemetry", "settings"},
    "cynodectl": {"subjects", "contract", "policy", "api", "mcp", "secrets", "broker", "operate"},
    "testkit": {"subjects", "contract", "mcp"},
}
PROGRAMS = {"cynode-pma", "cynode-gateway", "cynode-orchestrator", "cynode-node", "cynodectl"}

# What the worker must not be able to do, said by what it must not link.
WORKER_NEVER_LINKS = {"sqlx", "sea-orm", "diesel", "rusqlite", "tokio-postgres"}
# What runs code that is not compiled in; nothing of ours links it.
DYNAMIC_CODE = {"libloading", "dlopen2", "mlua", "rhai", "pyo3", "rquickjs", "boa_engine", "v8", "deno_core", "wasmtime", "wasmer",
                "wasmi"}

# The files that may start processes: a server behind the gateway may be a program, a local stack is made of them, a
# sandbox is one, and a PDF is read by one.
MAY_SPAWN = {
    "crates/upstream/src/stdio/child.rs",
    "crates/ctl/src/up/child.rs",
    "crates/ctl/src/gateway/memory/pdf.rs",
    "crates/sandbox/src/process.rs",
}

# The widest line, as rustfmt has it; but rustfmt breaks neither comments nor string literals.
MAX_COLUMNS = 110
# What may be wider since it cannot be broken: a line that is one URL, or one raw string such as a pattern.
UNBREAKABLE = re.compile(r'''(//[/!]? )?<?https?://\S+|((?:pub(?:\(crate\))? )?const \w+: &str = )?(format!\()?r(#*)".*"\4[,;)]*''')
# A file stays under this number of lines.
MAX_LINES = 500

REQUIRED_LINTS = ["unwrap_used", "expect_used", "panic", "dbg_macro", "print_stdout", "allow_attributes",
                  "await_holding_lock", "large_futures", "let_underscore_must_use", "todo", "unimplemented"]
REQUIRED_BANS = ["std::process::Command", "tokio::process::Command", "tokio::spawn", "std::env::set_var"]
# Lints that production code may not switch off, and the files that may.
GUARDED_LINTS = {*REQUIRED_LINTS, "disallowed_types", "disallowed_methods", "all", "style", "restriction"}
MAY_SUPPRESS = {"crates/settings/src/command.rs": {"print_stdout"}, **{file: {"disallowed_types"} for file in MAY_SPAWN}}

# What `make check`, `make test` and CI run; a lint or a test that nothing runs checks nothing.
MAKE_RUNS = {
    "check": [
        "$(CARGO) clippy --workspace --lib --bins --locked -- -D warnings",
        "$(CARGO) clippy --workspace --tests --benches --locked -- -D warnings $(IN_TESTS)",
        "$(PYTHON) scripts/check_dependencies.py $(DENY)",
        "$(PYTHON) scripts/check_guardrails.py",
    ],
    "test": ["@$(PYTHON) scripts/run_tests.py"],
}
SCRIPT_TESTS = '"-m", "unittest", "discover", "-s", "scripts/tests"'

# The labels that metrics may have. Each has few values; ids and secrets have many.
METRIC_LABELS = {"kind", "outcome", "code", "tool", "agent", "decision", "status", "state", "queue", "end"}
# A setting whose name ends like this would hold a secret instead of the path of its file.
SECRET_SETTING = re.compile(r"(^|[._])(token|secret|password|seed|creds|credentials|key|nkey)$")
# Macros that write to logs and traces, and fields that must not be in them.
LOG_CALL = re.compile(r"\b(?:trace|debug|info|warn|error|event|span|\w+_span)!\(")
# How many characters of a call are read.
MAX_LOG_CALL = 2000
CONTENT = r"(?:[\w.]+\.)?(?:body|bodies|prompt|prompts|arguments|args|token|password|secret)"
CONTENT_FIELD = re.compile(rf"(?:^|,)\s*[%?]?({CONTENT})\s*(?=,|$|=[^=])")
CONTENT_RECORDED = re.compile(rf'\.record\(\s*"({CONTENT})"')


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def rules_of(text):
    """Returns the bullets of AGENTS.md, each on one line."""
    bullets = re.split(r"^- ", text, flags=re.M)[1:]
    return [" ".join(re.split(r"^#", bullet, flags=re.M)[0].split()) for bullet in bullets]


def check_sections(tree):
    found = re.findall(r"^## (.+)$", tree.read("AGENTS.md"), re.M)
    if found != SECTIONS:
        yield f"AGENTS.md has sections {found}; the checker knows {SECTIONS}. Change both."


def check_rules(tree):
    marked = [rule for rule in rules_of(tree.read("AGENTS.md")) if rule.endswith("**[checked]**")]
    for text in marked:
        rule = next((rule for rule in CHECKED_RULES if text.startswith(rule.opening)), None)
        if rule is None:
            yield f"AGENTS.md marks `{text[:60]}...` as checked; scripts/checked_rules.py does not say by what."
        elif rule.digest != digest(text):
            yield (f"the checked rule `{rule.opening}` of AGENTS.md changed; change what checks it too, then its digest in "
                   f"scripts/checked_rules.py to {digest(text)}.")
    for rule in CHECKED_RULES:
        if not any(text.startswith(rule.opening) for text in marked):
            yield f"scripts/checked_rules.py has a rule `{rule.opening}`; AGENTS.md does not mark it as checked."


def check_evidence(tree):
    for rule in CHECKED_RULES:
        if not rule.checks and not rule.tests:
            yield f"nothing checks `{rule.opening}`; name a check or a test in scripts/checked_rules.py, or do not mark it."
        for name in rule.checks:
            if name not in CHECKS:
                yield f"`{rule.opening}` is to be checked by `{name}`, which check_guardrails.py does not have."
        for test in rule.tests:
            if not tree.has_test(test):
                yield f"`{rule.opening}` is to be checked by {test}; there is no such test, or nothing runs it."


def check_changelog(tree):
    text = tree.read("CHANGELOG.md")
    vnext = re.search(r"^## vNext\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if not vnext or not re.search(r"^- ", vnext.group(1), re.M):
        yield "CHANGELOG.md needs a section `## vNext` with at least one line."
    sections = re.findall(r"^### Guardrails\n(.*?)(?=^##|\Z)", text, re.M | re.S)
    entries = [entry for section in sections for entry in rules_of(section)]
    for entry in entries:
        for part in CHANGELOG_PARTS:
            if part not in entry:
                yield f"CHANGELOG.md: the entry `{entry[:60]}...` under `### Guardrails` lacks `{part}`."
    current = digest("\n".join(rules_of(tree.read("AGENTS.md"))))
    if not entries or not entries[0].startswith(f"`{current}`"):
        yield f"CHANGELOG.md: the first entry under `### Guardrails` must describe the present rules and begin with `{current}`."


def own_dependencies(manifest):
    """Returns which of our crates a package is built with."""
    names = set()
    for table in (manifest, *manifest.get("target", {}).values()):
        for kind in ("dependencies", "build-dependencies"):
            for name, wanted in table.get(kind, {}).items():
                names.add(wanted.get("package", name) if isinstance(wanted, dict) else name)
    return names & set(MAY_DEPEND_ON)


def check_dependencies(tree):
    for name, others in MAY_DEPEND_ON.items():
        if others & PROGRAMS:
            yield f"MAY_DEPEND_ON lets {name} depend on {sorted(others & PROGRAMS)}; nothing depends on a program."
    for file, manifest in tree.manifests.items():
        name = manifest["package"]["name"]
        if name not in MAY_DEPEND_ON:
            yield f"{file}: {name} is not in MAY_DEPEND_ON; say what it may depend on."
            continue
        excess = own_dependencies(manifest) - MAY_DEPEND_ON[name]
        if excess:
            yield f"{file}: {name} must not depend on {sorted(excess)}."


def cargo_tree(root):
    """Runs `cargo tree` for what the worker links."""
    return subprocess.run(["cargo", "tree", "--locked", "-p", "cynode-pma", "-e", "normal", "--prefix", "none"],
                          cwd=root, capture_output=True, text=True)


def check_worker_links(tree):
    listed = cargo_tree(tree.root)
    if listed.returncode != 0:
        yield "`cargo tree` failed: " + listed.stderr.strip()
    linked = {line.split(" ")[0] for line in listed.stdout.splitlines() if line}
    if linked & WORKER_NEVER_LINKS:
        yield f"the worker links {sorted(linked & WORKER_NEVER_LINKS)}."


def check_denied_crates(tree):
    deny = tree.toml("deny.toml")
    wrappers = {entry["crate"]: entry.get("wrappers", []) for entry in deny["bans"]["deny"]}
    for crate in sorted(WORKER_NEVER_LINKS):
        if crate not in wrappers or "cynode-pma" in wrappers[crate]:
            yield f"deny.toml must deny {crate} to the worker."
    for source in ("unknown-registry", "unknown-git"):
        if deny["sources"].get(source) != "deny":
            yield f"deny.toml must deny `{source}`."


def check_dynamic_code(tree):
    locked = {package["name"] for package in tree.toml("Cargo.lock")["package"]}
    if locked & DYNAMIC_CODE:
        yield f"Cargo.lock has {sorted(locked & DYNAMIC_CODE)}, which run code that is not compiled in."


def check_lints(tree):
    lints = tree.toml("Cargo.toml")["workspace"]["lints"]
    levels = {f"{tool}::{lint}": level if isinstance(level, str) else level["level"]
              for tool, table in lints.items() for lint, level in table.items()}
    if levels.get("rust::unsafe_code") != "forbid":
        yield "unsafe_code must be forbidden for the workspace."
    for lint in ("rust::unused_must_use", "clippy::all", *(f"clippy::{lint}" for lint in REQUIRED_LINTS)):
        if levels.get(lint) != "deny":
            yield f"the lint {lint} must be denied."
    for lint, level in levels.items():
        if level == "allow":
            yield f"the lint {lint} must not be allowed for the workspace."
    for file, manifest in tree.manifests.items():
        if manifest.get("lints", {}).get("workspace") is not True:
            yield f"{file} does not take the lints of the workspace."


def check_bans(tree):
    banned = {ban["path"] for kind in ("disallowed-types", "disallowed-methods") for ban in tree.toml("clippy.toml").get(kind, [])
              if ban.get("reason")}
    for ban in REQUIRED_BANS:
        if ban not in banned:
            yield f"clippy.toml must ban {ban}, with a reason."
    for file in tree.tracked("*/clippy.toml", "*.clippy.toml"):
        yield f"{file} would replace clippy.toml for its crate."


def check_suppressions(tree):
    for name, text in tree.production.items():
        suppressed = set()
        for attribute in re.findall(r"#!?\[[^\]]*\b(?:expect|allow|warn)\([^\]]*\]", text):
            suppressed |= set(re.findall(r"clippy::(\w+)", attribute))
        for lint in sorted(suppressed & GUARDED_LINTS - MAY_SUPPRESS.get(name, set())):
            yield f"{name} switches off the lint {lint}; MAY_SUPPRESS does not have it."


def check_make_targets(tree):
    recipes = dict(re.findall(r"^([a-z-]+):(?!=)[^\n]*\n((?:\t[^\n]*\n)*)", tree.read("Makefile"), re.M))
    for target, commands in MAKE_RUNS.items():
        lines = [line.strip() for line in recipes.get(target, "").splitlines()]
        for command in commands:
            if command not in lines:
                yield f"`make {target}` must run `{command}`."
    if SCRIPT_TESTS not in tree.read("scripts/run_tests.py"):
        yield "scripts/run_tests.py must run the tests in scripts/tests."
    steps = tree.read(".ci/run").splitlines()
    for target in MAKE_RUNS:
        if f"make {target}" not in steps:
            yield f".ci/run must run `make {target}`."


def settings_of(table, key):
    """Yields all values of a key in nested tables."""
    for name, value in table.items():
        if name == key:
            yield value
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                yield from settings_of(inner, key)


def check_retries(tree):
    nextest = tree.toml(".config/nextest.toml")
    retries = list(settings_of(nextest, "retries"))
    if nextest["profile"]["default"].get("retries") != 0 or any(value != 0 for value in retries):
        yield "nextest must not retry."


def check_ignored_tests(tree):
    for name, text in tree.sources.items():
        if re.search(r"#\[(cfg_attr\([^\]]*,\s*)?ignore\b", text):
            yield f"{name} ignores a test."


def check_file_sizes(tree):
    for name, text in tree.sources.items():
        lines = text.count("\n")
        if lines >= MAX_LINES:
            yield f"{name} has {lines} lines; it must stay under {MAX_LINES}."


def check_line_widths(tree):
    for name, text in tree.sources.items():
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > MAX_COLUMNS and not UNBREAKABLE.fullmatch(line.strip()):
                yield f"{name}:{number} has {len(line)} columns; at most {MAX_COLUMNS}."


def check_purposes(tree):
    for name, text in tree.production.items():
        if not text.startswith("//!"):
            yield f"{name} does not begin with what it is for (`//!`)."


def check_subjects(tree):
    for name, text in tree.production.items():
        if not name.startswith("subjects/") and re.search(r'format!\(\s*"(pma|pa)\.', text):
            yield f"{name} writes a subject by hand; `subjects` builds them."


def arguments_of_call(text):
    """Returns the arguments of a call up to its end, without what is in quotes or in inner brackets."""
    kept, depth = [], 1
    for char in re.sub(r'"(?:[^"\\]|\\.)*"', "", text):
        depth += (char in "([{") - (char in ")]}")
        if depth == 0:
            break
        if depth == 1:
            kept.append(char)
    return "".join(kept)


def check_log_fields(tree):
    for name, text in tree.production.items():
        fields = CONTENT_RECORDED.findall(text)
        for call in LOG_CALL.finditer(text):
            fields += CONTENT_FIELD.findall(arguments_of_call(text[call.end():call.end() + MAX_LOG_CALL]))
        for field in fields:
            yield f"{name} has `{field}` as a field of a log or a span."


def check_circles_of_modules(tree):
    yield from check_circles.circles(tree.root)


def table_rows(text):
    """Yields the cells of the rows of Markdown tables that begin with code."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def check_secret_settings(tree):
    for key, *_ in table_rows(tree.read("docs/settings.md")):
        if SECRET_SETTING.search(key.strip("`")):
            yield f"docs/settings.md: {key} would hold a secret; take the path of its file (`..._file`)."


def check_metric_labels(tree):
    for metric, _, labels, *_ in table_rows(tree.read("docs/metrics.md")):
        for label in sorted(set(re.findall(r"`(\w+)`", labels)) - METRIC_LABELS):
            yield f"docs/metrics.md: {metric} has the label `{label}`, which METRIC_LABELS does not have; ids are never labels."


CHECKS = {check.__name__.removeprefix("check_"): check for check in (
    check_sections, check_rules, check_evidence, check_changelog, check_dependencies, check_worker_links, check_denied_crates,
    check_dynamic_code, check_lints, check_bans, check_suppressions, check_make_targets, check_retries, check_ignored_tests,
    check_file_sizes, check_line_widths, check_purposes, check_subjects, check_log_fields, check_circles_of_modules,
    check_secret_settings, check_metric_labels,
)}


def problems(root):
    """Returns what is wrong with a tree: the name of the check and a sentence for each problem."""
    tree = SourceTree(root)
    return [(name, text) for name, check in CHECKS.items() for text in check(tree)]


def main():
    found = problems(ROOT)
    for _, text in found:
        print(f"guardrails: {text}")
    if found:
        sys.exit(1)
    print("guardrails ok")


if __name__ == "__main__":
    main()
