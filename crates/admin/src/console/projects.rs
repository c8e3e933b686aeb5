//! The page of projects: how many tasks each has, by status.

use std::{collections::BTreeMap, sync::Arc};

use api::{Project, TaskStatus};
use axum::{extract::State, response::Response};
use control::TaskCount;
use maud::{Markup, html};
use store::entity::project;

use super::{
    Console, Failure,
    components::{cells, dash, empty, name, or_dash, table, visible},
    format,
    page::{Section, page},
    session::Session,
    tasks,
};

const HEADINGS: [&str; 4] = ["Project", "Tasks", "User", "Changed"];

/// The number of tasks by status.
type Counts = BTreeMap<&'static str, i64>;

pub(super) async fn list(State(console): State<Arc<Console>>, session: Session) -> Result<Response, Failure> {
    let (admin, actor) = (&console.admin, &session.actor);
    let projects = admin.list_entries::<project::Entity>(actor).await?;
    let mut counts: BTreeMap<Option<String>, Counts> = BTreeMap::new();
    for TaskCount { project_id, status, tasks } in admin.count_tasks(actor).await? {
        counts.entry(project_id).or_default().insert(status.as_str(), tasks);
    }
    let none = Counts::new();
    let row = |project: &Project| row(project, counts.get(&Some(project.id.clone())).unwrap_or(&none));
    let rows: Vec<Markup> = projects.iter().map(row).collect();
    let body = html! {
        p .lead { "A project holds tasks that belong together, with their dependencies and preferences." }
        @if rows.is_empty() {
            (empty("No projects yet.", &html! {
                "Add one over REST, as in " code { "PUT /api/v1/projects/fence" } " with "
                code { "{\"name\": \"fence\", \"title\": \"The fence\"}" } ". Tasks need none: "
                a href=(Section::Tasks.address()) { "Show all tasks" } "."
            }))
        } @else {
            p .count { (format::count(rows.len(), "project", "projects")) }
            (table("Projects, by name", &HEADINGS, &rows))
        }
        @if let Some(counts) = counts.get(&None) {
            section { h2 { "Tasks of no project" } p { (parts(counts, None)) } }
        }
    };
    Ok(page(&session, Some(Section::Projects), "Projects", &body))
}

fn row(project: &Project, counts: &Counts) -> Markup {
    let cells_of = [
        html! {
            a href=(tasks::board_of(&project.id)) { bdi { (visible(&project.title)) } }
            span .sub { (name(&project.id)) }
            @if !project.description.is_empty() { span .sub .clamp { (visible(&project.description)) } }
        },
        html! {
            @if counts.is_empty() { (dash()) } @else {
                (parts(counts, Some(&project.id)))
                span .sub {
                    a href=(tasks::board_of(&project.id)) { "Board" } " · "
                    a href=(tasks::graph_of(&project.id)) { "Dependencies" }
                }
            }
        },
        html! { (or_dash(project.user_id.as_deref())) },
        html! { (format::timestamp(&project.updated_at)) },
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}

/// Renders the counts in the order of statuses; those of a project lead to its tasks.
fn parts(counts: &Counts, project: Option<&str>) -> Markup {
    let present = TaskStatus::ALL.into_iter().filter_map(|status| {
        counts.get(status.as_str()).filter(|count| **count > 0).map(|count| (status, *count))
    });
    html! {
        span .parts {
            @for (status, count) in present {
                @let text = format!("{} {}", format::number(count), tasks::title(status).to_lowercase());
                @match project {
                    Some(project) => { a href=(tasks::list_of(project, status)) { (text) } }
                    None => { span { (text) } }
                }
            }
        }
    }
}
