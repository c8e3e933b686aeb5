"""Trees that break one rule each, by the check that reports them, and trees that only look as if they did."""

import dataclasses
import functools
import subprocess

from support import appended, read, replaced, unchanged, written

import check_guardrails
from check_guardrails import CHECKED_RULES, CHANGELOG_PARTS, MAY_DEPEND_ON, digest, rules_of


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is wrong with a tree, the change that makes it so, and a part of the report."""

    name: str
    change: object
    report: str
    patch: dict = dataclasses.field(default_factory=dict)


in_agents = functools.partial(replaced, "AGENTS.md")
in_changelog = functools.partial(replaced, "CHANGELOG.md")
in_manifest = functools.partial(replaced, "Cargo.toml")
in_deny = functools.partial(replaced, "deny.toml")
in_makefile = functools.partial(replaced, "Makefile")
in_nextest = functools.partial(replaced, ".config/nextest.toml")
to_policy = functools.partial(appended, "crates/policy/Cargo.toml")


def rule_changed(old, new):
    """A change: edits a rule of AGENTS.md and enters the new digest of all rules in CHANGELOG.md."""
    def change(root):
        after = in_agents(old, new)(root)
        former, present = (digest("\n".join(rules_of(text))) for text in (read(root, "AGENTS.md"), after["AGENTS.md"]))
        return after | in_changelog(former, present)(root)
    return change


def guardrail_entry(*parts):
    """A change: describes a changed guardrail with these parts."""
    described = " ".join(f"{part} none." for part in parts)
    return appended("CHANGELOG.md", f"\n### Guardrails\n\n- A rule is new. {described}\n")


def source(code, path="crates/policy/src/example.rs"):
    """A change: writes a Rust file that says what it is for."""
    return written({path: f"//! An example.\n{code}\n"})


def test_source(code):
    """A change: writes a Rust file of tests."""
    return source(code, "tests/worker/example.rs")


def label_added(label):
    """A change: gives a metric one more label."""
    return replaced("docs/metrics.md", "| `pma_ready` | gauge | – |", f"| `pma_ready` | gauge | `kind`, `{label}` |")


def setting_added(key):
    """A change: documents one more setting."""
    return appended("docs/settings.md", f"\n| `{key}` | – | Sent with each call. |\n")


def linking(*crates):
    """A patch: the worker links these crates."""
    listed = "".join(f"{crate} v1.0.0\n" for crate in ("cynode-pma", "tokio", *crates))
    return {"cargo_tree": lambda root: subprocess.CompletedProcess([], 0, listed, "")}


CARGO_FAILS = {"cargo_tree": lambda root: subprocess.CompletedProcess([], 101, "", "no such lock")}


def first_rule_with(**fields):
    """A patch: the first checked rule is checked by something else."""
    return {"CHECKED_RULES": [dataclasses.replace(CHECKED_RULES[0], **fields), *CHECKED_RULES[1:]]}


RELEVANCE = "Tools are offered by relevance to the goal, never all of them."
NEW_CRATE = '[package]\nname = "new"\n[lints]\nworkspace = true\n'
RENAMED_STORE = '\n[build-dependencies]\nshop = { package = "store", path = "../store" }\n'
PRODUCTION_LINTS = "--lib --bins --locked -- -D warnings"
RETRIED_GROUP = '\n[[profile.default.overrides]]\nfilter = "all()"\nretries = 1\n'
SPAWNING = '#![expect(\n    clippy::disallowed_types,\n    reason = "quick"\n)]'
CIRCLE = {
    "crates/policy/src/lib.rs": "//! An example.\nmod first;\nmod second;\n",
    "crates/policy/src/first.rs": "//! First.\nuse crate::second::Second;\npub struct First(Second);\n",
    "crates/policy/src/second.rs": "//! Second.\nuse crate::first::First;\npub struct Second(Option<Box<First>>);\n",
}

BROKEN_TREES = {
    "sections": [
        Fault("a section is missing", in_agents("## Memory & RAG\n", ""), "Change both"),
        Fault("a section is new", appended("AGENTS.md", "\n## Style\n"), "Change both"),
    ],
    "rules": [
        Fault("a checked rule has another text", rule_changed("clamped to 1..50", "clamped to 1..60"), "PLANNER_MAX_STEPS"),
        Fault("a rule is newly marked", rule_changed("in the trace as well.", "in the trace as well. **[checked]**"), "by what"),
        Fault("a rule lost its mark", rule_changed(f"{RELEVANCE} **[checked]**", RELEVANCE), "does not mark it"),
    ],
    "evidence": [
        Fault("nothing checks a rule", unchanged, "nothing checks", first_rule_with(checks=())),
        Fault("a check does not exist", unchanged, "does not have", first_rule_with(checks=("sections", "magic"))),
        Fault("a file of tests does not exist", unchanged, "no such test", first_rule_with(tests=("tests/none.rs::none",))),
        Fault("a file of tests is not compiled", replaced("tests/worker/main.rs", "mod roles;\n", ""), "nothing runs it"),
        Fault("a function is no test", replaced("tests/worker/routing.rs", "#[test]\nfn provider_keys", "fn provider_keys"),
              "provider_keys_are_refused_by_name"),
    ],
    "changelog": [
        Fault("there is no vNext", in_changelog("## vNext\n", "## v1\n"), "vNext"),
        Fault("a rule changed without an entry", in_agents("Say why in the commit message.", "Commit often."), "begin with"),
        Fault("there are no entries", in_changelog("### Guardrails\n", "### Others\n"), "begin with"),
        *[Fault(f"an entry lacks `{part}`", guardrail_entry(*set(CHANGELOG_PARTS) - {part}), f"lacks `{part}`")
          for part in CHANGELOG_PARTS],
    ],
    "dependencies": [
        Fault("the worker depends on a part of the gateway",
              in_manifest("[dependencies]\n", "[dependencies]\nstore.workspace = true\n"), "must not depend on ['store']"),
        Fault("a build script depends on it", to_policy("\n[build-dependencies]\nstore.workspace = true\n"), "['store']"),
        Fault("one platform depends on it", to_policy("\n[target.'cfg(unix)'.dependencies]\nstore.workspace = true\n"), "['store']"),
        Fault("a dependency has another name", to_policy(RENAMED_STORE), "['store']"),
        Fault("a crate is not listed", written({"crates/new/Cargo.toml": NEW_CRATE}), "new is not in MAY_DEPEND_ON"),
        Fault("the list lets programs depend on each other", unchanged, "nothing depends on a program",
              {"MAY_DEPEND_ON": MAY_DEPEND_ON | {"cynodectl": {"cynode-pma"}}}),
    ],
    "worker_links": [
        *[Fault(f"the worker links {crate}", unchanged, f"links ['{crate}']", linking(crate))
          for crate in sorted(check_guardrails.WORKER_NEVER_LINKS)],
        Fault("cargo fails", unchanged, "no such lock", CARGO_FAILS),
    ],
    "denied_crates": [
        Fault("a database is allowed", in_deny('    { crate = "tokio-postgres" },\n', ""), "tokio-postgres"),
        Fault("the worker may use one", in_deny('wrappers = ["audit"]', 'wrappers = ["audit", "cynode-pma"]'), "rusqlite"),
        Fault("any git source is allowed", in_deny('unknown-git = "deny"', 'unknown-git = "warn"'), "unknown-git"),
    ],
    "dynamic_code": [
        Fault(f"{crate} is linked", appended("Cargo.lock", f'\n[[package]]\nname = "{crate}"\nversion = "0.1.0"\n'), crate)
        for crate in sorted(check_guardrails.DYNAMIC_CODE)
    ],
    "lints": [
        Fault("unsafe code is only denied", in_manifest('unsafe_code = "forbid"', 'unsafe_code = "deny"'), "unsafe_code"),
        Fault("dropped results warn", in_manifest('unused_must_use = "deny"', 'unused_must_use = "warn"'), "unused_must_use"),
        Fault("clippy's lints warn", in_manifest('all = { level = "deny"', 'all = { level = "warn"'), "clippy::all"),
        *[Fault(f"{lint} is not denied", in_manifest(f'\n{lint} = "deny"', ""), f"clippy::{lint} must be denied")
          for lint in check_guardrails.REQUIRED_LINTS],
        Fault("a lint is allowed", in_manifest("[workspace.lints.rust]\n", '[workspace.lints.rust]\ndead_code = "allow"\n'),
              "dead_code must not be allowed"),
        Fault("a crate has no lints", replaced("crates/policy/Cargo.toml", "[lints]\nworkspace = true\n", ""), "crates/policy"),
    ],
    "bans": [
        *[Fault(f"{ban} is not banned", replaced("clippy.toml", f'path = "{ban}"', 'path = "std::any::Any"'), f"must ban {ban}")
          for ban in check_guardrails.REQUIRED_BANS],
        *[Fault(f"a crate has its own {file}", written({f"crates/policy/{file}": ""}), "would replace")
          for file in ("clippy.toml", ".clippy.toml")],
        Fault("the workspace has hidden bans", written({".clippy.toml": ""}), "would replace"),
    ],
    "suppressions": [
        Fault("another file starts processes", source(SPAWNING), "switches off the lint disallowed_types"),
        Fault("the worker starts processes", source("#[allow(clippy::disallowed_types)]", "src/example.rs"), "src/example.rs"),
        Fault("a function unwraps", source('#[expect(clippy::unwrap_used, reason = "quick")]\nfn f() {}'), "unwrap_used"),
        Fault("a crate panics sometimes", source('#![cfg_attr(feature = "fast", expect(clippy::panic))]'), "the lint panic"),
        Fault("a file does anything", source("#![allow(clippy::all)]"), "the lint all"),
    ],
    "make_targets": [
        *[Fault(f"`make {target}` leaves out `{command}`", in_makefile(f"\t{command}\n", "\ttrue\n"), command)
          for target, commands in check_guardrails.MAKE_RUNS.items() for command in commands],
        Fault("production code is linted like tests", in_makefile(PRODUCTION_LINTS, f"{PRODUCTION_LINTS} $(IN_TESTS)"), "--lib --bins"),
        Fault("the tests of scripts are left out", replaced("scripts/run_tests.py", check_guardrails.SCRIPT_TESTS, '"--version"'),
              "scripts/tests"),
        *[Fault(f"CI does not run `make {target}`", replaced(".ci/run", f"make {target}\n", ""), f"make {target}")
          for target in check_guardrails.MAKE_RUNS],
    ],
    "retries": [
        Fault("tests are retried", in_nextest("\nretries = 0", "\nretries = 2"), "retry"),
        Fault("retries are not mentioned", in_nextest("\nretries = 0", ""), "retry"),
        Fault("some tests are retried", appended(".config/nextest.toml", RETRIED_GROUP), "retry"),
        Fault("CI retries", appended(".config/nextest.toml", "\n[profile.ci]\nretries = 1\n"), "retry"),
    ],
    "ignored_tests": [
        Fault("a test is ignored", source("#[test]\n#[ignore]\nfn f() {}"), "ignores a test"),
        Fault("a test is ignored for a reason", test_source('#[ignore = "slow"]\nfn f() {}'), "ignores a test"),
        Fault("a test is ignored sometimes", source("#[cfg_attr(not(unix), ignore)]\nfn f() {}"), "ignores a test"),
    ],
    "file_sizes": [
        Fault("a file is too long", source("\n" * 498), "has 500 lines"),
        Fault("a file of tests is too long", test_source("\n" * 600), "tests/worker/example.rs"),
    ],
    "line_widths": [
        Fault("a comment is too wide", source("// " + "a" * 108), "has 111 columns"),
        Fault("a text is too wide", test_source(f'const TEXT: &str = "{"a" * 100}";'), "columns"),
        Fault("an address is in a wide sentence", source("// See https://example.org/" + "a" * 100), "columns"),
    ],
    "purposes": [
        Fault("a file does not say what it is for", written({"src/example.rs": "fn f() {}\n"}), "src/example.rs"),
    ],
    "subjects": [
        Fault("a subject is written by hand", source('fn f() -> String { format!("pma.handoff.{}", 1) }'), "by hand"),
        Fault("an analyst's subject is", source('fn f() { format!(\n    "pa.verify") }'), "by hand"),
    ],
    "log_fields": [
        Fault("a body", source('fn f() { info!(body = %text, "Received."); }'), "`body`"),
        Fault("a prompt", source('fn f() { tracing::debug!(handoff.id = %id, ?prompt, "Asked."); }'), "`prompt`"),
        Fault("arguments", source('fn f() { warn!(error = %g(a, b), ?call.arguments, "Called."); }'), "`call.arguments`"),
        Fault("a token alone", source("fn f() { error!(%token); }"), "`token`"),
        Fault("a body in a span", source('fn f() { info_span!(target: T, "call", request.body = text) }'), "`request.body`"),
        Fault("a prompt recorded later", source('fn f() { span.record("gen_ai.prompt", text); }'), "`gen_ai.prompt`"),
    ],
    "circles_of_modules": [
        Fault("two modules need each other", written(CIRCLE), "the modules first, second need each other"),
    ],
    "secret_settings": [
        Fault(f"{key} is a setting", setting_added(key), key)
        for key in ("gateway.token", "nats.password", "inference.api_key", "nats.nkey", "token")
    ],
    "metric_labels": [
        Fault(f"{label} is a label", label_added(label), f"label `{label}`") for label in ("handoff_id", "user", "token")
    ],
}

LOGGED_NUMBERS = 'fn f() { info!(prompt_tokens = 3, error = %g(body, token), "The body {} token."); }'
USED_AFTER_LOG = 'fn f() { match x { A => warn!("Left."), B => g(a, body, c) } }'

GOOD_TREES = {
    "a wide line is one address": source("// https://example.org/" + "a" * 100),
    "a wide line is one pattern": source(f'const PATTERN: &str = r"{"a" * 100}";'),
    "a line has the full width": source("// " + "a" * 107),
    "a file has 499 lines": source("\n" * 497),
    "a test says no purpose and writes a subject": written({"tests/worker/example.rs": 'fn f() { format!("pma.x") }\n'}),
    "a test unwraps": test_source("#![expect(clippy::unwrap_used)]"),
    "a file that may start processes does": source(SPAWNING, "crates/ctl/src/up/child.rs"),
    "an unguarded lint is switched off": source('#[expect(clippy::unused_async, reason = "same")]\nasync fn f() {}'),
    "numbers and errors are logged": source(LOGGED_NUMBERS),
    "a body is used after a log": source(USED_AFTER_LOG),
    "a secret is in a file": setting_added("gateway.token_file"),
    "a test depends on anything": to_policy("\n[dev-dependencies]\nstore.workspace = true\n"),
    "a changed rule is described": rule_changed("Say why in the commit message.", "Commit often."),
    "an entry has all parts": guardrail_entry(*CHANGELOG_PARTS),
}
