"""Pure: decides on results, reviews and answers of people.

The only place that changes where a step stands.

`decide` is applied when everything that was begun has ended, so a step that failed never leaves others
running.
"""

from __future__ import annotations

import copy
from typing import Any

from cynode_workflow.plan import (
    PlanError,
    approval_of,
    changed,
    current_index,
    find,
    is_excused,
    needs_approval,
    ready,
)
from cynode_workflow.state import Event, PlannedStep, Question, Review, State, cut, cut_with_note
from cynode_workflow.texts import without_nul
from cynode_workflow.words import Answer, read_answer, read_approval

NODE = "decide_next"


def decide(state: State) -> dict[str, Any]:
    """Returns the changes of the state: which steps run, what a person is asked, or why it failed."""
    return _Decision(state).update()


class _Decision:
    def __init__(self, state: State) -> None:
        self.state = state
        self.plan = copy.deepcopy(state.get("plan") or [])
        self.attempts = dict(state.get("attempts_by_step") or {})
        self.iterations = dict(state.get("review_iterations") or {})
        self.results = dict(state.get("results") or {})
        self.verification: dict[str, Any] = dict(state.get("verification") or {})
        self.clarifications = list(state.get("clarifications") or [])
        self.question = state.get("question")
        self.error = state.get("error")
        self.events: list[Event] = []

    def update(self) -> dict[str, Any]:
        if self.error is None and self.question is not None and "answer" in self.question:
            self._apply_answer(self.question)
            self.question = None
        if self.error is None:
            for step in self.plan:
                if step["status"] == "ended":
                    self._apply_result(step)
        if self.error is None and self.question is None:
            self._choose()
        return {
            "plan": self.plan,
            "attempts_by_step": self.attempts,
            "review_iterations": self.iterations,
            "results": self.results,
            "verification": self.verification,
            "clarifications": self.clarifications,
            "current_step_index": current_index(self.plan),
            "question": self.question,
            "error": self.error,
            "events": [*self.events, {"node": NODE, "outcome": "ended"}],
        }

    def _choose(self) -> None:
        """Starts all steps that can run. A person is asked only when nothing else can go on."""
        free = ready(self.plan)
        chosen = [step for step in free if not needs_approval(step, self._next_attempt(step))]
        for step in chosen:
            step["status"] = "running"
            number = self.attempts[step["name"]] = self._next_attempt(step)
            self._event(
                "started" if number == 1 else "retried", step, f"attempt {number}", node="dispatch_step"
            )
        if chosen or any(step["status"] == "ended" for step in self.plan):
            return
        asking = next((step for step in self.plan if step["status"] == "asking"), None)
        if asking is not None:
            text = self._question_about(asking)
            self.question = {"kind": "question", "about": "step", "step": asking["name"], "text": text}
        elif free:
            step, attempt = free[0], self._next_attempt(free[0])
            self.question = {
                "kind": "approval",
                "about": "step",
                "step": step["name"],
                "text": approval_text(step, attempt),
                "approves": approval_of(step, attempt),
            }
        elif self.plan and any(step["status"] != "done" for step in self.plan):
            self.error = "no step of the plan can run"

    def _next_attempt(self, step: PlannedStep) -> int:
        return self.attempts.get(step["name"], 0) + 1

    def _apply_result(self, step: PlannedStep) -> None:
        question = self.results.get(step["name"], {}).get("question")
        review = self.verification.get(step["name"])
        if question:
            self._ask(step, question)
        elif review:
            self._apply_review(step, review)

    def _apply_review(self, step: PlannedStep, review: Review) -> None:
        name = step["name"]
        self.iterations[name] = review["iteration"]
        reasons = "; ".join(review.get("reasons") or []) or "no reason was given"
        decision = review["decision"]
        changes = review.get("step")
        # It is applied here; the plan has it from now on.
        self.verification[name] = {key: value for key, value in review.items() if key != "step"}
        # Each attempt is approved for itself.
        step.pop("approved", None)
        if step.get("to_change") and decision != "escalate":
            step.pop("to_change")
            self._change_before_it_runs(step, decision, changes, reasons)
            return
        if decision == "retry" and is_excused(step, self.results.get(name, {})):
            # Neither the step nor its author is to blame for a node.
            step["lost"] = step.get("lost", 0) + 1
            step["status"] = "pending"
            self.attempts[name] = max(0, self.attempts.get(name, 0) - 1)
            self.iterations[name] = max(0, review["iteration"] - 1)
            self._event("retried", step, "its node was lost, so the attempt does not count")
            return
        step.pop("lost", None)
        if decision == "pass":
            step["status"] = "done"
            step.pop("feedback", None)
            self._event("ended", step, cut(reasons, 300))
            return
        if decision == "escalate":
            self._ask(step, reasons)
            return
        if decision == "reduce_scope" and not changes:
            self._ask(step, reasons)
            return
        # A step that is made smaller after its last attempt has one more, as what it is then.
        has_more = decision == "reduce_scope" and not step.get("reduced")
        is_last = self.attempts.get(name, 0) >= self.state["policy"]["max_attempts"]
        if is_last and not has_more:
            self._fail(step, reasons)
            return
        if changes and decision in ("revise", "reduce_scope"):
            try:
                self._replace(step, changed(step, changes))
            except PlanError as error:
                self._ask(step, f"{reasons}; the changed step cannot be run: {error}")
                return
        if is_last:
            step["reduced"] = True
        step["status"] = "pending"
        step["feedback"] = [
            _issue(issue) for issue in review.get("issues") or [] if issue.get("severity") != "minor"
        ]

    def _fail(self, step: PlannedStep, reasons: str) -> None:
        made = self.attempts.get(step["name"], 0)
        times = "once" if made == 1 else f"{made} times"
        smaller = ", the last time with a smaller scope" if step.get("reduced") else ""
        step["status"] = "failed"
        self.error = (
            f"step “{step['name']}” was tried {times} without success{smaller}. Last: {cut(reasons, 1000)}"
        )
        self._event("failed", step, cut(reasons, 300))

    def _change_before_it_runs(
        self, step: PlannedStep, decision: str, changes: dict[str, Any] | None, reasons: str
    ) -> None:
        """Changes a step as a person wants it, before its first run; approval is asked again in any case."""
        name = step["name"]
        self.results.pop(name, None)
        self.iterations[name] = 0
        left_alone = f"The manager left the step as it is: {cut(reasons, 500)}"
        try:
            is_changed = bool(changes) and decision in ("revise", "reduce_scope")
            if is_changed:
                self._replace(step, changed(step, changes or {}))
            note = "The manager changed the step." if is_changed else left_alone
        except PlanError as error:
            note = f"The manager's change cannot be run: {cut(str(error), 500)}"
        step["note"] = note
        step["status"] = "pending"

    @staticmethod
    def _replace(step: PlannedStep, other: PlannedStep) -> None:
        for field in list(step):
            step.pop(field)  # type: ignore[misc]
        step.update(other)

    def _ask(self, step: PlannedStep, why: str) -> None:
        step["status"] = "asking"
        self._event("waiting", step, cut(why, 300))

    def _question_about(self, step: PlannedStep) -> str:
        name = step["name"]
        asked = self.results.get(name, {}).get("question")
        review = self.verification.get(name) or {}
        if asked:
            return cut(f"Step “{name}”: {asked}", 4000)
        reasons = review.get("question") or "; ".join(review.get("reasons") or [])
        asked = cut(f"Step “{name}” needs you: {reasons or 'its result was not accepted'}", 3900)
        note = f"\n{step['note']}" if step.get("note") else ""
        words = "retry or stop" if self._never_ran(step) else "retry, accept or stop"
        return f"{asked}{note}\nAnswer {words}, or say what should be done."

    def _never_ran(self, step: PlannedStep) -> bool:
        """Returns whether the newest attempt of a step was neither approved nor begun: it has no result."""
        begun = (self.state.get("begun") or {}).get(step["name"], {})
        return bool(step.get("to_change")) or "error" in begun

    def _apply_answer(self, question: Question) -> None:
        answer = question["answer"]
        self.events.append(
            {
                "node": "ask_person",
                "outcome": "answered",
                **({"step": question["step"]} if "step" in question else {}),
            }
        )
        if question["about"] == "plan":
            self.clarifications.append({"question": question["text"], "answer": answer})
            return
        step = find(self.plan, question["step"])
        if question["kind"] == "approval":
            self._apply_approval(step, read_approval(answer), question)
        else:
            self._apply_help(step, read_answer(answer), question)

    def _apply_approval(self, step: PlannedStep, said: Answer, question: Question) -> None:
        step.pop("note", None)
        if said is Answer.YES:
            step["approved"] = question.get("approves", "")
        elif said is Answer.NO:
            step["status"] = "failed"
            self.error = f"step “{step['name']}” was not approved"
            self._event("failed", step, "not approved")
        else:
            # The manager changes the step as the person says; then approval is asked again.
            self._remember(step, question)
            step["to_change"] = True
            self._review_anew(step, f"not run yet: a person wants it changed first: {question['answer']}")

    def _apply_help(self, step: PlannedStep, said: Answer, question: Question) -> None:
        name = step["name"]
        # A person's word gives the step its attempts and reviews back, which are approved anew.
        self.attempts[name] = 0
        self.iterations[name] = 0
        for field in ("approved", "reduced", "note"):
            step.pop(field, None)  # type: ignore[misc]
        if "question" in self.results.get(name, {}):
            # The manager asked, and understands every word of the answer by itself.
            self._remember(step, question)
            step["status"] = "pending"
        elif said is Answer.STOP:
            step["status"] = "failed"
            self.error = f"a person stopped it at step “{name}”"
            self._event("failed", step, "stopped by a person")
        elif said is Answer.ACCEPT and self._never_ran(step):
            # Nothing was done that could be left as it is. The same question is asked again.
            step["note"] = "It has not run, so there is nothing to accept."
        elif said is Answer.ACCEPT:
            step["status"] = "done"
            self._event("ended", step, "accepted by a person")
        elif said is Answer.RETRY:
            # If it was to be changed before it runs, approval is asked for it as it is.
            step["status"] = "pending"
            step.pop("to_change", None)
        else:
            # The manager reviews the same result again, now with what the person says. “Yes” and “no” are
            # texts as well: only the manager knows what its question was about.
            self._remember(step, question)
            self._review_anew(step, None)

    def _remember(self, step: PlannedStep, question: Question) -> None:
        step["answers"] = [
            *step.get("answers", []),
            without_nul({"question": question["text"], "answer": question["answer"]}),
        ]

    def _review_anew(self, step: PlannedStep, error: str | None) -> None:
        name = step["name"]
        step["status"] = "ended"
        self.verification[name] = None
        self.iterations[name] = 0
        if error is not None or name not in self.results:
            self.results[name] = {"outcome": "failed", "error": error or "it was not run"}

    def _event(self, outcome: Any, step: PlannedStep, detail: str, *, node: str = NODE) -> None:
        self.events.append({"node": node, "step": step["name"], "outcome": outcome, "detail": detail})


