//! `plan` of a task: its steps, which a workflow carries out. Creates no tasks.

use std::fmt::Write as _;

use contract::{Page, ToolContract, artifact};
use subjects::{Kind, Message, Plan, PlannedState, PlannedStep, ScopeId, workflow::Step};

use super::plan;
use crate::{
    agent::{
        AnswerBody, Outcome, WorkError,
        ask_structured::StructuredOptions,
        ledger::Lane,
        session::Session,
        workflow_outputs::{DraftSteps, STEPS_PROMPT},
    },
    context::sanitize_message,
    inference::Hint,
};

/// Maximum number of artifacts listed for the model.
const MAX_ARTIFACTS: usize = 50;

/// O5: plans the steps of a task.
pub(in crate::agent) async fn work(
    session: &Session<'_>,
    plan: &Plan,
    task_id: &ScopeId,
) -> Result<Outcome, WorkError> {
    session.check_task(task_id)?;
    let mut plan = plan.clone();
    let mut description = None;
    if let Some(task) = &session.layers.task {
        if plan.acceptance_criteria.is_empty() {
            plan.acceptance_criteria.clone_from(&task.acceptance_criteria);
        }
        // The goal of a workflow usually has it already.
        description = task.description.as_deref().filter(|text| !plan.goal.contains(text.trim()));
    }
    let mut asked = plan::render_goal(&plan);
    if let Some(description) = description {
        plan::line(&mut asked, "Description", description);
    }
    for path in artifacts(session, task_id).await? {
        plan::line(&mut asked, "Artifact of the task", &path);
    }
    from_messages(session, task_id, vec![Message::user(sanitize_message(&asked))]).await
}

/// Plans from messages. After a clarification they include the question and its answer.
pub(in crate::agent) async fn from_messages(
    session: &Session<'_>,
    task_id: &ScopeId,
    messages: Vec<Message>,
) -> Result<Outcome, WorkError> {
    let options = StructuredOptions {
        hint: Hint::Strong,
        timeout: session.resources.settings.think_timeout,
        lane: Lane::MAIN,
    };
    let draft = session.ask_structured::<DraftSteps>(messages.clone(), STEPS_PROMPT, options).await?;
    if let Some(question) = draft.question() {
        return Ok(Outcome::question(Kind::Plan, question.to_owned(), &messages).about_task(task_id.clone()));
    }
    let steps = draft.to_steps();
    let planned = |step: &Step| PlannedStep { name: step.name.clone(), state: PlannedState::NotStarted };
    session.ledger.set_plan(steps.iter().map(planned).collect());
    session.live.planned(steps.len());
    let content = render(&draft.summary, &steps);
    Ok(Outcome::answered(AnswerBody::Steps { content, steps }))
}

/// Returns the paths of the task's artifacts, as far as they can be listed.
async fn artifacts(session: &Session<'_>, task_id: &ScopeId) -> Result<Vec<String>, WorkError> {
    if !session.catalogue.has(artifact::List::NAME) {
        return Ok(Vec::new());
    }
    let list = artifact::List { task_id: task_id.clone(), text: None, limit: None, cursor: None };
    let listed = session.call(&list).await?;
    if listed.failed {
        return Ok(Vec::new());
    }
    let items = listed.parse().map_or_else(|_| Vec::new(), |Page { items, .. }| items);
    Ok(items.into_iter().take(MAX_ARTIFACTS).map(|it: artifact::Artifact| it.path).collect())
}

fn render(summary: &str, steps: &[Step]) -> String {
    let mut out = summary.trim().to_owned();
    for (index, step) in steps.iter().enumerate() {
        // Writing to a string cannot fail.
        let _written = write!(out, "\n{}. `{}` ({}): {}", index + 1, step.name, step.kind, step.description);
        for criterion in &step.criteria {
            let _written = write!(out, "\n   - {}", criterion.trim());
        }
    }
    out.trim().to_owned()
}
