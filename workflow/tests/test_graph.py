"""The graph against the tools in memory."""

from __future__ import annotations

import asyncio
import itertools
import json
import pathlib
import uuid
from typing import Any

import pytest
from driving import work, work_until_settled
from langgraph.graph import END, START
from serving import Server
from standin import Effect, Json, StandIn, completion, decision, job, scripted, step

from cynode_workflow.graph import build_graph

DECLARED = pathlib.Path(__file__).parents[1] / "graph.json"
FAILED_ONCE = [job(1, tail="no such file"), job(0)]


def names(rows: list[Json], key: str = "node") -> list[str]:
    return [row[key] for row in rows]


def test_graph_is_the_one_that_is_declared() -> None:
    """The console draws what is declared."""
    declared = json.loads(DECLARED.read_text(encoding="utf-8"))
    drawn = build_graph().compile().get_graph()
    assert set(drawn.nodes) - {START, END} == set(declared["nodes"])
    edges = [(edge.source, edge.target) for edge in drawn.edges]
    assert len(edges) == len(set(edges))
    assert set(edges) == {
        (START, declared["start"]),
        *((source, target) for source, target in declared["edges"]),
        *((node, END) for node in declared["ends"]),
    }


async def test_runner_whose_clock_is_behind_repeats_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its checkpoints have lower ids than those of the runner before. The order of the gateway counts."""
    standin = StandIn(scripted({}))
    steps = [
        step("a"),
        step("b", after=["a"], needs_approval=True),
        step("c", after=["b"], needs_approval=True),
    ]
    task = standin.start(steps)
    await work_until_settled(standin, task)
    numbers = itertools.count(1)
    monkeypatch.setattr("langgraph.pregel._checkpoint.uuid6", lambda **_: uuid.UUID(int=next(numbers)))
    standin.resume(task, "yes")
    await work_until_settled(standin, task, ["yes"])
    assert next(numbers) > 5
    assert standin.workflows[task].status == "done"
    assert [standin.effects(task).count(("job", name)) for name in ("a", "b", "c")] == [1, 1, 1]


async def test_planned_task_is_run_and_done() -> None:
    plan = completion(steps=[step("fetch"), step("convert", after=["fetch"], outputs=["out.json"])])
    script = {("plan", None): [plan], ("job", "convert"): [job(files=["out.json"], tail="wrote 3 rows\n")]}
    standin = StandIn(scripted(script))
    task = standin.start(criteria=["the file is JSON"])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.status == "done"
    assert row.summary is not None
    assert "- convert: wrote 3 rows (files: out.json)" in row.summary
    assert standin.effects(task) == [
        ("job", "convert"),
        ("job", "fetch"),
        ("plan", ""),
        ("review", "convert"),
        ("review", "fetch"),
    ]
    handed = next(effect for effect in row.effects.values() if effect.kind == "plan").arguments
    assert handed["goal"] == "Convert the file\n\nFrom CSV to JSON."
    assert handed["acceptance_criteria"] == ["the file is JSON"]
    assert row.state is not None
    assert [each["status"] for each in row.state["plan"]] == ["done", "done"]
    assert row.state["current_step_index"] == 2
    assert (task, 1) in standin.acked


async def test_task_criteria_hold_for_steps_that_nothing_follows() -> None:
    standin = StandIn(scripted({}))
    task = standin.start(
        [step("a"), step("b", after=["a"]), step("c", after=["a"], criteria=["own"])], criteria=["whole"]
    )
    await work_until_settled(standin, task)
    reviews = {
        each.step: (each.arguments["criteria"], each.arguments["step"]["criteria"])
        for each in standin.workflows[task].effects.values()
        if each.kind == "review"
    }
    assert reviews == {"a": ([], []), "b": (["whole"], []), "c": ([], ["own"])}


async def test_independent_steps_run_at_the_same_time() -> None:
    running: set[str | None] = set()

    def answer(effect: Effect, number: int) -> Json | None:
        if effect.kind != "job":
            return decision("pass")
        running.add(effect.step)
        # None ends before all have begun.
        return job() if effect.step == "last" or {"a", "b", "c"} <= running else None

    standin = StandIn(answer)
    task = standin.start([step("a"), step("b"), step("c"), step("last", after=["a", "b", "c"])])
    await asyncio.wait_for(work_until_settled(standin, task), 20)
    assert standin.workflows[task].status == "done"


async def test_step_that_fails_is_tried_again() -> None:
    script = {("job", "a"): FAILED_ONCE, ("review", "a"): [decision("retry"), decision("pass")]}
    standin = StandIn(scripted(script))
    task = standin.start([step("a")])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.status == "done"
    reviews = [each.arguments for each in row.effects.values() if each.kind == "review"]
    assert [(each["iteration"], each["result"]["outcome"]) for each in reviews] == [
        (1, "failed"),
        (2, "succeeded"),
    ]
    assert reviews[0]["result"]["exit_code"] == 1
    assert row.state is not None
    assert row.state["attempts_by_step"] == {"a": 2}
    assert [each["outcome"] for each in row.events if each.get("detail", "").startswith("attempt")] == [
        "started",
        "retried",
    ]


async def test_attempts_are_bounded_and_the_reason_is_told() -> None:
    standin = StandIn(
        scripted({("job", "a"): [job(2)], ("review", "a"): [decision("retry", reasons=["exit code 2"])]})
    )
    task = standin.start([step("a"), step("b", after=["a"])], max_attempts=2)
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.status == "failed"
    assert row.error == "step “a” was tried 2 times without success. Last: exit code 2"
    assert standin.effects(task).count(("job", "a")) == 2
    assert (task, 1) in standin.acked


async def test_other_steps_end_before_a_failure_is_decided() -> None:
    gate = {"open": False}

    def answer(effect: Effect, number: int) -> Json | None:
        if effect.kind == "review":
            assert gate["open"], "a review began while a step was running"
            return decision("retry" if effect.step == "bad" else "pass")
        if effect.step == "bad":
            return job(1)
        return job() if gate["open"] else None

    standin = StandIn(answer)
    task = standin.start([step("bad"), step("slow"), step("next", after=["slow"])], max_attempts=1)
    working = asyncio.ensure_future(work_until_settled(standin, task))
    while ("workflow.job" not in [tool for tool, _ in standin.calls]) or len(
        standin.workflows[task].effects
    ) < 2:
        await asyncio.sleep(0.01)
    gate["open"] = True
    standin.wake()
    await working
    assert standin.workflows[task].status == "failed"
    assert standin.effects(task) == [("job", "bad"), ("job", "slow"), ("review", "bad"), ("review", "slow")]


async def test_revised_step_replaces_the_first_and_minor_issues_are_not_shown_to_the_fixer() -> None:
    issues = [
        {"severity": "major", "problem": "wrong header", "fix": "use id"},
        {"severity": "minor", "problem": "spelling", "fix": "spell"},
    ]
    revised = {**step("other-name", kind="manager"), "description": "Do it better."}
    script = {
        ("review", "a"): [
            decision("revise", step=revised, issues=issues),
            decision("pass", issues=issues[1:]),
        ]
    }
    standin = StandIn(scripted(script))
    task = standin.start([step("a", kind="manager")])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    chats = [each.arguments["messages"][0]["content"] for each in row.effects.values() if each.kind == "chat"]
    assert "Do it better." in chats[1]
    assert "wrong header" in chats[1]
    assert "spelling" not in chats[1]
    assert row.state is not None
    # People see them.
    assert row.state["verification"]["a"]["issues"] == issues[1:]


async def test_job_without_a_node_is_reviewed_with_the_reason() -> None:
    why = "no node took it within 60 s: all nodes are cordoned"
    waited = {"status": "failed", "end": {"how": "engine_failed", "why": why}}
    lost = {"status": "failed", "end": {"how": "node_lost", "why": "node n-1 was removed"}}
    script = {("job", "a"): [waited, lost, job(0)], ("review", "a"): [decision("retry"), decision("retry")]}
    script[("review", "a")].append(decision("pass"))
    standin = StandIn(scripted(script))
    task = standin.start([step("a")], max_attempts=2, max_reviews=2)
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.status == "done"
    reviews = [each.arguments for each in row.effects.values() if each.kind == "review"]
    assert reviews[0]["result"]["error"] == f"no process could be started for it: {why}"
    assert reviews[1]["result"]["error"] == "the node that ran it was lost: node n-1 was removed"
    # The attempt whose node was lost does not count, and its review is not the last.
    counted = [(each["iteration"], each["max_iterations"]) for each in reviews]
    assert counted == [(1, 2), (2, 3), (2, 2)]
    assert row.state is not None
    assert row.state["attempts_by_step"] == {"a": 2}


async def test_escalation_waits_for_a_person_and_the_answer_goes_to_the_manager() -> None:
    script = {
        ("job", "a"): FAILED_ONCE,
        ("review", "a"): [
            decision("escalate", question="Which file?"),
            decision("revise", step=step("a", script="cat b.csv")),
            decision("pass"),
        ],
    }
    standin = StandIn(scripted(script))
    task = standin.start([step("a")])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    asked = "Step “a” needs you: Which file?\nAnswer retry, accept or stop, or say what should be done."
    assert (row.status, row.waiting_for, row.question) == ("waiting", "question", asked)
    assert (task, 1) in standin.acked
    standin.resume(task, "Use b.csv")
    await work_until_settled(standin, task)
    assert row.status == "done"
    reviews = [each.arguments for each in row.effects.values() if each.kind == "review"]
    assert "Use b.csv" in reviews[1]["step"]["description"]
    assert [each["iteration"] for each in reviews] == [1, 1, 2]
    jobs = [each.arguments["script"] for each in row.effects.values() if each.kind == "job"]
    assert jobs == ["echo a", "cat b.csv"]


async def test_escalation_is_accepted_stopped_or_tried_again_by_a_word() -> None:
    for word, status, jobs in (("accept", "done", 1), ("Stop.", "failed", 1), ("try again", "done", 2)):
        script = {("job", "a"): FAILED_ONCE, ("review", "a"): [decision("escalate"), decision("pass")]}
        standin = StandIn(scripted(script))
        task = standin.start([step("a")])
        await work_until_settled(standin, task, [word])
        assert standin.workflows[task].status == status, word
        assert standin.effects(task).count(("job", "a")) == jobs, word


async def test_yes_and_no_to_an_escalated_question_go_to_the_manager() -> None:
    for word in ("yes", "no"):
        asks = decision("escalate", question="May the backup be overwritten?")
        script = {("job", "a"): FAILED_ONCE, ("review", "a"): [asks, decision("pass")]}
        standin = StandIn(scripted(script))
        task = standin.start([step("a")])
        await work_until_settled(standin, task, [word])
        row = standin.workflows[task]
        assert row.status == "done", word
        assert standin.effects(task).count(("job", "a")) == 1, word
        reviews = [each.arguments for each in row.effects.values() if each.kind == "review"]
        assert f"and answered: {word}" in reviews[1]["step"]["description"]


async def test_approval_is_asked_when_nothing_else_can_run() -> None:
    standin = StandIn(scripted({}))
    task = standin.start([step("risky", needs_approval=True), step("free"), step("more", after=["free"])])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert (row.status, row.waiting_for) == ("waiting", "approval")
    assert row.question is not None
    assert "echo risky" in row.question
    assert ("job", "risky") not in standin.effects(task)
    assert ("job", "more") in standin.effects(task)
    standin.resume(task, "OK")
    await work_until_settled(standin, task)
    assert row.status == "done"


async def test_step_that_is_not_approved_fails_the_workflow() -> None:
    standin = StandIn(scripted({}))
    task = standin.start([step("risky", needs_approval=True)])
    await work_until_settled(standin, task, ["no"])
    assert standin.workflows[task].error == "step “risky” was not approved"
    assert standin.effects(task) == []


async def test_change_that_a_person_wants_is_made_and_approved_again() -> None:
    changed = step("risky", script="echo --dry-run")
    standin = StandIn(scripted({("review", "risky"): [decision("revise", step=changed), decision("pass")]}))
    task = standin.start([step("risky", needs_approval=True)])
    await work_until_settled(standin, task, ["only as a dry run"])
    row = standin.workflows[task]
    assert row.waiting_for == "approval"
    assert row.question is not None
    assert "--dry-run" in row.question
    standin.resume(task, "yes")
    await work_until_settled(standin, task)
    assert row.status == "done"
    assert [each.arguments["script"] for each in row.effects.values() if each.kind == "job"] == [
        "echo --dry-run"
    ]


async def test_question_of_the_planner_is_asked_and_answered() -> None:
    asked = {"status": "needs_clarification", "message": {"content": "Which delimiter?"}}
    standin = StandIn(scripted({("plan", None): [asked, completion(steps=[step("a")])]}))
    task = standin.start()
    await work_until_settled(standin, task)
    assert standin.workflows[task].question == "Which delimiter?"
    standin.resume(task, "semicolon")
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.status == "done"
    plans = [each.arguments for each in row.effects.values() if each.kind == "plan"]
    assert "semicolon" in plans[1]["constraints"][-1]


async def test_question_of_a_managers_step_is_asked_and_answered() -> None:
    asked = {"status": "needs_clarification", "message": {"content": "Whom should I write to?"}}
    standin = StandIn(scripted({("chat", "mail"): [asked, completion("sent")]}))
    task = standin.start([step("mail", kind="manager")])
    await work_until_settled(standin, task, ["to Ada"])
    row = standin.workflows[task]
    assert row.status == "done"
    chats = [each.arguments["messages"][0]["content"] for each in row.effects.values() if each.kind == "chat"]
    assert "to Ada" in chats[1]
    assert standin.effects(task).count(("review", "mail")) == 1


async def test_plan_that_cannot_be_run_is_asked_for_again_and_then_fails() -> None:
    circle = completion(steps=[step("a", after=["b"]), step("b", after=["a"])])
    standin = StandIn(scripted({("plan", None): [circle, completion(steps=[step("a")])]}))
    task = standin.start()
    await work_until_settled(standin, task)
    assert standin.workflows[task].status == "done"
    standin = StandIn(scripted({("plan", None): [circle]}))
    task = standin.start()
    await work_until_settled(standin, task)
    assert standin.workflows[task].error == (
        "the task could not be planned: the steps a, b depend on each other in a circle"
    )


async def test_manager_that_fails_for_a_while_is_asked_again() -> None:
    failed = {
        "status": "failed",
        "error": {"code": "inference_unavailable", "message": "no model", "retryable": True},
    }
    standin = StandIn(scripted({("review", "a"): [failed, decision("pass")]}))
    task = standin.start([step("a")])
    await work_until_settled(standin, task)
    assert standin.workflows[task].status == "done"


async def test_result_that_cannot_be_reviewed_is_shown_to_a_person() -> None:
    failed = {
        "status": "failed",
        "error": {"code": "budget_exceeded", "message": "no budget", "retryable": False},
    }
    standin = StandIn(scripted({("review", "a"): [failed]}))
    task = standin.start([step("a")])
    await work_until_settled(standin, task, ["accept"])
    assert standin.workflows[task].status == "done"


async def test_failed_workflow_that_is_retried_begins_at_the_failed_step() -> None:
    script = {("job", "b"): [job(1), job(0)], ("review", "b"): [decision("retry"), decision("pass")]}
    standin = StandIn(scripted(script))
    task = standin.start([step("a"), step("b", after=["a"])], max_attempts=1)
    await work_until_settled(standin, task)
    assert standin.workflows[task].status == "failed"
    standin.retry(task)
    await work_until_settled(standin, task)
    assert standin.workflows[task].status == "done"
    assert standin.effects(task).count(("job", "a")) == 1
    assert standin.effects(task).count(("job", "b")) == 2


async def test_cancelled_workflow_that_is_retried_runs_the_cancelled_step_again() -> None:
    def answer(effect: Effect, number: int) -> Json | None:
        return decision("pass") if effect.kind == "review" else (job() if number > 1 else None)

    standin = StandIn(answer)
    task = standin.start([step("a")])
    with Server(standin) as server:
        working = asyncio.ensure_future(work(server.url, task, 1))
        while not standin.workflows[task].effects:
            await asyncio.sleep(0.01)
        standin.cancel(task)
        # Fenced: it needs no cooperation, and settles nothing.
        await asyncio.wait_for(working, 5)
        assert standin.acked == set()
        standin.retry(task)
        await work(server.url, task, 2)
    row = standin.workflows[task]
    assert row.status == "done"
    assert row.state is not None
    assert row.state["attempts_by_step"] == {"a": 1}


async def test_step_that_was_cancelled_while_it_was_begun_is_begun_anew_by_a_retry() -> None:
    def answer(effect: Effect, number: int) -> Json | None:
        if number == 1 and effect.kind != "review":
            standin.cancel(task)
            return {"status": "canceled"} if effect.kind == "job" else {"status": "cancelled"}
        return {"job": job(), "chat": completion("done"), "review": decision("pass")}[effect.kind]

    for kind in ("job", "manager"):
        standin = StandIn(answer)
        task = standin.start([step("a", kind=kind)])
        await work_until_settled(standin, task)
        assert standin.workflows[task].status == "cancelled"
        standin.retry(task)
        await work_until_settled(standin, task)
        row = standin.workflows[task]
        assert row.status == "done"
        assert row.state is not None
        assert row.state["attempts_by_step"] == {"a": 1}
        assert len(row.effects) == 3


async def test_paused_workflow_joins_its_job_when_it_is_resumed() -> None:
    ended = {"job": False}

    def answer(effect: Effect, number: int) -> Json | None:
        return decision("pass") if effect.kind == "review" else (job() if ended["job"] else None)

    standin = StandIn(answer)
    task = standin.start([step("a")])
    with Server(standin) as server:
        working = asyncio.ensure_future(work(server.url, task, 1))
        while not standin.workflows[task].effects:
            await asyncio.sleep(0.01)
        standin.pause(task)
        await asyncio.wait_for(working, 5)
        ended["job"] = True
        standin.resume(task, None)
        await work(server.url, task, 2)
    assert standin.workflows[task].status == "done"
    assert standin.effects(task) == [("job", "a"), ("review", "a")]


async def test_step_that_the_gateway_refuses_is_shown_to_the_manager() -> None:
    class Strict(StandIn):
        def _workflow_job(self, *arguments: Any, **named: Any) -> Json:
            from standin import Refused

            if named["run"].get("network"):
                raise Refused("bad_host", code="invalid_arguments")
            return super()._workflow_job(*arguments, **named)

    script = {
        ("review", "a"): [
            decision("revise", step=step("a", network=[], script="echo offline")),
            decision("pass"),
        ]
    }
    standin = Strict(scripted(script))
    task = standin.start([step("a", network=["127.1"])])
    await work_until_settled(standin, task)
    reviews = [each.arguments for each in standin.workflows[task].effects.values() if each.kind == "review"]
    assert "could not be started" in reviews[0]["result"]["error"]


async def test_all_calls_of_a_run_are_one_trace() -> None:
    standin = StandIn(scripted({}))
    task = standin.start([step("a")])
    with Server(standin) as server:
        await work(server.url, task, 1)
        parents = [each.split("-") for each in server.traceparents if each]
    assert len(parents) > 10
    assert len({parent[1] for parent in parents}) == 1
    assert len({parent[2] for parent in parents}) == len(parents)


async def test_manager_that_does_not_answer_is_given_up() -> None:
    """Its handoff is ended before the step is tried again, so that it does nothing at the same time."""

    def answer(effect: Effect, number: int) -> Json | None:
        if effect.kind == "chat":
            return None if number == 1 else completion("written")
        return decision("retry") if number == 1 else decision("pass")

    standin = StandIn(answer)
    task = standin.start([step("a", kind="manager", seconds=1)])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.status == "done"
    chats = [effect for effect in row.effects.values() if effect.kind == "chat"]
    assert [each.answer["status"] for each in chats if each.answer] == ["failed", "completed"]
    calls = [arguments for tool, arguments in standin.calls if tool == "workflow.handoff"]
    gave_up = next(number for number, arguments in enumerate(calls) if arguments.get("give_up"))
    began_again = next(number for number, each in enumerate(calls) if each["key"] == chats[1].key)
    assert gave_up < began_again
