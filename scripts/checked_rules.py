"""The rules of AGENTS.md that are marked **[checked]**, each with what checks it.

A rule is found by its opening words. Its digest is that of its whole text, so that none is changed without a look at what checks
it. `checks` are checks of `check_guardrails.py`, those of lints and bans among them; `tests` are tests that `make test` runs.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Rule:
    """A checked rule and what checks it."""

    opening: str
    digest: str
    checks: tuple = ()
    tests: tuple = ()


CHECKED_RULES = [
    Rule("This file and `scripts/check_guardrails.py`", "4447a03f", checks=("sections", "rules")),
    Rule("Every change of a rule", "c927a603", checks=("changelog",)),
    Rule("A rule is marked **[checked]** only", "cd80857c", checks=("evidence", "make_targets")),
    Rule("The checker is tested", "9c390a6d", tests=(
        "scripts/tests/test_guardrails.py::test_every_check_has_a_red_case",
        "scripts/tests/test_guardrails.py::test_every_checked_rule_has_a_red_case",
        "scripts/tests/test_guardrails.py::test_broken_tree_is_reported",
        "scripts/tests/test_guardrails.py::test_missing_test_of_a_rule_is_reported",
    )),
    Rule("Kill anything at any instant", "32cb37e2", tests=(
        "tests/worker/crash_points.rs::worker_killed_at_any_point_is_continued_by_another",
        "tests/worker/storm.rs::every_handoff_is_answered_once_under_random_kills",
        "crates/gateway/tests/gateway/keys.rs::task_is_created_once_whenever_the_gateway_is_killed",
        "crates/gateway/tests/gateway/audit_storm.rs::every_answered_call_has_one_row",
    )),
    Rule("Security first", "91d19a8a", checks=("lints", "dynamic_code"), tests=(
        "tests/worker/deploy/refusals.rs::identities_may_do_only_what_the_table_allows",
        "crates/gateway/tests/gateway/store.rs::calls_are_denied_without_postgres",
        "subjects/tests/fuzz_decode.rs::no_body_makes_the_decoder_panic",
    )),
    Rule("Small files with one purpose", "e9a45be9", checks=("file_sizes", "line_widths", "purposes")),
    Rule("Files of different top-level modules", "ce7cfd5c", checks=("circles_of_modules",)),
    Rule("An instance has one role", "43cb5019", tests=(
        "tests/worker/roles.rs::flag_overrides_file_overrides_environment",
        "tests/worker/roles.rs::no_role_and_wrong_roles_are_refused",
    )),
    Rule("A role loads its own instruction bundle", "44c616bd", tests=(
        "src/instructions/tests.rs::the_other_roles_bundle_is_refused_however_it_is_reached",
        "tests/worker/roles.rs::wrong_bundle_prevents_the_start",
    )),
    Rule("The worker MUST NOT spawn a process", "50fcdc0b", checks=("bans", "suppressions", "worker_links", "denied_crates")),
    Rule("The worker MUST NOT hold a provider credential", "43f6c9f5", tests=(
        "tests/worker/routing.rs::provider_keys_are_refused_by_name",
    )),
    Rule("A crate depends only on", "4953e3e8", checks=("dependencies",)),
    Rule("Four files start processes", "81123392", checks=("bans", "suppressions"), tests=(
        "crates/upstream/tests/servers/process.rs::a_process_gets_only_inherited_and_configured_variables",
        "crates/gateway/tests/gateway/attacks/servers.rs::attack_26_stdio_upstreams_are_isolated",
    )),
    Rule("Observe, reason, act", "b43ac99f", tests=(
        "tests/worker/agent_turn.rs::a_turn_calls_tools_and_answers",
        "tests/worker/agent_turn.rs::endless_tool_loop_is_stopped_by_max_steps",
        "tests/worker/agent_turn.rs::invalid_calls_are_reported_to_the_model",
    )),
    Rule("Stop also when the deadline passes", "2d909396", tests=(
        "tests/worker/answers.rs::a_deadline_ends_the_work",
        "tests/worker/presence.rs::a_running_handoff_is_cancelled",
    )),
    Rule("`PLANNER_MAX_STEPS` is clamped", "eb781cb3", tests=(
        "tests/worker/roles.rs::steps_and_temperature_are_clamped_with_a_warning",
    )),
    Rule("Tools are reached through the MCP gateway only", "b43fcea7", checks=("dependencies",), tests=(
        "tests/worker/rejections.rs::rejected_call_ends_the_handoff",
    )),
    Rule("Tools are offered by relevance", "4528c9a1", tests=(
        "src/tools/rank/tests.rs::never_offers_all_tools",
        "src/tools/rank/tests.rs::finds_the_right_tool_for_written_goals",
    )),
    Rule("No `unwrap`, `expect` or `panic!`", "1ef0ad55", checks=("lints", "suppressions", "make_targets")),
    Rule("What one profile stored MUST NOT be found", "fe27ca9c", tests=(
        "crates/control/tests/tools/memory/isolation.rs::profiles_do_not_influence_each_other",
        "crates/control/tests/tools/memory/isolation.rs::no_argument_names_a_profile",
        "crates/control/tests/tools/memory/isolation.rs::order_and_database_make_no_difference",
        "crates/retrieval/tests/retrieval/vectors.rs::vectors_of_a_version_never_change",
    )),
    Rule("One kind of handoff MUST NOT starve another", "96ee5914", tests=(
        "tests/worker/holding.rs::a_flood_of_one_kind_does_not_delay_another",
    )),
    Rule("Flag beats file beats environment", "22666811", tests=(
        "crates/settings/src/load/tests.rs::flag_beats_file_beats_environment_beats_default",
        "tests/worker/roles.rs::wrong_values_are_reported_with_key_and_source",
        "crates/gateway/tests/gateway/process.rs::invalid_settings_are_refused_with_the_accepted_values",
    )),
    Rule("Secrets come as paths of files", "e139ad8d", checks=("secret_settings", "metric_labels"), tests=(
        "tests/worker/documents.rs::settings_reference_is_what_the_programs_print",
        "tests/worker/secrets.rs::worker_logs_no_secrets_as_json",
        "tests/worker/secrets.rs::gateway_logs_no_secrets_as_json",
        "tests/worker/roles.rs::effective_configuration_is_printed",
        "tests/worker/deploy/metrics.rs::documented_metrics_are_the_exported_ones",
    )),
    Rule("Logs are structured", "8a9e0a5c", checks=("log_fields", "metric_labels"), tests=(
        "crates/secrets/src/redact/tests.rs::fields_are_redacted_in_both_formats",
        "crates/secrets/src/redact/tests.rs::secrets_of_many_shapes_are_redacted_anywhere_in_a_line",
        "tests/worker/secrets.rs::worker_logs_no_secrets_as_text",
        "tests/worker/secrets.rs::gateway_logs_no_secrets_as_text",
        "tests/worker/deploy/metrics.rs::documented_metrics_are_the_exported_ones",
    )),
    Rule("Spans hold names, numbers and ids", "520ce20b", checks=("log_fields",), tests=(
        "tests/worker/traces.rs::handoff_is_one_trace_through_worker_gateway_and_upstream",
        "crates/telemetry/tests/off.rs::without_a_collector_no_span_is_created",
    )),
    Rule("`trace_id` crosses every process", "8e19c7c0", tests=(
        "tests/worker/traces.rs::handoff_is_one_trace_through_worker_gateway_and_upstream",
        "tests/worker/traces.rs::a_verification_is_part_of_the_same_trace",
        "tests/worker/presence.rs::instance_announces_itself_and_reports_its_status",
    )),
    Rule("No `#[ignore]`, no retries", "a4c6f697", checks=("ignored_tests", "retries")),
    Rule("The files of the wire contract", "74eb77a4", tests=(
        "subjects/tests/contract.rs::schemas_and_asyncapi_match_the_types",
        "subjects/tests/contract.rs::golden_handoffs_encode_to_their_vectors_and_decode_back",
        "subjects/tests/contract.rs::golden_answers_encode_to_their_vectors_and_decode_back",
        "subjects/tests/contract.rs::no_schema_or_vector_is_left_over",
    )),
]
