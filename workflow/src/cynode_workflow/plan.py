"""Pure: steps of a plan, which of them can run, and what they are checked for."""

from __future__ import annotations

import hashlib
import json
from typing import Any, cast

from cynode_workflow.state import (
    PlannedStep,
    Policy,
    State,
    StepResult,
    cut,
    cut_with_note,
    size_of,
)
from cynode_workflow.texts import has_nul, without_nul

MAX_STEPS = 50
# In bytes. A message takes 16 KiB for the description with the answers and notes on what was cut.
MAX_DESCRIPTION = 16_000
MAX_ANSWERS = 10_000
MAX_ANSWER = 4_000
MAX_QUESTION = 500
# Of a plan, and of a step that a person has to approve, as JSON. The gateway refuses others at the start.
MAX_PLAN_BYTES = 512 * 1024
MAX_APPROVED_BYTES = 384 * 1024
# An attempt whose node was lost does not count, this many times in a row.
MAX_LOST = 3
# The fields of a step in the contract.
STEP_FIELDS = (
    "name",
    "description",
    "kind",
    "script",
    "files",
    "artifacts",
    "outputs",
    "network",
    "seconds",
    "criteria",
    "depends_on",
    "needs_approval",
)


class PlanError(Exception):
    """A plan cannot be run; the text says why."""


def read_policy(given: Any) -> Policy:
    """Returns the policy of a workflow, with defaults for what is not given."""
    policy: dict[str, int] = {}
    for name, default in (("max_attempts", 3), ("max_reviews", 3), ("step_seconds", 600)):
        value = given.get(name) if isinstance(given, dict) else None
        policy[name] = (
            value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default
        )
    return Policy(
        max_attempts=policy["max_attempts"],
        max_reviews=policy["max_reviews"],
        step_seconds=policy["step_seconds"],
    )


def planned(steps: Any) -> list[PlannedStep]:
    """Returns the steps of a new plan, all pending; raises `PlanError` if they cannot be run."""
    if not isinstance(steps, list) or not steps:
        raise PlanError("the plan has no steps")
    if len(steps) > MAX_STEPS:
        raise PlanError(f"the plan has {len(steps)} steps; the limit is {MAX_STEPS}")
    given = [_of_contract(step) for step in steps]
    size = _compact_size(given)
    if size > MAX_PLAN_BYTES:
        raise PlanError(f"the steps have {size} bytes as JSON; the limit is {MAX_PLAN_BYTES}")
    plan = [_planned_step(step) for step in given]
    names = [step["name"] for step in plan]
    for name in names:
        if names.count(name) > 1:
            raise PlanError(f"the plan has two steps named `{name}`")
    for step in plan:
        for needed in step["depends_on"]:
            if needed not in names:
                raise PlanError(f"step `{step['name']}` depends on `{needed}`, which the plan does not have")
    done: set[str] = set()
    while len(done) < len(plan):
        free = [
            step["name"] for step in plan if step["name"] not in done and done.issuperset(step["depends_on"])
        ]
        if not free:
            waiting = ", ".join(name for name in names if name not in done)
            raise PlanError(f"the steps {waiting} depend on each other in a circle")
        done.update(free)
    return plan


def changed(old: PlannedStep, new: dict[str, Any]) -> PlannedStep:
    """Returns a step as a review changed it. Its name, its place in the plan and its need of approval stay.

    Criteria are lowered only by naming others: a step without any would pass unseen.
    """
    step = _of_contract(new)
    step["name"] = old["name"]
    step["depends_on"] = old["depends_on"]
    step["criteria"] = new.get("criteria") or old.get("criteria")
    step["description"] = new.get("description") or old.get("description")
    step["answers"] = old.get("answers")
    # What a person approved was the earlier form of the step, not this one.
    step["needs_approval"] = bool(old.get("needs_approval")) or bool(new.get("needs_approval"))
    return _planned_step(step)


def ready(plan: list[PlannedStep]) -> list[PlannedStep]:
    """Returns the steps that are ready to run."""
    done = {step["name"] for step in plan if step["status"] == "done"}
    return [step for step in plan if step["status"] == "pending" and done.issuperset(step["depends_on"])]


def needs_approval(step: PlannedStep, attempt: int) -> bool:
    """Returns whether a person has to approve an attempt of a step first."""
    return bool(step.get("needs_approval")) and step.get("approved") != approval_of(step, attempt)


