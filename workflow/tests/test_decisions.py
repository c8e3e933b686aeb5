"""Pure: plans, routing, decisions and the state that people see."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
from langgraph.types import Send
from standin import step

from cynode_workflow.decisions import decide, retried
from cynode_workflow.graph import after_decision, after_results
from cynode_workflow.nodes.reading import read_step
from cynode_workflow.plan import (
    PlanError,
    approval_of,
    changed,
    contract_step,
    current_index,
    needs_approval,
    planned,
    read_policy,
    ready,
)
from cynode_workflow.state import MAX_STATE_BYTES, State, StepResult, state_for_people
from cynode_workflow.summary import summarise
from cynode_workflow.words import Answer, read_answer


def state(*steps: dict[str, Any], **fields: Any) -> State:
    base = {
        "task_id": "t",
        "title": "T",
        "description": "",
        "acceptance_criteria": [],
        "policy": read_policy({}),
        "plan": planned(list(steps)),
        "attempts_by_step": {},
        "review_iterations": {},
        "results": {},
        "verification": {},
        "begun": {},
        **fields,
    }
    return cast(State, base)


def after(before: State) -> State:
    return cast(State, {**before, **decide(before)})


def targets(routed: str | list[Send]) -> list[str]:
    return [routed] if isinstance(routed, str) else [f"{send.node} {send.arg['step']}" for send in routed]


def test_waves_follow_dependencies() -> None:
    now = after(state(step("a"), step("b"), step("c", after=["a", "b"])))
    assert targets(after_decision(now)) == ["dispatch_step a", "dispatch_step b"]
    for each in now["plan"][:2]:
        each["status"] = "done"
    assert targets(after_decision(after(now))) == ["dispatch_step c"]
    assert now["attempts_by_step"] == {"a": 1, "b": 1}


def test_failure_comes_before_work_and_questions() -> None:
    now = state(
        step("a"), step("b"), error="broken", question={"kind": "question", "about": "plan", "text": "?"}
    )
    assert after_decision(now) == "mark_failed"
    now["error"] = None
    assert after_decision(now) == "ask_person"


def test_no_plan_is_planned_and_a_done_one_is_finished() -> None:
    now = state(step("a"))
    now["plan"][0]["status"] = "done"
    assert after_decision(after(now)) == "finalize_summary"
    now["plan"] = []
    assert after_decision(after(now)) == "plan_steps"


def test_results_are_reviewed_but_questions_are_not() -> None:
    now = state(
        step("a"),
        step("b"),
        results={"a": {"outcome": "succeeded"}, "b": {"outcome": "failed", "question": "?"}},
    )
    for each in now["plan"]:
        each["status"] = "ended"
    assert targets(after_results(now)) == ["verify_step_result a"]
    now["plan"][0]["status"] = "done"
    assert after_results(now) == "decide_next"


def test_questions_are_asked_one_at_a_time() -> None:
    now = state(step("a"), step("b"))
    for each in now["plan"]:
        each["status"] = "asking"
    now = after(now)
    question = now["question"]
    assert question is not None
    assert question["step"] == "a"
    now["question"] = {**question, "answer": "accept"}
    now = after(now)
    assert now["plan"][0]["status"] == "done"
    assert now["question"] is not None
    assert now["question"]["step"] == "b"


def test_deciding_twice_is_the_same_as_once() -> None:
    """A node that runs again after a kill starts from the same state; it must not depend on more."""
    now = state(
        step("a"),
        step("b"),
        results={"a": {"outcome": "failed"}},
        attempts_by_step={"a": 1},
        verification={"a": {"iteration": 1, "decision": "retry", "reasons": ["no"]}},
    )
    now["plan"][0]["status"] = "ended"
    assert decide(now) == decide(now)


def test_reduced_scope_without_a_step_is_a_question() -> None:
    now = state(
        step("a"),
        results={"a": {"outcome": "failed"}},
        attempts_by_step={"a": 1},
        verification={"a": {"iteration": 1, "decision": "reduce_scope", "reasons": ["too much"]}},
    )
    now["plan"][0]["status"] = "ended"
    now = after(now)
    assert now["question"] is not None
    assert "too much" in now["question"]["text"]


def reviewed(now: State, decision: str, **fields: Any) -> State:
    """A state after the review of an attempt of its one step, which was not good."""
    now["plan"][0]["status"], now["results"] = "ended", {"a": {"outcome": "failed"}}
    iteration = now["review_iterations"].get("a", 0) + 1
    review: Any = {"iteration": iteration, "decision": decision, "reasons": [f"because {decision}"], **fields}
    now["verification"] = {"a": review}
    return after(now)


def test_scope_that_is_reduced_after_the_last_attempt_is_carried_out_once() -> None:
    now = after(state(step("a"), policy=read_policy({"max_attempts": 2, "max_reviews": 2})))
    now = reviewed(now, "retry")
    smaller = step("a", script="echo half")
    now = reviewed(now, "reduce_scope", step=smaller)
    assert targets(after_decision(now)) == ["dispatch_step a"]
    assert (now["plan"][0]["script"], now["attempts_by_step"]) == ("echo half", {"a": 3})
    for decision in ("retry", "reduce_scope"):
        ended = reviewed(copy.deepcopy(now), decision, step=step("a", script="echo a quarter"))
        assert ended["error"] == (
            "step “a” was tried 3 times without success, the last time with a smaller scope. "
            f"Last: because {decision}"
        )


def test_approval_is_of_one_attempt_of_a_step_as_it_is() -> None:
    (risky,) = planned([step("a", needs_approval=True)])
    risky["approved"] = approval_of(risky, 1)
    assert not needs_approval(risky, 1)
    assert needs_approval(risky, 2)
    for change in ({"script": "rm"}, {"network": ["example.org"]}, {"answers": [{"answer": "all"}]}):
        assert needs_approval(cast(Any, {**risky, **change}), 1), change


def test_plan_approves_nothing() -> None:
    (forged,) = planned([step("a", needs_approval=True)])
    given = {**forged, "approved": approval_of(forged, 1), "status": "done", "answers": ["x"]}
    (forged,) = planned([given])
    assert needs_approval(forged, 1)
    assert (forged["status"], "answers" in forged) == ("pending", False)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([], "the plan has no steps"),
        (None, "the plan has no steps"),
        ([step("a"), step("a")], "two steps named `a`"),
        ([step("a", after=["b"])], "depends on `b`, which the plan does not have"),
        ([step("a", after=["a"])], "in a circle"),
        ([{"name": "a", "kind": "job"}], "a job without a script"),
        ([{"name": "a", "kind": "robot"}], "there are job and manager"),
        ([{"kind": "job"}], "has no name"),
        ([step(str(number)) for number in range(51)], "the limit is 50"),
        ([step("a\0b")], "step `a\ufffdb` holds a NUL character"),
        ([step("a", script="true\0")], "step `a` holds a NUL character"),
    ],
)
def test_plan_that_cannot_be_run_is_refused(steps: Any, why: str) -> None:
    with pytest.raises(PlanError, match=why):
        planned(steps)


def test_changed_step_keeps_its_place_its_criteria_and_its_need_of_approval() -> None:
    (old,) = planned([step("a", needs_approval=True, criteria=["good"], network=["example.org"])])
    old["approved"] = approval_of(old, 1)
    new = changed(old, {"name": "b", "kind": "job", "script": "true", "depends_on": ["x"]})
    assert (new["name"], new["depends_on"], new["needs_approval"]) == ("a", [], True)
    assert "approved" not in new
    assert new["criteria"] == ["good"]
    # What the changed step does not name, it does not have.
    assert "network" not in new


def test_message_of_a_step_has_the_fields_of_the_contract_alone() -> None:
    (planned_step,) = planned([step("a", criteria=["good"])])
    planned_step["answers"] = [{"question": "Q", "answer": "A"}]
    sent = contract_step(planned_step)
    assert set(sent) <= {"name", "description", "kind", "script", "criteria", "depends_on", "needs_approval"}
    assert sent["description"] == "Do a.\n\nA person was asked: Q\nand answered: A"


def test_changed_step_has_the_answers_of_people_once() -> None:
    (old,) = planned([step("a")])
    old["answers"] = [{"question": "Q", "answer": "A"}]
    seen_by_the_review = contract_step(old)
    new = changed(old, {**seen_by_the_review, "script": "other"})
    assert contract_step(new)["description"] == "Do a.\n\nA person was asked: Q\nand answered: A"
    # A manager that adds to the description, and a person who answers again.
    new = changed(
        old, {**seen_by_the_review, "description": seen_by_the_review["description"] + "\nMend it."}
    )
    new["answers"] = [*new["answers"], {"question": "Q2", "answer": "A2"}]
    assert contract_step(new)["description"] == (
        "Do a.\n\nA person was asked: Q\nand answered: A\nMend it."
        "\n\nA person was asked: Q2\nand answered: A2"
    )
    # One that writes a description of its own still has what the person said.
    new = changed(old, {**seen_by_the_review, "description": "Do it otherwise."})
    assert contract_step(new)["description"] == ("Do it otherwise.\n\nA person was asked: Q\nand answered: A")


def test_answers_of_people_are_told_however_long_the_description_is() -> None:
    (long,) = planned([step("a", description="é" * 8_000)])
    long["answers"] = [{"question": "Q" * 5_000, "answer": "use the blue one"}]
    text = contract_step(long)["description"]
    assert text.endswith("and answered: use the blue one")
    assert "more bytes)" in text
    assert len(text.encode()) <= 16 * 1024
    # Of very many answers, the last ones.
    long["answers"] = [{"question": "Q", "answer": f"{number} " + "x" * 3_000} for number in range(9)]
    text = contract_step(long)["description"]
    assert "and answered: 8 x" in text
    assert "and answered: 2 x" not in text
    assert len(text.encode()) <= 16 * 1024


def test_description_of_a_step_is_whole() -> None:
    (long,) = planned([step("a", description="d" * 12_000 + " never delete anything")])
    assert contract_step(long)["description"].endswith("never delete anything")


def test_attempt_whose_node_was_lost_does_not_count() -> None:
    lost: StepResult = {"outcome": "failed", "end": {"how": "node_lost"}, "error": "the node was lost"}
    now = after(state(step("a"), policy=read_policy({"max_attempts": 1, "max_reviews": 1})))
    for number in range(1, 4):
        now["plan"][0]["status"], now["results"] = "ended", {"a": lost}
        now["verification"] = {"a": {"iteration": 1, "decision": "retry", "reasons": ["The node was lost."]}}
        now = after(now)
        assert targets(after_decision(now)) == ["dispatch_step a"]
        assert (now["attempts_by_step"], now["review_iterations"]) == ({"a": 1}, {"a": 0})
        assert now["plan"][0]["lost"] == number
        assert "feedback" not in now["plan"][0]
    # A step that loses every node may be what kills them.
    now["plan"][0]["status"] = "ended"
    now = after(now)
    assert targets(after_decision(now)) == ["mark_failed"]


def test_lost_nodes_are_counted_in_a_row() -> None:
    now = after(state(step("a")))
    now["plan"][0]["status"], now["plan"][0]["lost"] = "ended", 2
    now["results"] = {"a": {"outcome": "failed", "end": {"how": "exited", "code": 1}}}
    now["verification"] = {"a": {"iteration": 1, "decision": "retry", "reasons": ["It failed."]}}
    now = after(now)
    assert "lost" not in now["plan"][0]
    assert (now["attempts_by_step"], now["review_iterations"]) == ({"a": 2}, {"a": 1})


def test_retry_begins_again_at_what_is_not_done() -> None:
    now = state(
        step("a"),
        step("b"),
        attempts_by_step={"a": 1, "b": 3},
        error="x",
        outcome={"kind": "failed", "run": 1},
    )
    now["plan"][0]["status"], now["plan"][1]["status"] = "done", "failed"
    begun = retried(now)
    assert [each["status"] for each in begun["plan"]] == ["done", "pending"]
    assert begun["attempts_by_step"] == {"a": 1, "b": 0}
    assert begun["error"] is begun["outcome"] is None
    assert current_index(begun["plan"]) == 1
    assert [each["name"] for each in ready(begun["plan"])] == ["b"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Yes!", Answer.YES),
        (" ok ", Answer.YES),
        ("NO", Answer.NO),
        ("Try  again.", Answer.RETRY),
        ("skip", Answer.ACCEPT),
        ("give up", Answer.STOP),
        ("yes, but with a header", Answer.TEXT),
        ("", Answer.TEXT),
    ],
)
def test_short_answers_are_understood(text: str, answer: Answer) -> None:
    assert read_answer(text) is answer


def test_policy_has_defaults() -> None:
    assert read_policy(None) == {"max_attempts": 3, "max_reviews": 3, "step_seconds": 600}
    assert read_policy({"max_attempts": 1, "step_seconds": None})["max_attempts"] == 1


def test_state_for_people_fits() -> None:
    large = [{"path": "f", "text": "x" * 300_000}]
    values = {"task_id": "t", "plan": [step("a", files=large), step("b", files=large)], "events": [1]}
    shown = state_for_people(values)
    assert shown is not None
    assert len(str(shown)) < MAX_STATE_BYTES
    assert shown["plan"][0]["files"] == [{"path": "f", "text": "…"}]
    assert "events" not in shown
    assert state_for_people({}) is None
    results = {str(number): {"answer": "y" * 8000} for number in range(70)}
    shown = state_for_people({"task_id": "t", "results": results})
    assert shown == {"task_id": "t", "plan": [], "left_out": ["results"]}


def test_summary_tells_what_each_step_left() -> None:
    now = state(
        step("a"),
        step("b"),
        attempts_by_step={"a": 2, "b": 1},
        results={
            "a": {"outcome": "succeeded", "output_tail": "x\nlast\n", "artifacts": ["f"]},
            "b": {"outcome": "failed"},
        },
    )
    assert summarise(now) == (
        "T: done in 2 steps.\n- a: last (files: f) (attempt 2)\n- b: done (accepted although it failed)"
    )


def test_step_is_read_by_its_name_or_as_releases_before_sent_it() -> None:
    """A workflow may go on from their checkpoint."""
    now = state(step("a"), step("b"))
    config: Any = {"configurable": {"__pregel_read": lambda _: now}}
    for sent in ("b", step("b", script="echo as it was then")):
        found, read = read_step(cast(Any, {"step": sent, "state": {"title": "T"}}), config)
        assert found is now["plan"][1]
        assert read is now
