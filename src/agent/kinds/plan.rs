use std::{fmt::Write as _, pin::pin};

use subjects::{Kind, Message, Plan};

use crate::{
    agent::{
        Broken, Outcome,
        coordinator::Coordinator,
        ledger::Lane,
        session::Session,
        think::Manner,
        thoughts::{DraftPlan, PLAN},
    },
    context::message_text,
    inference::Hint,
};

/// The planner: a goal becomes a plan, and the coordinator has it carried out.
pub(in crate::agent) async fn work(session: &mut Session<'_>, plan: &Plan) -> Result<Outcome, Broken> {
    let mut goal = format!("Goal: {}", plan.goal);
    for criterion in &plan.acceptance_criteria {
        line(&mut goal, "Acceptance criterion", criterion);
    }
    for constraint in &plan.constraints {
        line(&mut goal, "Constraint", constraint);
    }
    from_messages(session, vec![Message::user(message_text(&goal))]).await
}

/// Also after a clarification: then the question and its answer are among the messages.
pub(in crate::agent) async fn from_messages(
    session: &Session<'_>,
    messages: Vec<Message>,
) -> Result<Outcome, Broken> {
    let asked = messages.iter().filter(|message| matches!(message, Message::User { .. }));
    let goal = asked.map(Message::content).collect::<Vec<_>>().join("\n");
    let manner =
        Manner { hint: Hint::Strong, within: session.bench.settings.think_timeout, lane: Lane::MAIN };
    let planning = pin!(session.think::<DraftPlan>(messages.clone(), PLAN, manner));
    let aside = pin!(session.assess(&goal));
    let draft = session.beside(planning, aside).await;
    let draft = draft?;
    if let Some(question) = draft.question.clone().filter(|question| !question.trim().is_empty()) {
        return Ok(Outcome::asks(Kind::Plan, question, &messages));
    }
    Coordinator::new(session, draft).carry_out().await
}

fn line(out: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail.
    let _written = write!(out, "\n{name}: {value}");
}