def approval_of(step: PlannedStep, attempt: int) -> str:
    """Returns a token that identifies the approval of one attempt of a step with its present content."""
    given = cast(dict[str, Any], step)
    runs = {field: given.get(field) for field in (*STEP_FIELDS, "feedback", "answers")}
    # A surrogate alone is no UTF-8; escaped, it is.
    text = json.dumps([attempt, runs], sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def is_excused(step: PlannedStep, result: StepResult) -> bool:
    """Returns whether an attempt failed for its node alone, so that it does not count."""
    end = result.get("end")
    return isinstance(end, dict) and end.get("how") == "node_lost" and step.get("lost", 0) < MAX_LOST


def criteria_of(state: State, step: PlannedStep) -> list[str]:
    """Returns the criteria of a step: its own, or the task's if it has none and no step follows it."""
    if step.get("criteria"):
        return step["criteria"]
    is_last = not any(step["name"] in other["depends_on"] for other in state["plan"])
    return list(state.get("acceptance_criteria", [])) if is_last else []


def contract_step(step: PlannedStep) -> dict[str, Any]:
    """Returns a step as messages contain it: without its status, with the comments of people."""
    given = cast(dict[str, Any], step)
    fields = {field: given[field] for field in STEP_FIELDS if given.get(field) is not None}
    fields["description"] = described(step)
    return fields


def described(step: PlannedStep) -> str:
    """Returns the description of a step, with what people answered about it.

    A review gets this text, so the description of a step that it changed may have the answers already.
    """
    text, told, room = step.get("description", ""), "", MAX_ANSWERS
    # The newest answer counts most, and an answer more than the description that it is about.
    for each in reversed(step.get("answers", [])):
        question, said = cut(each["question"], MAX_QUESTION), cut_with_note(each["answer"], MAX_ANSWER)
        answer = f"A person was asked: {question}\nand answered: {said}"
        if answer in text:
            continue
        room -= size_of(answer)
        if room < 0:
            break
        told = f"{answer}\n\n{told}"
    return f"{cut_with_note(text, MAX_DESCRIPTION - size_of(told))}\n\n{told}".strip()


def current_index(plan: list[PlannedStep]) -> int:
    """Returns the index of the first step that is not done."""
    return next((index for index, step in enumerate(plan) if step["status"] != "done"), len(plan))


def find(plan: list[PlannedStep], name: str) -> PlannedStep:
    return next(step for step in plan if step["name"] == name)


def _of_contract(given: Any) -> Any:
    """Returns a step with the fields of the contract only, without its status, which the runner sets."""
    if not isinstance(given, dict):
        return given
    return {field: given[field] for field in STEP_FIELDS if given.get(field) is not None}


def _compact_size(given: Any) -> int:
    """Returns the size of what was given as JSON without spaces, in bytes of UTF-8."""
    return size_of(json.dumps(given, ensure_ascii=False, separators=(",", ":")))


def _planned_step(given: Any) -> PlannedStep:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str) or not given["name"].strip():
        raise PlanError("a step of the plan has no name")
    if has_nul(given):
        raise PlanError(f"step `{without_nul(given['name'])}` holds a NUL character")
    kind: Any = given.get("kind") or ("job" if given.get("script") else "manager")
    if kind not in ("job", "manager"):
        raise PlanError(f"step `{given['name']}` is of kind `{kind}`; there are job and manager")
    if kind == "job" and not given.get("script"):
        raise PlanError(f"step `{given['name']}` is a job without a script")
    step: PlannedStep = {
        "name": given["name"],
        "description": given.get("description") or "",
        "kind": kind,
        "criteria": list(given.get("criteria") or []),
        "depends_on": list(given.get("depends_on") or []),
        "needs_approval": bool(given.get("needs_approval")),
        "status": "pending",
    }
    for field in (
        "script",
        "files",
        "artifacts",
        "outputs",
        "network",
        "seconds",
        "answers",
    ):
        if given.get(field):
            step[field] = given[field]
    # As the gateway counts what it takes, so without the answers of people and without defaults.
    size = _compact_size({field: value for field, value in given.items() if field != "answers"})
    if step["needs_approval"] and size > MAX_APPROVED_BYTES:
        raise PlanError(
            f"step `{step['name']}` needs approval and has {size} bytes as JSON; a person is shown at most "
            f"{MAX_APPROVED_BYTES}"
        )
    return step
