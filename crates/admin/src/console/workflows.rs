//! Pages of workflows: list with filter, one workflow with live updates, and the forms to steer it.

mod engine_graph;
pub(super) mod parts;
pub(super) mod steering;

use std::{sync::Arc, time::Duration};

use api::{Workflow, WorkflowDetails, WorkflowFilter, WorkflowStatus};
use axum::{
    extract::{Path, State},
    response::Response,
};
use contract::{
    finding::Finding,
    workflow::{Node, WaitingFor},
};
use http::HeaderMap;
use maud::{Markup, html};

pub(super) use self::steering::{answer, cancel, pause, retry, start};
use super::{
    Console, Failure,
    components::{
        FormState, Tone, author, badge, cells, empty, input, name, options, or_dash, table, visible,
        visible_lines,
    },
    form::Fields,
    format,
    live::{self, LiveView, Update},
    page::{Section, page, with_actions},
    session::Session,
    tasks,
};

const HEADINGS: [&str; 6] = ["Task", "Status", "Last at", "Project", "User", "Changed"];
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the address of a workflow's page.
pub(super) fn page_of(task_id: &str) -> String {
    let id: String = url::form_urlencoded::byte_serialize(task_id.as_bytes()).collect();
    format!("{}/{id}", Section::Workflows.address())
}

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let filter = WorkflowFilter {
        status: WorkflowStatus::ALL.into_iter().find(|status| status.as_str() == fields.text("status")),
        project_id: fields.owned("project_id"),
        user_id: fields.owned("user_id"),
        ..WorkflowFilter::default()
    };
    let workflows = console.admin.list_workflows(&session.actor, &filter).await?;
    let is_filtered = filter != WorkflowFilter::default();
    let rows: Vec<Markup> = workflows.iter().map(row).collect();
    let mut statuses = vec![("", "Any status")];
    statuses.extend(WorkflowStatus::ALL.map(|status| (status.as_str(), title(status))));
    let filled = FormState { fields: &fields, error: None };
    let body = html! {
        p .lead {
            "A workflow drives a task to completion: it plans steps, runs them in sandboxes, has the results \
             reviewed, and asks you when it cannot go on."
        }
        form .filter method="get" action=(Section::Workflows.address()) role="search" {
            (options(filled, "status", "Status", "", &statuses))
            (input(filled, ("project_id", "project_id"), "search", "Project", ""))
            (input(filled, ("user_id", "user_id"), "search", "User", ""))
            button .button type="submit" { "Filter" }
        }
        @if rows.is_empty() && is_filtered {
            (empty("No matching workflows.", &html! {
                a href=(Section::Workflows.address()) { "Show all workflows" } "."
            }))
        } @else if rows.is_empty() {
            (empty("No workflows yet.", &html! {
                "Open a " a href=(Section::Tasks.address()) { "task" } " and choose “Start its workflow”, \
                 ask a manager in the " a href=(Section::Chat.address()) { "chat" }
                " to do something, or run "
                code { "cynodectl workflows start TASK" } "."
            }))
        } @else {
            p .count { (format::count(rows.len(), "workflow", "workflows")) ", last changed first" }
            (table("Workflows, last changed first", &HEADINGS, &rows))
        }
    };
    Ok(page(&session, Some(Section::Workflows), "Workflows", &body))
}

pub(super) fn title(status: WorkflowStatus) -> &'static str {
    match status {
        WorkflowStatus::Queued => "Queued",
        WorkflowStatus::Running => "Running",
        WorkflowStatus::Waiting => "Waiting",
        WorkflowStatus::Done => "Done",
        WorkflowStatus::Failed => "Failed",
        WorkflowStatus::Cancelled => "Cancelled",
    }
}

/// Renders the status. One that waits says for what.
pub(super) fn status_badge(workflow: &Workflow) -> Markup {
    let tone = match workflow.status {
        WorkflowStatus::Done => Tone::Good,
        WorkflowStatus::Failed => Tone::Bad,
        WorkflowStatus::Running | WorkflowStatus::Waiting => Tone::Warn,
        WorkflowStatus::Queued | WorkflowStatus::Cancelled => Tone::Plain,
    };
    let text = match (workflow.status, workflow.waiting_for) {
        (WorkflowStatus::Waiting, Some(WaitingFor::Question)) => "Asks you",
        (WorkflowStatus::Waiting, Some(WaitingFor::Approval)) => "Needs approval",
        (WorkflowStatus::Waiting, Some(WaitingFor::Pause)) => "Paused",
        (status, _) => title(status),
    };
    badge(tone, text)
}

/// Renders the status as a link to the workflow.
pub(super) fn badge_link(workflow: &Workflow) -> Markup {
    html! { a .quiet-link href=(page_of(&workflow.task_id)) { (status_badge(workflow)) } }
}

/// Returns why a workflow waits, without the tool by which agents would go on: people have a button.
pub(super) fn why_waiting(workflow: &Workflow) -> Option<String> {
    let why = workflow.waiting_because.as_deref()?;
    let why = why.split("; workflow.").next().unwrap_or(why).replace(" with workflow.retry", "");
    Some(super::flash::sentence(&visible(&why)))
}

