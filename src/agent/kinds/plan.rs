//! `plan`: turns a goal into a plan and has it executed; [`plan_steps`] plans the steps of a task.

use std::fmt::Write as _;

use subjects::{Assessment, Kind, Message, Plan, WorkScope};

use super::plan_steps;
use crate::{
    agent::{
        Outcome, WorkError,
        ask_structured::StructuredOptions,
        ledger::Lane,
        plan_execution::PlanExecution,
        session::Session,
        structured_outputs::{ASSESS_PROMPT, DraftPlan, PLAN_PROMPT},
    },
    context::sanitize_message,
    inference::Hint,
};

/// Plans the goal of the handoff and puts the plan into tasks, or plans the steps of the task that it names.
pub(in crate::agent) async fn work(session: &mut Session<'_>, plan: &Plan) -> Result<Outcome, WorkError> {
    if let Some(task_id) = &plan.task_id {
        return plan_steps::work(session, plan, task_id).await;
    }
    from_messages(session, vec![Message::user(sanitize_message(&render_goal(plan)))]).await
}

/// Renders goal, criteria and constraints, a line for each. The offline model reads these lines.
pub(super) fn render_goal(plan: &Plan) -> String {
    let mut goal = format!("Goal: {}", plan.goal);
    for criterion in &plan.acceptance_criteria {
        line(&mut goal, "Acceptance criterion", criterion);
    }
    for constraint in &plan.constraints {
        line(&mut goal, "Constraint", constraint);
    }
    goal
}

/// Plans from messages. After a clarification they include the question and its answer. Returns a question if
/// the model needs one answered before it can plan.
pub(in crate::agent) async fn from_messages(
    session: &Session<'_>,
    messages: Vec<Message>,
) -> Result<Outcome, WorkError> {
    let asked = messages.iter().filter(|message| matches!(message, Message::User { .. }));
    let goal = asked.map(Message::content).collect::<Vec<_>>().join("\n");
    let timeout = session.resources.settings.think_timeout;
    let options = StructuredOptions { hint: session.choose_model(&goal).await?, timeout, lane: Lane::MAIN };
    let draft = session.ask_structured::<DraftPlan>(messages.clone(), PLAN_PROMPT, options).await?;
    if let Some(question) = draft.question.clone().filter(|question| !question.trim().is_empty()) {
        return Ok(Outcome::question(Kind::Plan, question, &messages));
    }
    PlanExecution::new(session, draft).run().await
}

impl Session<'_> {
    /// O2, O3: asks the model for type and scope of the input, records them in the trace, and chooses by them
    /// which model plans. Without an assessment the strong one does.
    async fn choose_model(&self, input: &str) -> Result<Hint, WorkError> {
        /// The beginning of the input is enough to assess it.
        const MAX_BYTES: usize = 8 * 1_024;
        if !self.resources.settings.assess_input {
            return Ok(Hint::Strong);
        }
        let input = sanitize_message(&input[..input.floor_char_boundary(MAX_BYTES)]);
        let options = StructuredOptions {
            hint: Hint::Fast,
            timeout: self.resources.settings.think_timeout,
            lane: Lane::BACKGROUND,
        };
        let assessed = self.ask_structured(vec![Message::user(input)], ASSESS_PROMPT, options).await;
        // A failure is visible in the trace and ends nothing.
        let Ok(Assessment { scope, .. }) =
            assessed.inspect(|it: &Assessment| self.ledger.set_assessment(it.clone()))
        else {
            return Ok(Hint::Strong);
        };
        Ok(match scope {
            WorkScope::Trivial | WorkScope::Small => Hint::Usual,
            WorkScope::Medium | WorkScope::Large => Hint::Strong,
        })
    }
}

pub(super) fn line(out: &mut String, name: &str, value: &str) {
    // Writing to a string cannot fail.
    let _written = write!(out, "\n{name}: {value}");
}