def retried(state: State) -> dict[str, Any]:
    """Returns the changes by which a workflow that failed begins again at the steps that failed."""
    plan = copy.deepcopy(state.get("plan") or [])
    attempts = dict(state.get("attempts_by_step") or {})
    iterations = dict(state.get("review_iterations") or {})
    for step in plan:
        if step["status"] != "done":
            step["status"] = "pending"
            attempts[step["name"]] = 0
            iterations[step["name"]] = 0
            for field in ("approved", "reduced", "to_change", "note"):
                step.pop(field, None)  # type: ignore[misc]
    return {
        "plan": plan,
        "attempts_by_step": attempts,
        "review_iterations": iterations,
        "verification": {step["name"]: None for step in plan if step["status"] != "done"},
        "question": None,
        "error": None,
        "outcome": None,
        "events": [{"node": "retry", "outcome": "started"}],
    }


def _issue(issue: dict[str, Any]) -> str:
    where = f" ({issue['location']})" if issue.get("location") else ""
    return cut(
        f"{issue.get('severity', 'major')}{where}: {issue.get('problem', '')} Fix: {issue.get('fix', '')}",
        1000,
    )


def approval_text(step: PlannedStep, attempt: int) -> str:
    """Returns the question whether a step may run, with all that it would do, however long its texts are."""
    parts = [f"May step “{step['name']}” run?" + (f" It is attempt {attempt}." if attempt > 1 else "")]
    if step.get("note"):
        parts.append(cut(step["note"], 1_000))
    # The step that is asked about is whole in the state that people see.
    where = "; the plan of the workflow has all"
    parts.append(cut_with_note(step.get("description", ""), 1_500, where))
    if step.get("script"):
        parts.append("Script:\n" + cut_with_note(step["script"], 4_000, where))
    lists = (
        ("Network", step.get("network", [])),
        ("Files it is given", [file["path"] for file in step.get("files", [])]),
        ("Artifacts it is given", step.get("artifacts", [])),
        ("Files it keeps", step.get("outputs", [])),
    )
    parts += [f"{title}: {cut_with_note(', '.join(items), 1_000, where)}" for title, items in lists if items]
    parts.append("Answer yes or no, or say what to change first.")
    return "\n".join(part for part in parts if part)