fn row(workflow: &Workflow) -> Markup {
    let asks = matches!(workflow.waiting_for, Some(WaitingFor::Question | WaitingFor::Approval));
    let last = if asks { Some(Node::AskPerson.as_str()) } else { workflow.last_node.as_deref() };
    let last = last.map(parts::node_title);
    let cells_of = [
        html! {
            a href=(page_of(&workflow.task_id)) { bdi { (visible(&workflow.task_name)) } }
            @if workflow.task_title != workflow.task_name { span .sub { (visible(&workflow.task_title)) } }
        },
        html! {
            (status_badge(workflow))
            @match (&workflow.question, &workflow.error) {
                (Some(question), _) => { span .sub .clamp { (visible(question)) } }
                (None, Some(error)) => { span .sub .clamp { (visible(error)) } }
                (None, None) => { @if let Some(why) = why_waiting(workflow) { span .sub .clamp { (why) } } }
            }
        },
        html! { (or_dash(last.as_deref())) },
        html! { (or_dash(workflow.project_id.as_deref())) },
        html! { (or_dash(Some(&workflow.user_id))) },
        html! { (format::timestamp(&workflow.updated_at)) },
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}

/// The contents of the page of a workflow.
struct View {
    details: WorkflowDetails,
    findings: Vec<Finding>,
}

impl View {
    async fn load(console: &Console, session: &Session, id: &str) -> Result<Self, crate::Error> {
        let details = console.admin.get_workflow(&session.actor, id).await?;
        let findings = console.admin.list_findings(&session.actor, &details.workflow.task_id).await?;
        Ok(Self { details, findings })
    }

    fn is_final(&self) -> bool {
        self.details.workflow.status.is_final()
    }

    fn render(&self, session: &Session) -> Markup {
        let details = &self.details;
        html! {
            div #steering { (steering::panel(session, &details.workflow)) }
            div #facts { (facts(details)) }
            section #graph { h2 { "Where it is" } (engine_graph::render(details)) }
            section #steps { h2 { "Steps" } (parts::steps(details)) }
            section #other-work { (parts::other_work(details)) }
            section #findings { h2 { "Findings" } (parts::findings(&self.findings)) }
            section #events { h2 { "What happened" } (parts::events(&details.events)) }
        }
    }
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let view = View::load(&console, &session, &id).await?;
    let workflow = &view.details.workflow;
    let body = html! {
        p .crumbs {
            a href=(Section::Workflows.address()) { "Workflows" } " / "
            a href=(tasks::page_of(&workflow.task_id)) { (name(&workflow.task_name)) }
        }
        (view.render(&session))
    };
    let source = format!("{}/live", page_of(&workflow.task_id));
    let actions = if view.is_final() {
        html! {}
    } else {
        live::panel_until(&source, Some("Ended"))
    };
    let title = visible(&workflow.task_title);
    Ok(with_actions(&session, Some(Section::Workflows), &title, &actions, &body))
}

fn facts(details: &WorkflowDetails) -> Markup {
    let workflow = &details.workflow;
    html! {
        dl .facts {
            div { dt { "Status" } dd { (status_badge(workflow)) } }
            @if let Some(why) = why_waiting(workflow) { div .whole { dt { "Why" } dd { (why) } } }
            @if let Some(error) = &workflow.error {
                div .whole { dt { "Error" } dd .described { (visible_lines(error)) } }
            }
            @if let Some(summary) = &workflow.summary {
                div .whole { dt { "Summary" } dd .described { (visible_lines(summary)) } }
            }
            div { dt { "Task" } dd {
                a href=(tasks::page_of(&workflow.task_id)) { bdi { (visible(&workflow.task_name)) } }
            } }
            div { dt { "Project" } dd { (or_dash(workflow.project_id.as_deref())) } }
            div { dt { "User" } dd { (or_dash(Some(&workflow.user_id))) } }
            div { dt { "Started" } dd {
                (format::timestamp(&workflow.created_at)) " by " (author(&workflow.started_by))
            } }
            @if let Some(ended) = &workflow.ended_at {
                div { dt { "Ended" } dd { (format::timestamp(ended)) } }
            }
            @if let Some(holder) = &workflow.holder {
                div { dt { "Runner" } dd { bdi { (visible(holder)) } } }
            }
            @if workflow.run > 1 { div { dt { "Run" } dd { (workflow.run) } } }
            div { dt { "Cost" } dd { (parts::cost(details.cost_usd())) } }
            div { dt { "Tries" } dd {
                "at most " (workflow.policy.max_attempts) " for each step, "
                (workflow.policy.max_reviews) " reviews"
            } }
        }
    }
}

pub(super) async fn live(
    State(console): State<Arc<Console>>,
    session: Session,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let details = console.admin.get_workflow(&session.actor, &id).await?;
    let updates = WorkflowUpdates { task_id: details.workflow.task_id, last: None };
    Ok(live::events(console, headers, POLL_INTERVAL, updates))
}

struct WorkflowUpdates {
    task_id: String,
    last: Option<String>,
}

impl LiveView for WorkflowUpdates {
    async fn poll(&mut self, console: &Console, session: &Session) -> Update {
        let Ok(view) = View::load(console, session, &self.task_id).await else { return Update::Unchanged };
        let parts = view.render(session);
        if view.is_final() {
            return Update::Last(parts);
        }
        if self.last.as_ref() == Some(&parts.0) {
            return Update::Unchanged;
        }
        self.last = Some(parts.0.clone());
        Update::Parts(parts)
    }
}
