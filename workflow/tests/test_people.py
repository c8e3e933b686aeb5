"""What people are shown, and what follows from their answers."""

from __future__ import annotations

from collections.abc import Callable

from driving import work_until_settled
from standin import Effect, Json, StandIn, completion, decision, job, scripted, step


async def test_approval_shows_all_that_a_step_would_do() -> None:
    risky = step(
        "risky",
        needs_approval=True,
        description="d" * 5_000,
        script="rm -r everything\n" + "x" * 9_000,
        network=["example.org:443"],
        files=[{"path": "list.txt", "text": "a"}],
        outputs=["out.txt"],
    )
    standin = StandIn(scripted({}))
    task = standin.start([risky])
    await work_until_settled(standin, task)
    question = standin.workflows[task].question or ""
    for part in ("rm -r everything", "more bytes", "example.org:443", "list.txt", "out.txt"):
        assert part in question
    assert question.endswith("Answer yes or no, or say what to change first.")


async def test_approval_fits_in_every_script() -> None:
    risky = step("risky", needs_approval=True, description="🦓" * 3_000, script="🐘" * 5_000)
    standin = StandIn(scripted({}))
    task = standin.start([risky])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert (row.status, row.waiting_for) == ("waiting", "approval")
    assert "🐘" in (row.question or "")


async def test_outcome_that_the_gateway_refuses_ends_the_workflow_with_the_reason() -> None:
    standin = StandIn(scripted({}))
    standin.max_text_bytes = 150
    task = standin.start([step("risky", needs_approval=True, description="d" * 200)])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.status == "failed"
    assert row.error == "its outcome “waiting” was refused: refused: too long"


async def test_each_attempt_is_approved_for_itself() -> None:
    script = {
        ("job", "risky"): [job(1), job(0)],
        ("review", "risky"): [decision("retry"), decision("pass")],
    }
    standin = StandIn(scripted(script))
    task = standin.start([step("risky", needs_approval=True)])
    await work_until_settled(standin, task, ["yes"])
    row = standin.workflows[task]
    assert row.waiting_for == "approval"
    assert "attempt 2" in (row.question or "")
    assert standin.effects(task).count(("job", "risky")) == 1
    standin.resume(task, "yes")
    await work_until_settled(standin, task)
    assert row.status == "done"


async def test_attempt_after_the_question_of_a_manager_is_approved_anew() -> None:
    """What the person answers changes what the step does, so the approval of before does not let it run."""
    asked: Json = {"status": "needs_clarification", "message": {"content": "Delete the backups, too?"}}
    standin = StandIn(scripted({("chat", "risky"): [asked, completion("deleted")]}))
    task = standin.start([step("risky", kind="manager", needs_approval=True)])
    await work_until_settled(standin, task, ["yes", "all but the newest"])
    row = standin.workflows[task]
    assert (row.status, row.waiting_for) == ("waiting", "approval")
    assert standin.effects(task) == [("chat", "risky")]
    standin.resume(task, "yes")
    await work_until_settled(standin, task)
    assert row.status == "done"
    assert standin.effects(task).count(("chat", "risky")) == 2


async def test_texts_with_a_nul_do_not_keep_a_workflow_from_its_end() -> None:
    """PostgreSQL stores none. Managers and jobs write what they like."""
    asked: Json = {"status": "needs_clarification", "message": {"content": "Which\0one?"}}
    script = {("chat", "a"): [asked, completion("first\0line")], ("job", "b"): [job(1, tail="x\0y")]}
    script[("review", "b")] = [decision("escalate", question="Is\0it good?")]
    standin = StandIn(scripted(script))
    task = standin.start([step("a", kind="manager"), step("b", after=["a"])], title="All\0of it")
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert row.question == "Step “a”: Which\ufffdone?"
    standin.resume(task, "this one")
    await work_until_settled(standin, task)
    assert row.waiting_for == "question"
    assert "Is\ufffdit good?" in (row.question or "")
    standin.resume(task, "accept")
    await work_until_settled(standin, task)
    assert row.status == "done"
    assert "first\ufffdline" in (row.summary or "")
    assert "\0" not in str(row.state)
    assert "\\x00" not in repr(row.events)


async def test_step_that_should_be_changed_first_is_not_passed_without_a_run() -> None:
    standin = StandIn(scripted({("review", "risky"): [decision("pass"), decision("pass")]}))
    task = standin.start([step("risky", needs_approval=True)])
    await work_until_settled(standin, task, ["only as a dry run"])
    row = standin.workflows[task]
    assert row.waiting_for == "approval"
    assert "The manager left the step as it is: because pass" in (row.question or "")
    assert ("job", "risky") not in standin.effects(task)
    standin.resume(task, "yes")
    await work_until_settled(standin, task)
    assert row.status == "done"
    assert standin.effects(task).count(("job", "risky")) == 1


