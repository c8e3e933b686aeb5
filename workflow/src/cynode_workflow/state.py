"""The state of a workflow: plain JSON, so that people can read it and nothing in it can execute."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypedDict

from langgraph.channels import Topic

StepStatus = Literal["pending", "running", "ended", "asking", "done", "failed"]

# The gateway takes 512 KiB; the rest is for the other arguments of the call.
MAX_STATE_BYTES = 480 * 1024
MAX_TEXT = 8 * 1024


class PlannedStep(TypedDict, total=False):
    """A step of the plan (its first fields are those of the contract's `Step`), and where it stands."""

    name: str
    description: str
    kind: Literal["job", "manager"]
    script: str
    files: list[dict[str, str]]
    artifacts: list[str]
    outputs: list[str]
    network: list[str]
    seconds: int
    criteria: list[str]
    depends_on: list[str]
    needs_approval: bool
    status: StepStatus
    # The attempt that a person approved, and what it runs: see `approval_of`.
    approved: str
    # What the next attempt has to mend: critical and major issues of the last review.
    feedback: list[str]
    # What a person was asked about the step, and answered.
    answers: list[dict[str, str]]
    # How many attempts in a row lost their node.
    lost: int
    # It was made smaller after its last attempt, and has one more.
    reduced: bool
    # A person wants it changed before it runs.
    to_change: bool
    # What a person should know who is asked for approval again.
    note: str


class Policy(TypedDict):
    max_attempts: int
    max_reviews: int
    step_seconds: int


class Begun(TypedDict, total=False):
    """A job or a handoff that an attempt of a step began."""

    kind: Literal["job", "chat"]
    key: str
    id: str
    run: int
    # Why nothing could be begun.
    error: str


class StepResult(TypedDict, total=False):
    """The result of an attempt of a step: the contract's `StepResult`, and a question of the manager."""

    outcome: Literal["succeeded", "failed"]
    end: Any
    exit_code: int
    output_tail: str
    artifacts: list[str]
    answer: str
    error: str
    question: str


class Review(TypedDict, total=False):
    """A decision about a result."""

    iteration: int
    decision: Literal["pass", "revise", "retry", "reduce_scope", "escalate"]
    reasons: list[str]
    issues: list[dict[str, Any]]
    step: dict[str, Any]
    question: str


class Question(TypedDict, total=False):
    """A question that a person has to answer before the workflow continues."""

    kind: Literal["question", "approval"]
    about: Literal["plan", "step"]
    step: str
    text: str
    # Of an approval: what a yes approves.
    approves: str
    answer: str


class Outcome(TypedDict):
    """How a run of the workflow ended. Set by the last node; nothing else says that a workflow has ended."""

    kind: Literal["done", "failed"]
    run: int


class Event(TypedDict, total=False):
    """Something that happened, for people."""

    node: str
    step: str
    outcome: Literal["started", "ended", "failed", "retried", "waiting", "answered"]
    detail: str


def _merge(old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any]:
    return {**(old or {}), **(new or {})}


class State(TypedDict, total=False):
    task_id: str
    title: str
    description: str
    acceptance_criteria: list[str]
    preferences_effective: Any
    dependencies: list[dict[str, Any]]
    artifacts: list[str]
    policy: Policy
    plan: list[PlannedStep]
    current_step_index: int
    attempts_by_step: dict[str, int]
    review_iterations: dict[str, int]
    last_result: dict[str, Any]
    # Several steps write these at the same time.
    begun: Annotated[dict[str, Begun], _merge]
    results: Annotated[dict[str, StepResult], _merge]
    verification: Annotated[dict[str, Review | None], _merge]
    question: Question | None
    # Questions about the plan that a person answered.
    clarifications: list[dict[str, str]]
    summary: str
    error: str | None
    outcome: Outcome | None
    # What happened in the step of the graph that ended last; empty again after the next.
    events: Annotated[list[Event], Topic(dict)]


# The fields that are for people, in this order; the others only steer the graph.
_SHOWN = (
    "task_id",
    "acceptance_criteria",
    "preferences_effective",
    "policy",
    "plan",
    "current_step_index",
    "attempts_by_step",
    "last_result",
    "results",
    "verification",
    "review_iterations",
    "begun",
    "question",
    "clarifications",
    "summary",
    "error",
    "outcome",
)


# What is left out of a state that is too large, in this order.
_LEFT_OUT = (
    "results",
    "verification",
    "clarifications",
    "preferences_effective",
    "begun",
    "last_result",
    "acceptance_criteria",
)
# What remains of the steps of a plan that is too large.
_OF_STEPS = ("name", "kind", "status", "needs_approval", "depends_on")


def state_for_people(values: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the state as it is shown, without what would make it too large: first the texts of files.

    A step that a person is asked to approve stays whole: all that is approved can be read.
    """
    shown = {name: values[name] for name in _SHOWN if values.get(name) is not None}
    if not shown:
        return None
    if json_size(shown) <= MAX_STATE_BYTES:
        return shown
    question = shown.get("question") or {}
    asked = question.get("step") if question.get("kind") == "approval" else None
    plan: list[dict[str, Any]] = shown.get("plan", [])

    def others(shorten: Callable[[dict[str, Any]], dict[str, Any]]) -> list[dict[str, Any]]:
        return [step if step["name"] == asked else shorten(step) for step in plan]

    shown = {**shown, "plan": others(_without_file_texts)}
    for name in _LEFT_OUT:
        if json_size(shown) <= MAX_STATE_BYTES:
            return shown
        if name in shown:
            shown.pop(name)
            shown["left_out"] = [*shown.get("left_out", []), name]
    for fields in (_OF_STEPS, _OF_STEPS[:-1]):
        if json_size(shown) <= MAX_STATE_BYTES:
            return shown
        shown["plan"] = others(functools.partial(_only, fields))
        shown["left_out"] = [*(name for name in shown.get("left_out", []) if name != "plan"), "plan"]
    if json_size(shown) > MAX_STATE_BYTES:
        # No single step is as large as this, except for all that people ever answered about it.
        shown["plan"] = [{name: step[name] for name in step if name != "answers"} for step in shown["plan"]]
    return shown


def _without_file_texts(step: dict[str, Any]) -> dict[str, Any]:
    return {**step, "files": [{"path": file["path"], "text": "…"} for file in step.get("files", [])]}


def _only(fields: tuple[str, ...], step: dict[str, Any]) -> dict[str, Any]:
    return {field: step[field] for field in fields if field in step}


def cut(text: str, most: int = MAX_TEXT) -> str:
    """Returns the text in at most so many bytes of UTF-8, as the gateway counts, shortened at its end."""
    return text if size_of(text) <= most else first_bytes(text, most - size_of("…")) + "…"


def cut_with_note(text: str, most: int, where: str = "") -> str:
    """Returns the text, or its first bytes with how many are missing, and where they are, if one can read
    them: nothing is cut in silence.
    """
    left = size_of(text) - most
    if left <= 0:
        return text
    return f"{first_bytes(text, most)}… ({left} more bytes{where})"


def size_of(text: str) -> int:
    """Returns the size of a text in bytes of UTF-8."""
    return len(text.encode(errors="replace"))


def first_bytes(text: str, most: int) -> str:
    """Returns as many whole characters of a text as fit."""
    return text.encode(errors="replace")[:most].decode(errors="ignore")


def json_size(value: Any) -> int:
    """Returns the size of a value as JSON, in bytes of UTF-8, not less than the gateway counts."""
    return len(json.dumps(value, ensure_ascii=False, default=str).encode(errors="replace"))
