//! `schedule`: a schedule fired; creates the task it calls for and starts its workflow.

use contract::{ToolContract, task, workflow};
use serde_json::Value;
use subjects::{FinishReason, Message, Schedule};

use crate::{
    agent::{
        Outcome, WorkError,
        ask_structured::StructuredOptions,
        ledger::Lane,
        session::Session,
        structured_outputs::{INTERPRET_PROMPT, ScheduledTask},
    },
    context::sanitize_message,
    inference::Hint,
};

/// W7: has the model interpret the schedule's payload as one task, creates the task and starts its workflow.
pub(in crate::agent) async fn work(
    session: &mut Session<'_>,
    schedule: &Schedule,
) -> Result<Outcome, WorkError> {
    let asked = match &schedule.payload {
        Value::String(prompt) => prompt.clone(),
        other => other.to_string(),
    };
    let fired = format!("Schedule {} fired at {}:\n{asked}", schedule.schedule_id, schedule.fired_at);
    from_messages(session, schedule, vec![Message::user(sanitize_message(&fired))]).await
}

async fn from_messages(
    session: &Session<'_>,
    schedule: &Schedule,
    messages: Vec<Message>,
) -> Result<Outcome, WorkError> {
    let options = StructuredOptions {
        hint: Hint::Usual,
        timeout: session.resources.settings.think_timeout,
        lane: Lane::MAIN,
    };
    let task: ScheduledTask = session.ask_structured(messages, INTERPRET_PROMPT, options).await?;
    session.live.planned(1);
    let completed = |text: String| Ok(Outcome::completed(text, FinishReason::Stop));
    if !session.catalogue.has(task::Create::NAME) {
        return completed(format!(
            "The schedule calls for `{}`: {} No task was created: no tool for that is offered here.",
            task.name, task.description
        ));
    }
    let scope = &session.handoff.scope;
    let new = task::Create {
        name: Some(task.name.clone()),
        title: Some(task.name.clone()),
        description: Some(task.description),
        acceptance_criteria: task.acceptance_criteria,
        project_id: scope.project_id.clone(),
        user_id: scope.user_id.clone(),
        schedule_id: Some(schedule.schedule_id.clone()),
        run_id: Some(schedule.run_id.clone()),
        ..task::Create::default()
    };
    let task_id = session.call_for_output(&new).await?.task_id;
    let can_start = session.catalogue.has(workflow::Start::NAME);
    match session.start_workflow(&task_id, Some(&schedule.run_id)).await? {
        Ok(()) => completed(format!("The task `{}` was created and its workflow started.", task.name)),
        Err(why) if !can_start => {
            completed(format!("The task `{}` was created. Its workflow was not started: {why}.", task.name))
        }
        Err(why) => {
            let why = format!("the task `{}` was created, its workflow was not started: {why}", task.name);
            Err(WorkError::ToolFailed { tool: workflow::Start::NAME.to_owned(), why })
        }
    }
}