async def test_every_word_answers_the_question_of_a_manager() -> None:
    asked: Json = {"status": "needs_clarification", "message": {"content": "At the start or the end?"}}
    standin = StandIn(scripted({("chat", "a"): [asked, completion("written")]}))
    task = standin.start([step("a", kind="manager")])
    await work_until_settled(standin, task, ["end"])
    row = standin.workflows[task]
    assert row.status == "done"
    told = [
        effect.arguments["messages"][0]["content"] for effect in row.effects.values() if effect.kind == "chat"
    ]
    assert "and answered: end" in told[1]


async def test_job_that_a_person_cancelled_is_not_run_again_unasked() -> None:
    cancelled = {"status": "canceled", "end": {"how": "cancelled"}}
    standin = StandIn(scripted({("job", "a"): [cancelled, job(0)]}))
    task = standin.start([step("a")])
    await work_until_settled(standin, task)
    row = standin.workflows[task]
    assert (row.status, row.waiting_for) == ("waiting", "question")
    assert "its job was cancelled" in (row.question or "")
    assert standin.effects(task) == [("job", "a")]
    standin.resume(task, "retry")
    await work_until_settled(standin, task)
    assert row.status == "done"


async def test_wide_plan_with_long_outputs_is_done() -> None:
    """Steps that run at the same time are not each stored with the results of all others."""
    first = [f"a{number}" for number in range(25)]
    steps = [step(name) for name in first] + [step(f"b{number}", after=first) for number in range(25)]
    script = {("job", name): [job(0, tail="x" * 4_096)] for name in first}
    standin = StandIn(scripted(script))
    task = standin.start(steps)
    await work_until_settled(standin, task)
    assert standin.workflows[task].status == "done"
    puts = [arguments for tool, arguments in standin.calls if tool == "workflow.checkpoint.put"]
    assert max(len(put["data"]) for put in puts) < 1024 * 1024


def _as_workers_decide(decided: Json) -> Callable[[Effect, int], Json | None]:
    """Answers reviews with the rule of the workers: the last one decides neither `revise` nor `retry`."""

    def answer(effect: Effect, number: int) -> Json | None:
        if effect.kind != "review":
            return job(0)
        is_last = effect.arguments["iteration"] >= effect.arguments["max_iterations"]
        if effect.arguments["result"]["outcome"] == "succeeded":
            return decision("pass")
        return decision("escalate") if is_last else decided

    return answer


async def test_step_is_changed_before_its_approval_whatever_reviews_it_has() -> None:
    changed = {**step("risky"), "script": "echo changed"}
    standin = StandIn(_as_workers_decide(decision("revise", step=changed)))
    task = standin.start([step("risky", needs_approval=True)], max_reviews=1)
    await work_until_settled(standin, task, ["echo changed, please"])
    row = standin.workflows[task]
    assert row.waiting_for == "approval"
    assert "echo changed" in (row.question or "")
    standin.resume(task, "and once more")
    await work_until_settled(standin, task, ["yes"])
    assert row.status == "done"
    ran = [each.arguments["script"] for each in row.effects.values() if each.kind == "job"]
    assert ran == ["echo changed"]
    # The review of the result is the first that counts.
    reviews = [each.arguments for each in row.effects.values() if each.kind == "review"]
    assert [each["max_iterations"] for each in reviews] == [2, 2, 1]


async def test_step_that_never_ran_is_not_accepted_as_done() -> None:
    standin = StandIn(_as_workers_decide(decision("escalate", question="Changed to what?")))
    task = standin.start([step("risky", needs_approval=True)])
    await work_until_settled(standin, task, ["safer, please"])
    row = standin.workflows[task]
    assert row.waiting_for == "question"
    assert "Answer retry or stop, or say" in (row.question or "")
    standin.resume(task, "accept")
    await work_until_settled(standin, task)
    assert (row.status, row.waiting_for) == ("waiting", "question")
    assert "It has not run, so there is nothing to accept." in (row.question or "")
    standin.resume(task, "retry")
    await work_until_settled(standin, task)
    assert row.waiting_for == "approval"
    standin.resume(task, "yes")
    await work_until_settled(standin, task)
    assert row.status == "done"
    assert "accepted" not in (row.summary or "")
    assert standin.effects(task).count(("job", "risky")) == 1


async def test_workflow_that_was_stopped_before_a_change_runs_its_step_after_a_retry() -> None:
    standin = StandIn(_as_workers_decide(decision("escalate")))
    task = standin.start([step("risky", needs_approval=True)])
    await work_until_settled(standin, task, ["safer, please", "stop"])
    row = standin.workflows[task]
    assert row.status == "failed"
    standin.retry(task)
    await work_until_settled(standin, task, ["yes"])
    assert row.status == "done"
    assert standin.effects(task).count(("job", "risky")) == 1
