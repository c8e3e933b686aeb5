//! `cynodectl workflows`.

mod follow;
mod show;

use std::path::Path;

use api::{
    CancelWorkflow, ResumeWorkflow, RetryWorkflow, StartWorkflow, Workflow, WorkflowDetails, WorkflowFilter,
};
use serde::Serialize;
use serde_json::Value;
use subjects::workflow::Step;

pub(super) use self::show::print_progress;
use super::{ApiRequest, Gateway, cell, cells, print_list, print_outcome};
use crate::{
    cli::{OfTask, Workflows},
    error::{Error, Exit},
    print,
};

/// The commands that correspond to tools named in messages of the gateway.
const COMMANDS: [&str; 5] = ["start", "cancel", "pause", "resume", "retry"];

pub(crate) async fn run(gateway: &Gateway, command: Workflows, json: bool) -> Result<Exit, Error> {
    match command {
        Workflows::List { status, project, user, limit } => {
            let filter = WorkflowFilter {
                status,
                project_id: project,
                user_id: user,
                limit: Some(limit),
                offset: None,
            };
            list(gateway, &filter, json).await
        }
        Workflows::Show { of, follow } => {
            let details = get(gateway, &of.task).await?;
            if follow {
                return follow::run(gateway, details, json).await;
            }
            show::run(&details, json);
            Ok(Exit::Done)
        }
        Workflows::Start { of, steps, user_id } => {
            let steps = steps.as_deref().map(read_steps).transpose()?.unwrap_or_default();
            let has_steps = !steps.is_empty();
            let wanted = StartWorkflow { steps, policy: None, user_id };
            let started = steer(gateway, &of, "start", &wanted).await?;
            let what = match (started.already_active, has_steps) {
                (false, _) => "is started",
                (true, false) => "is active already",
                (true, true) => "is active already, and the given steps are not used",
            };
            Ok(say(&started, what, json))
        }
        Workflows::Cancel { of, reason } => {
            let cancelled = steer(gateway, &of, "cancel", &CancelWorkflow { reason }).await?;
            let exit = say(&cancelled, "is cancelled", json);
            if !cancelled.canceled_with.is_empty() {
                print::note(&print::sanitize(&format!(
                    "cancelled with it: {}. When it goes on, bring them back with \
                     `cynodectl workflows retry`, or `start` if they have no workflow",
                    cancelled.canceled_with.join(", ")
                )));
            }
            Ok(exit)
        }
        Workflows::Pause { of } => {
            let paused = steer(gateway, &of, "pause", &Value::Object(serde_json::Map::new())).await?;
            Ok(say(&paused, "is paused", json))
        }
        Workflows::Resume { of, input, question_id } => {
            let what = if input.is_some() { "is answered and goes on" } else { "goes on" };
            let resumed = steer(gateway, &of, "resume", &ResumeWorkflow { input, question_id }).await?;
            Ok(say(&resumed, what, json))
        }
        Workflows::Retry { of, from_start } => {
            let what = if from_start { "starts over" } else { "is retried" };
            let retried = steer(gateway, &of, "retry", &RetryWorkflow { from_start }).await?;
            Ok(say(&retried, what, json))
        }
    }
}

async fn list(gateway: &Gateway, filter: &WorkflowFilter, json: bool) -> Result<Exit, Error> {
    let workflows: Vec<Workflow> = gateway.ask(ApiRequest::get(&["workflows"]).query(filter)).await?;
    let is_filtered = filter.status.is_some() || filter.project_id.is_some() || filter.user_id.is_some();
    let none = match is_filtered {
        true => "no such workflows",
        false => {
            "no workflows; `cynodectl workflows start TASK` starts one, `cynodectl tasks ls` lists tasks"
        }
    };
    let head = ["TASK", "STATUS", "WAITS FOR", "AFTER", "PROJECT", "USER", "CHANGED", "ID"];
    let exit = print_list(&workflows, json, none, &head, row);
    if workflows.len() as u64 >= filter.limit.unwrap_or(u64::MAX) {
        print::note("there may be more: --limit, --status, --project and --user select");
    }
    Ok(exit)
}

