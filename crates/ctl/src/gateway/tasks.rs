//! `cynodectl tasks`.

use api::{Task, TaskFilter, TaskListItem};
use subjects::ScopeId;

use super::{ApiRequest, Gateway, cell, cells, print_fields, print_json, print_list, workflows};
use crate::{
    cli::Tasks,
    error::{Error, Exit},
    print,
};

pub(crate) async fn run(gateway: &Gateway, command: Tasks, json: bool) -> Result<Exit, Error> {
    match command {
        Tasks::List { project, user, status, text, limit } => {
            let filter = TaskFilter {
                project_id: project,
                user_id: user,
                status,
                text,
                limit: Some(limit),
                offset: None,
            };
            let tasks: Vec<TaskListItem> = gateway.ask(ApiRequest::get(&["tasks"]).query(&filter)).await?;
            let head = ["NAME", "STATUS", "TITLE", "PROJECT", "USER", "CHANGED", "ID"];
            let exit = print_list(&tasks, json, "no tasks", &head, row);
            if tasks.len() as u64 >= limit {
                print::note("there may be more: --limit, --project, --user, --status and --text select");
            }
            Ok(exit)
        }
        Tasks::Show { id } => {
            let task: Task = get(gateway, &id).await?;
            if json {
                print_json(&task);
                return Ok(Exit::Done);
            }
            print_fields!(task, task_id, name, title, status, project_id, user_id, parent_task_id);
            print_fields!(task, schedule_id, run_id, version, created_at, updated_at);
            if !task.description.is_empty() {
                print_fields!(task, description);
            }
            for criterion in &task.acceptance_criteria {
                print::line(&format!("{:16}{}", "criterion", print::sanitize(criterion)));
            }
            if let Some(details) = workflows::find(gateway, &task.task_id).await? {
                workflows::print_progress(&details);
            }
            Ok(Exit::Done)
        }
    }
}

/// Returns the id of the task that a person names by its id or its name.
pub(crate) async fn resolve(gateway: &Gateway, named: &ScopeId) -> Result<ScopeId, Error> {
    get(gateway, named.as_str()).await?.task_id.parse().map_err(Error::nats)
}

async fn get(gateway: &Gateway, id: &str) -> Result<Task, Error> {
    gateway.ask(ApiRequest::get(&["tasks", id])).await
}

fn row(task: &TaskListItem) -> Vec<String> {
    let mut row = cells!(task, name);
    row.push(task.status.as_str().to_owned());
    row.push(cell(&task.title).replace('\n', " "));
    row.extend(cells!(task, project_id, user_id, updated_at, task_id));
    row
}
