#!/usr/bin/env python3
"""Holds the tree against AGENTS.md: the rules there that a program can check and no lint or test does."""

import hashlib
import pathlib
import re
import subprocess
import sys
import tomllib

import check_circles

ROOT = pathlib.Path(__file__).resolve().parent.parent

SECTIONS = [
    "Framework Governance", "Design Tenets", "Agent Roles & Interfaces", "Planning Protocol", "Tool Contract",
    "Memory & RAG", "Coordinator Policy", "Configuration Policy", "Observability & Tracing", "Testing Invariants",
    "Change Management",
]

# What the checked rules of AGENTS.md say, so that none is changed without a look at what checks it.
CHECKED_RULES = "b2d3bf4c31b32842"

# Which of our crates may depend on which. Tests may use the kit on top.
MAY_DEPEND_ON = {
    "subjects": set(),
    "policy": set(),
    "protocol": set(),
    "mcp": set(),
    "secrets": set(),
    "listener": set(),
    "schema": set(),
    "contract": {"subjects", "policy"},
    "api": {"subjects", "policy"},
    "broker": {"subjects"},
    "operate": {"subjects", "broker"},
    "telemetry": {"secrets"},
    "settings": {"subjects", "secrets", "broker", "telemetry"},
    "upstream": {"mcp"},
    "store": {"broker"},
    "control": {"subjects", "contract", "policy", "secrets", "store"},
    "audit": {"subjects", "policy", "secrets", "broker", "store"},
    "access": {"policy", "secrets", "store", "audit"},
    "registry": {"subjects", "policy", "api", "mcp", "upstream", "store", "control", "schema"},
    "admin": {"subjects", "contract", "policy", "api", "secrets", "listener", "broker", "operate", "upstream", "store", "control",
              "audit", "access", "registry"},
    "cynode-gateway": {"subjects", "policy", "mcp", "secrets", "listener", "broker", "telemetry", "settings", "upstream",
                       "store", "control", "audit", "access", "registry", "admin"},
    "cynode-pma": {"schema", "subjects", "contract", "policy", "protocol", "mcp", "secrets", "broker", "telemetry", "settings"},
    "cynodectl": {"subjects", "contract", "api", "mcp", "secrets", "broker", "operate"},
    "testkit": {"subjects", "contract", "mcp"},
}
MANIFESTS = ["Cargo.toml", "subjects/Cargo.toml", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("crates/*/Cargo.toml"))]

# What the worker must not be able to do, said by what it must not link.
WORKER_NEVER_LINKS = {"sqlx", "sea-orm", "diesel", "rusqlite", "tokio-postgres", "libloading", "mlua", "rhai"}

# The files that may start processes: a server behind the gateway may be a program, and a local stack is made of them.
MAY_SPAWN = {"crates/upstream/src/stdio/child.rs", "crates/ctl/src/up/child.rs"}

# The widest line, as rustfmt has it; but rustfmt breaks neither comments nor string literals.
MAX_COLUMNS = 110
# What may be wider since it cannot be broken: a line that is one URL, or one raw string such as a pattern.
UNBREAKABLE = re.compile(r'''(//[/!]? )?<?https?://\S+|(const \w+: &str = )?(format!\()?r(#*)".*"\4[,;)]*''')

REQUIRED_LINTS = ["unwrap_used", "expect_used", "panic", "dbg_macro", "print_stdout", "allow_attributes",
                  "await_holding_lock", "large_futures", "let_underscore_must_use", "todo", "unimplemented"]
REQUIRED_BANS = ["std::process::Command", "tokio::spawn", "std::env::set_var"]

problems = []


def problem(text):
    problems.append(text)


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def tracked(*patterns):
    """Files that git knows, so that build output does not count."""
    out = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns], cwd=ROOT,
                         capture_output=True, text=True, check=True).stdout
    return [name for name in out.splitlines() if (ROOT / name).is_file()]


def checked_rules(text):
    """The bullets that are marked as checked, each on one line."""
    bullets = re.split(r"^- ", text, flags=re.M)[1:]
    bullets = [" ".join(re.split(r"^#", bullet, flags=re.M)[0].split()) for bullet in bullets]
    return [bullet for bullet in bullets if bullet.endswith("**[checked]**")]


