"""Pure: summarises the result of a workflow in a few lines."""

from __future__ import annotations

from cynode_workflow.state import PlannedStep, State, StepResult, cut

MAX_SUMMARY = 4000


def summarise(state: State) -> str:
    """Returns the results of all steps, one line or paragraph each."""
    plan = state["plan"]
    count = "one step" if len(plan) == 1 else f"{len(plan)} steps"
    lines = [f"{state['title']}: done in {count}.", *(_line(state, step) for step in plan)]
    return cut("\n".join(lines), MAX_SUMMARY)


def _line(state: State, step: PlannedStep) -> str:
    name = step["name"]
    result: StepResult = state["results"].get(name, {})
    tried = state["attempts_by_step"].get(name, 0)
    said = result.get("answer") or _last_line(result.get("output_tail", ""))
    line = f"- {name}: {cut(said, 500) or 'done'}"
    if result.get("artifacts"):
        line += f" (files: {', '.join(result['artifacts'][:10])})"
    if tried > 1:
        line += f" (attempt {tried})"
    if result.get("outcome") == "failed":
        line += " (accepted although it failed)"
    return line


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
