//! The board: tasks by status.

use std::collections::BTreeMap;

use api::{TaskFilter, TaskListItem, TaskStatus, Workflow};
use maud::{Markup, html};

use super::{
    super::{
        Console, Failure,
        components::{address, visible},
        format,
        page::Section,
        session::Session,
        workflows,
    },
    link, nothing, title,
};

/// How many tasks of each status are shown.
const MAX_CARDS: u64 = 20;

pub(super) async fn render(
    console: &Console,
    session: &Session,
    filter: &TaskFilter,
) -> Result<Markup, Failure> {
    let mut columns: Vec<(TaskStatus, Vec<TaskListItem>)> = Vec::new();
    for status in TaskStatus::ALL {
        // One more tells whether there are more.
        let filter = TaskFilter { status: Some(status), limit: Some(MAX_CARDS + 1), ..filter.clone() };
        columns.push((status, console.admin.list_tasks(&session.actor, &filter).await?));
    }
    if columns.iter().all(|(_, tasks)| tasks.is_empty()) {
        return Ok(nothing());
    }
    let ids: Vec<&str> = columns.iter().flat_map(|(_, tasks)| tasks).map(|task| &*task.task_id).collect();
    let found = console.admin.list_workflows_of(&session.actor, &ids).await?;
    let workflows: BTreeMap<&str, &Workflow> = found.iter().map(|it| (it.task_id.as_str(), it)).collect();
    Ok(html! {
        div .board {
            @for (status, tasks) in &columns { (column(*status, tasks, &workflows, filter)) }
        }
    })
}

fn column(
    status: TaskStatus,
    tasks: &[TaskListItem],
    workflows: &BTreeMap<&str, &Workflow>,
    filter: &TaskFilter,
) -> Markup {
    let most = usize::try_from(MAX_CARDS).unwrap_or(usize::MAX);
    let shown = &tasks[..tasks.len().min(most)];
    let has_more = tasks.len() > most;
    let id = format!("column-{}", status.as_str());
    html! {
        section .column aria-labelledby=(id) {
            h2 id=(id) { (title(status)) " " small { (shown.len()) @if has_more { "+" } } }
            ul {
                @for task in shown { li .task-card { (card(task, workflows.get(&*task.task_id).copied())) } }
            }
            @if has_more {
                @let parameters = [
                    ("status", status.as_str()),
                    ("project_id", filter.project_id.as_deref().unwrap_or_default()),
                    ("user_id", filter.user_id.as_deref().unwrap_or_default()),
                    ("text", filter.text.as_deref().unwrap_or_default()),
                ];
                p { a href=(address(Section::Tasks.address(), &parameters)) { "All of them" } }
            }
        }
    }
}

fn card(task: &TaskListItem, workflow: Option<&Workflow>) -> Markup {
    let question = workflow.and_then(|workflow| workflow.question.as_deref());
    html! {
        (link(task))
        @if task.title != task.name { span .sub { (visible(&task.title)) } }
        @if let Some(workflow) = workflow {
            p { (workflows::badge_link(workflow)) }
        }
        @if let Some(question) = question { span .sub .clamp { (visible(question)) } }
        span .sub { (format::timestamp(&task.updated_at)) }
    }
}
