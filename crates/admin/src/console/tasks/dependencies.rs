//! The dependency graph of tasks, and the same as a list.

use std::collections::{BTreeMap, BTreeSet};

use api::{TaskFilter, TaskListItem};
use control::TaskDependency;
use maud::{Markup, html};

use super::{
    super::{
        Console, Failure,
        components::{GraphNode, empty, graph, visible},
        format,
        session::Session,
    },
    link, nothing, page_of, status_badge, title, tone,
};

/// How many tasks are drawn, and how many of the last changed ones are read.
const MAX_DRAWN: usize = 60;
const MAX_CONSIDERED: u64 = 200;

pub(super) async fn render(
    console: &Console,
    session: &Session,
    filter: &TaskFilter,
) -> Result<Markup, Failure> {
    let filter = TaskFilter { limit: Some(MAX_CONSIDERED), status: None, ..filter.clone() };
    let mut tasks = console.admin.list_tasks(&session.actor, &filter).await?;
    if tasks.is_empty() {
        return Ok(nothing());
    }
    tasks.sort_by(|one, other| (one.order, &one.task_id).cmp(&(other.order, &other.task_id)));
    let ids: Vec<&str> = tasks.iter().map(|task| &*task.task_id).collect();
    let mut dependencies = console.admin.list_dependencies(&session.actor, &ids).await?;
    let known: BTreeSet<&str> = ids.into_iter().collect();
    dependencies.retain(|it| known.contains(&*it.task_id) && known.contains(&*it.depends_on));
    let joined: BTreeSet<&str> =
        dependencies.iter().flat_map(|it| [it.task_id.as_str(), it.depends_on.as_str()]).collect();
    let (joined, alone): (Vec<&TaskListItem>, Vec<&TaskListItem>) =
        tasks.iter().partition(|task| joined.contains(&*task.task_id));
    Ok(html! {
        @if joined.is_empty() {
            (empty("No task waits for another.", &html! {
                "Ask a manager, as in “paint the fence after the wood is bought”, or use "
                code { "db.task.dependency.add" } "."
            }))
        } @else {
            (drawing(&joined, &dependencies))
        }
        (list(&joined, &alone, &dependencies))
    })
}

fn drawing(joined: &[&TaskListItem], dependencies: &[TaskDependency]) -> Markup {
    let drawn = &joined[..joined.len().min(MAX_DRAWN)];
    let index: BTreeMap<&str, usize> =
        drawn.iter().enumerate().map(|(at, task)| (task.task_id.as_str(), at)).collect();
    let edges: Vec<(usize, usize)> = dependencies
        .iter()
        .filter_map(|it| Some((*index.get(&*it.depends_on)?, *index.get(&*it.task_id)?)))
        .collect();
    let node = |task: &&TaskListItem| GraphNode {
        label: task.name.clone(),
        status: title(task.status).to_owned(),
        tone: tone(task.status),
        address: page_of(&task.task_id),
    };
    let nodes: Vec<GraphNode> = drawn.iter().map(node).collect();
    html! {
        p .count {
            (format::count(drawn.len(), "task", "tasks")) ", each to the right of those that it waits for"
            @if joined.len() > drawn.len() {
                ". " (joined.len() - drawn.len()) " more are in the list; choose a project to draw fewer"
            }
        }
        (graph("Which task waits for which", &nodes, &edges))
    }
}

/// Renders the same as text: what each task waits for, and the tasks that wait for nothing.
fn list(joined: &[&TaskListItem], alone: &[&TaskListItem], dependencies: &[TaskDependency]) -> Markup {
    let names: BTreeMap<&str, &str> = joined.iter().map(|task| (&*task.task_id, &*task.name)).collect();
    let waits_for = |task: &TaskListItem| -> Vec<String> {
        let own = dependencies.iter().filter(|it| it.task_id == task.task_id);
        own.filter_map(|it| names.get(&*it.depends_on)).map(|name| visible(name)).collect()
    };
    html! {
        @if !joined.is_empty() {
            section {
                h2 { "As a list" }
                ul .lines {
                    @for task in joined {
                        li {
                            (link(task)) " " (status_badge(task.status))
                            @let before = waits_for(task);
                            @if before.is_empty() { " waits for nothing" } @else {
                                " waits for " bdi { (before.join(", ")) }
                            }
                        }
                    }
                }
            }
        }
        @if !alone.is_empty() {
            section {
                h2 { "Without dependencies" }
                ul .lines { @for task in alone { li { (link(task)) " " (status_badge(task.status)) } } }
            }
        }
    }
}