fn row(workflow: &Workflow) -> Vec<String> {
    let mut row = vec![cell(&workflow.task_name), workflow.status.as_str().to_owned()];
    row.push(workflow.waiting_for.map_or("-", contract::workflow::WaitingFor::as_str).to_owned());
    row.extend(cells!(workflow, last_node, project_id, user_id, updated_at, task_id));
    row
}

/// Returns the workflow of a task.
async fn get(gateway: &Gateway, task: &str) -> Result<WorkflowDetails, Error> {
    let found = gateway.ask(ApiRequest::get(&["workflows", task])).await;
    found.map_err(|error| for_people(error, task))
}

/// Returns the workflow of a task; `None` if it has none.
pub(super) async fn find(gateway: &Gateway, task: &str) -> Result<Option<WorkflowDetails>, Error> {
    match get(gateway, task).await {
        Err(Error::NoWorkflow(_)) => Ok(None),
        found => found.map(Some),
    }
}

async fn steer(gateway: &Gateway, of: &OfTask, what: &str, body: &impl Serialize) -> Result<Workflow, Error> {
    let path = ["workflows", of.task.as_str(), what];
    let steered = gateway.ask(ApiRequest::post(&path).body(body)).await;
    steered.map_err(|error| for_people(error, &of.task))
}

/// Says what became of a workflow, and why it does not run yet.
fn say(workflow: &Workflow, what: &str, json: bool) -> Exit {
    let mut text = format!("the workflow of {} {what}", workflow.task_name);
    if let Some(why) = &workflow.waiting_because {
        text = format!("{text}; it {}", commands(why));
    }
    let exit = print_outcome(json, workflow, &text);
    if !workflow.status.is_final() {
        print::note(&print::sanitize(&format!(
            "watch it with `cynodectl workflows show {} --follow`",
            workflow.task_name
        )));
    }
    exit
}

/// Names commands and flags instead of tools and their arguments.
fn commands(text: &str) -> String {
    COMMANDS.iter().fold(text.replace("`question_id`", "`--question`"), |text, command| {
        text.replace(&format!("workflow.{command}"), &format!("`cynodectl workflows {command}`"))
    })
}

fn for_people(error: Error, task: &str) -> Error {
    match error {
        Error::Refused { code, message, .. } if code == "not_found" && message.starts_with("workflow") => {
            Error::NoWorkflow(print::sanitize(task))
        }
        Error::Refused { code, message, field } => {
            Error::Refused { code, message: commands(&message), field }
        }
        other => other,
    }
}

/// Reads steps from a file: a list, or an object with `steps`, as a plan answers.
fn read_steps(path: &Path) -> Result<Vec<Step>, Error> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::File(path.to_owned(), error))?;
    let wrong = |error| Error::Steps(path.to_owned(), error);
    let mut value: Value = serde_json::from_str(&text).map_err(wrong)?;
    if let Some(steps) = value.get_mut("steps") {
        value = steps.take();
    }
    let steps = subjects::workflow::deserialize_given_steps(value).map_err(wrong)?;
    let checked = subjects::workflow::check_steps(&steps);
    checked.map_err(|error| Error::Other(format!("{}: {error}", path.display())))?;
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_commands_instead_of_tools() {
        let text = "it is failed: workflow.retry goes on with it";
        assert_eq!(commands(text), "it is failed: `cynodectl workflows retry` goes on with it");
        let refused = |code: &str, message: &str| Error::Refused {
            code: code.to_owned(),
            message: message.to_owned(),
            field: None,
        };
        let none = for_people(refused("not_found", "workflow of task `a` not found"), "a");
        assert!(none.to_string().contains("cynodectl workflows start a"), "{none}");
        let no_task = for_people(refused("not_found", "task `a` not found"), "a");
        assert!(matches!(no_task, Error::Refused { .. }), "{no_task}");
    }
}
