use serde_json::{Value, json};
use subjects::{FinishReason, Message, Schedule};

use crate::{
    agent::{
        Broken, Outcome,
        calls::task_id_in,
        ledger::Lane,
        session::Session,
        think::Manner,
        thoughts::{INTERPRET, ScheduledTask},
    },
    context::message_text,
    inference::Hint,
};

const CREATE: &str = "db.task.create";
const START: &str = "workflow.start";

/// W7: a schedule fired: what it means becomes a task, and the task's workflow is started.
pub(in crate::agent) async fn work(
    session: &mut Session<'_>,
    schedule: &Schedule,
) -> Result<Outcome, Broken> {
    let asked = match &schedule.payload {
        Value::String(prompt) => prompt.clone(),
        other => other.to_string(),
    };
    let fired = format!("Schedule {} fired at {}:\n{asked}", schedule.schedule_id, schedule.fired_at);
    from_messages(session, schedule, vec![Message::user(message_text(&fired))]).await
}

async fn from_messages(
    session: &Session<'_>,
    schedule: &Schedule,
    messages: Vec<Message>,
) -> Result<Outcome, Broken> {
    let manner = Manner { hint: Hint::Usual, within: session.bench.settings.think_timeout, lane: Lane::MAIN };
    let task: ScheduledTask = session.think(messages, INTERPRET, manner).await?;
    let said = |text: String| Ok(Outcome::completed(text, FinishReason::Stop));
    if !session.catalogue.has(CREATE) {
        return said(format!(
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
        return Err(Broken::Tool { tool: CREATE.to_owned(), why: created.text });
    }
    let Some(task_id) = created.json().as_ref().and_then(task_id_in).map(str::to_owned) else {
        return said(format!(
            "The task `{}` was created. Its workflow was not started: the tool gave no id.",
            task.name
        ));
    };
    if !session.catalogue.has(START) {
        return said(format!(
            "The task `{}` was created. No tool to start its workflow is offered here.",
            task.name
        ));
    }
    let known = [("task_id", Some(json!(task_id))), ("run_id", Some(json!(schedule.run_id)))];
    let started = session.call(START, session.arguments_for(START, &known)).await?;
    if started.failed {
        let why =
            format!("the task `{}` was created, its workflow was not started: {}", task.name, started.text);
        return Err(Broken::Tool { tool: START.to_owned(), why });
    }
    said(format!("The task `{}` was created and its workflow started.", task.name))
}
