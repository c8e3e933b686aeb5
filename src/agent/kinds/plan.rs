//! `plan`: turns a goal into a plan and has it executed.

use std::{fmt::Write as _, pin::pin};

use subjects::{Kind, Message, Plan};

use crate::{
    agent::{
        Outcome, WorkError,
        ask_structured::StructuredOptions,
        ledger::Lane,
        plan_execution::PlanExecution,
        session::Session,
        structured_outputs::{DraftPlan, PLAN_PROMPT},
    },
    context::sanitize_message,
    inference::Hint,
};

/// Plans the goal of the handoff and puts the plan into tasks.
pub(in crate::agent) async fn work(session: &mut Session<'_>, plan: &Plan) -> Result<Outcome, WorkError> {
    let mut goal = format!("Goal: {}", plan.goal);
    for criterion in &plan.acceptance_criteria {
        line(&mut goal, "Acceptance criterion", criterion);
    }
    for constraint in &plan.constraints {
        line(&mut goal, "Constraint", constraint);
    }
    from_messages(session, vec![Message::user(sanitize_message(&goal))]).await
}

/// Plans from messages. After a clarification they include the question and its answer. Returns a question if
/// the model needs one answered before it can plan.
pub(in crate::agent) async fn from_messages(
    session: &Session<'_>,
    messages: Vec<Message>,
) -> Result<Outcome, WorkError> {
    let asked = messages.iter().filter(|message| matches!(message, Message::User { .. }));
    let goal = asked.map(Message::content).collect::<Vec<_>>().join("\n");
    let options = StructuredOptions {
        hint: Hint::Strong,
        timeout: session.resources.settings.think_timeout,
        lane: Lane::MAIN,
    };
    let planning = pin!(session.ask_structured::<DraftPlan>(messages.clone(), PLAN_PROMPT, options));
    let background = pin!(session.assess(&goal));
    let draft = session.run_with_background(planning, background).await;
    let draft = draft?;
    if let Some(question) = draft.question.clone().filter(|question| !question.trim().is_empty()) {
        return Ok(Outcome::question(Kind::Plan, question, &messages));
    }
    PlanExecution::new(session, draft).run().await
}

fn line(out: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail.
    let _written = write!(out, "\n{name}: {value}");
}
