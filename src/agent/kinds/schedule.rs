//! `schedule`: a schedule fired; creates the task it calls for and starts its workflow.

use serde_json::{Value, json};
use subjects::{FinishReason, Message, Schedule};

use crate::{
    agent::{
        Outcome, WorkError,
        ask_structured::StructuredOptions,
        calls::task_id_in,
        ledger::Lane,
        session::Session,
        structured_outputs::{INTERPRET_PROMPT, ScheduledTask},
    },
    context::sanitize_message,
    inference::Hint,
};

const CREATE: &str = "db.task.create";
const START: &str = "workflow.start";

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
    let completed = |text: String| Ok(Outcome::completed(text, FinishReason::Stop));
    if !session.catalogue.has(CREATE) {
        return completed(format!(
            "The schedule calls for `{}`: {} No task was created: no tool for that is offered here.",
            task.name, task.description
        ));
    }
    let scope = &session.handoff.scope;
    let arguments = session.arguments_for(
        CREATE,
        &[
            ("name", Some(json!(task.name))),
            ("title", Some(json!(task.name))),
            ("description", Some(json!(task.description))),
            ("acceptance_criteria", Some(json!(task.acceptance_criteria))),
            ("project_id", scope.project_id.as_ref().map(|id| json!(id))),
            ("user_id", scope.user_id.as_ref().map(|id| json!(id))),
            ("schedule_id", Some(json!(schedule.schedule_id))),
            ("run_id", Some(json!(schedule.run_id))),
        ],
    );
    let created = session.call(CREATE, arguments).await?;
    if created.failed {
        return Err(WorkError::ToolFailed { tool: CREATE.to_owned(), why: created.text });
    }
    let Some(task_id) = created.json().as_ref().and_then(task_id_in).map(str::to_owned) else {
        return completed(format!(
            "The task `{}` was created. Its workflow was not started: the tool gave no id.",
            task.name
        ));
    };
    if !session.catalogue.has(START) {
        return completed(format!(
            "The task `{}` was created. No tool to start its workflow is offered here.",
            task.name
        ));
    }
    let known = [("task_id", Some(json!(task_id))), ("run_id", Some(json!(schedule.run_id)))];
    let started = session.call(START, session.arguments_for(START, &known)).await?;
    if started.failed {
        let why =
            format!("the task `{}` was created, its workflow was not started: {}", task.name, started.text);
        return Err(WorkError::ToolFailed { tool: START.to_owned(), why });
    }
    completed(format!("The task `{}` was created and its workflow started.", task.name))
}
