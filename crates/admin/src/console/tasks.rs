//! Pages of tasks: list with filter, board, dependency graph, one task.

mod board;
mod dependencies;
mod detail;

use std::sync::Arc;

use api::{TaskFilter, TaskListItem, TaskStatus};
use axum::{extract::State, response::Response};
use maud::{Markup, html};

pub(super) use self::detail::show;
use super::{
    Console, Failure,
    components::{FormState, Tone, address, badge, cells, empty, input, options, or_dash, table, visible},
    form::Fields,
    format,
    page::{Section, page},
    session::Session,
};

const HEADINGS: [&str; 5] = ["Task", "Status", "Project", "User", "Changed"];
/// The filters that hold for all views.
const KEPT: [&str; 3] = ["text", "project_id", "user_id"];

/// How tasks are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    List,
    Board,
    Graph,
}

impl View {
    const ALL: [Self; 3] = [Self::List, Self::Board, Self::Graph];

    fn of(fields: &Fields) -> Self {
        match fields.text("view") {
            "board" => Self::Board,
            "graph" => Self::Graph,
            _ => Self::List,
        }
    }

    /// Returns the value of the query parameter; the list needs none.
    fn value(self) -> &'static str {
        match self {
            Self::List => "",
            Self::Board => "board",
            Self::Graph => "graph",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::List => "List",
            Self::Board => "Board",
            Self::Graph => "Dependencies",
        }
    }
}

/// Returns the address of a task's page.
pub(super) fn page_of(id: &str) -> String {
    let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
    format!("{}/{id}", Section::Tasks.address())
}

/// Returns the address of the board of a project.
pub(super) fn board_of(project: &str) -> String {
    address(Section::Tasks.address(), &[("view", View::Board.value()), ("project_id", project)])
}

/// Returns the address of the dependency graph of a project.
pub(super) fn graph_of(project: &str) -> String {
    address(Section::Tasks.address(), &[("view", View::Graph.value()), ("project_id", project)])
}

/// Returns the address of the tasks of a project in a status.
pub(super) fn list_of(project: &str, status: TaskStatus) -> String {
    address(Section::Tasks.address(), &[("project_id", project), ("status", status.as_str())])
}

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let view = View::of(&fields);
    let filter = TaskFilter {
        status: TaskStatus::ALL.into_iter().find(|status| status.as_str() == fields.text("status")),
        project_id: fields.owned("project_id"),
        user_id: fields.owned("user_id"),
        text: fields.owned("text"),
        ..TaskFilter::default()
    };
    let shown = match view {
        View::List => {
            let tasks = console.admin.list_tasks(&session.actor, &filter).await?;
            if tasks.is_empty() { nothing() } else { listed(&tasks) }
        }
        View::Board => board::render(&console, &session, &filter).await?,
        View::Graph => dependencies::render(&console, &session, &filter).await?,
    };
    let body = html! {
        p .lead { "A task is a piece of work. Managers create tasks, work on them and have them verified." }
        (tabs(view, &fields))
        (filters(view, &fields))
        (shown)
    };
    Ok(page(&session, Some(Section::Tasks), "Tasks", &body))
}

fn tabs(view: View, fields: &Fields) -> Markup {
    html! {
        nav .tabs aria-label="View" {
            ul {
                @for it in View::ALL {
                    @let kept = KEPT.map(|name| (name, fields.text(name)));
                    @let parameters = [&[("view", it.value())][..], &kept].concat();
                    li {
                        a href=(address(Section::Tasks.address(), &parameters))
                            aria-current=[(it == view).then_some("page")] { (it.title()) }
                    }
                }
            }
        }
    }
}

fn filters(view: View, fields: &Fields) -> Markup {
    let mut statuses = vec![("", "Any status")];
    statuses.extend(TaskStatus::ALL.map(|status| (status.as_str(), title(status))));
    let filled = FormState { fields, error: None };
    html! {
        form .filter method="get" action=(Section::Tasks.address()) role="search" {
            @if view != View::List { input type="hidden" name="view" value=(view.value()); }
            (input(filled, ("text", "text"), "search", "Text", ""))
            @if view == View::List { (options(filled, "status", "Status", "", &statuses)) }
            (input(filled, ("project_id", "project_id"), "search", "Project", ""))
            (input(filled, ("user_id", "user_id"), "search", "User", ""))
            button .button type="submit" { "Filter" }
        }
    }
}

/// Renders that no task matches, and how one is made.
fn nothing() -> Markup {
    empty(
        "No matching tasks.",
        &html! {
            "Ask a manager for one, as in “create a task: paint the fence”. "
            a href=(Section::Tasks.address()) { "Show all tasks" } "."
        },
    )
}

fn listed(tasks: &[TaskListItem]) -> Markup {
    let rows: Vec<Markup> = tasks.iter().map(row).collect();
    html! {
        p .count { (format::count(rows.len(), "task", "tasks")) ", last changed first" }
        (table("Tasks, last changed first", &HEADINGS, &rows))
    }
}

pub(super) fn title(status: TaskStatus) -> &'static str {
    match status {
        TaskStatus::Pending => "Pending",
        TaskStatus::Ready => "Ready",
        TaskStatus::Running => "Running",
        TaskStatus::Blocked => "Blocked",
        TaskStatus::Completed => "Completed",
        TaskStatus::Failed => "Failed",
        TaskStatus::Canceled => "Canceled",
    }
}

fn tone(status: TaskStatus) -> Tone {
    match status {
        TaskStatus::Completed => Tone::Good,
        TaskStatus::Failed => Tone::Bad,
        TaskStatus::Running | TaskStatus::Blocked => Tone::Warn,
        TaskStatus::Pending | TaskStatus::Ready | TaskStatus::Canceled => Tone::Plain,
    }
}

fn status_badge(status: TaskStatus) -> Markup {
    badge(tone(status), title(status))
}

/// Renders a task as a link.
fn link(task: &TaskListItem) -> Markup {
    html! { a href=(page_of(&task.task_id)) { bdi { (visible(&task.name)) } } }
}

fn row(task: &TaskListItem) -> Markup {
    let cells_of = [
        html! {
            (link(task))
            @if task.title != task.name { span .sub { (visible(&task.title)) } }
        },
        status_badge(task.status),
        html! { (or_dash(task.project_id.as_deref())) },
        html! { (or_dash(task.user_id.as_deref())) },
        html! { (format::timestamp(&task.updated_at)) },
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}