def check_text():
    found = re.findall(r"^## (.+)$", read("AGENTS.md"), re.M)
    if found != SECTIONS:
        problem(f"AGENTS.md has sections {found}; the checker knows {SECTIONS}. Change both.")
    rules = checked_rules(read("AGENTS.md"))
    digest = hashlib.sha256("\n".join(rules).encode()).hexdigest()[:16]
    if digest != CHECKED_RULES:
        problem(f"a checked rule of AGENTS.md changed ({len(rules)} rules, digest {digest}); change what checks it too, "
                "then CHECKED_RULES here.")
    vnext = re.search(r"^## vNext\n(.*?)(?=^## |\Z)", read("CHANGELOG.md"), re.M | re.S)
    if not vnext or not re.search(r"^- ", vnext.group(1), re.M):
        problem("CHANGELOG.md needs a section `## vNext` with at least one line.")


def check_dependencies():
    for manifest in MANIFESTS:
        package = tomllib.loads(read(manifest))
        name = package["package"]["name"]
        if name not in MAY_DEPEND_ON:
            problem(f"{manifest}: {name} is not in MAY_DEPEND_ON; say what it may depend on.")
            continue
        ours = set(package.get("dependencies", {})) & set(MAY_DEPEND_ON)
        if not ours <= MAY_DEPEND_ON[name]:
            problem(f"{manifest}: {name} must not depend on {sorted(ours - MAY_DEPEND_ON[name])}.")
    tree = subprocess.run(["cargo", "tree", "--locked", "-p", "cynode-pma", "-e", "normal", "--prefix", "none"],
                          cwd=ROOT, capture_output=True, text=True)
    if tree.returncode != 0:
        problem("`cargo tree` failed: " + tree.stderr.strip())
    linked = {line.split(" ")[0] for line in tree.stdout.splitlines() if line}
    if linked & WORKER_NEVER_LINKS:
        problem(f"the worker links {sorted(linked & WORKER_NEVER_LINKS)}.")


def check_habits():
    lints = tomllib.loads(read("Cargo.toml"))["workspace"]["lints"]
    if lints["rust"].get("unsafe_code") != "forbid":
        problem("unsafe_code must be forbidden for the workspace.")
    for lint in REQUIRED_LINTS:
        if lints["clippy"].get(lint) != "deny":
            problem(f"the lint {lint} must be denied.")
    for manifest in MANIFESTS:
        if tomllib.loads(read(manifest)).get("lints", {}).get("workspace") is not True:
            problem(f"{manifest} does not take the lints of the workspace.")
    bans = read("clippy.toml")
    for ban in REQUIRED_BANS:
        if f'path = "{ban}", ' not in bans:
            problem(f"clippy.toml must ban {ban}, with a reason.")
    retries = tomllib.loads(read(".config/nextest.toml"))["profile"]["default"].get("retries")
    if retries != 0:
        problem("nextest must not retry.")


def check_sources():
    for name in tracked("*.rs"):
        text = read(name)
        lines = text.count("\n")
        if lines > 500:
            problem(f"{name} has {lines} lines; at most 500.")
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > MAX_COLUMNS and not UNBREAKABLE.fullmatch(line.strip()):
                problem(f"{name}:{number} has {len(line)} columns; at most {MAX_COLUMNS}.")
        if re.search(r"#\[ignore", text):
            problem(f"{name} ignores a test.")
        production = not re.search(r"(^|/)(tests|benches|testkit)(/|\.rs$)", name)
        if production and not name.startswith("subjects/") and re.search(r'format!\(\s*"(pma|pa)\.', text):
            problem(f"{name} writes a subject by hand; `subjects` builds them.")
        if production and not text.startswith("//!"):
            problem(f"{name} does not begin with what it is for (`//!`).")
        may_spawn = re.search(r"#!?\[expect\([^]]*clippy::disallowed_types", text)
        if production and may_spawn and name not in MAY_SPAWN:
            problem(f"{name} is allowed to spawn processes.")


def check_modules():
    for circle in check_circles.circles():
        problem(circle)


def main():
    for check in (check_text, check_dependencies, check_habits, check_sources, check_modules):
        check()
    for text in problems:
        print(f"guardrails: {text}")
    if problems:
        sys.exit(1)
    print("guardrails ok")


if __name__ == "__main__":
    main()
