//! The page of a task: its facts, its workflow with steps and question, jobs, findings.

use std::sync::Arc;

use api::{JobFilter, JobSummary, Task, TaskListItem, TaskStatus, WorkflowDetails};
use axum::{
    extract::{Path, State},
    response::Response,
};
use contract::finding::Finding;
use maud::{Markup, html};

use super::{
    super::{
        Console, Failure,
        components::{empty, name, or_dash, visible, visible_lines},
        format, jobs,
        page::{Section, page},
        session::Session,
        workflows::{self, parts, steering},
    },
    board_of, link, page_of, status_badge,
};
use crate::{Error, operations::TaskNeighbours};

/// How many jobs are shown; all of them have a page of their own.
const MAX_JOBS: u64 = 10;

pub(in super::super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let (admin, actor) = (&console.admin, &session.actor);
    let task = admin.get_task(actor, &id).await?;
    let workflow = match admin.get_workflow(actor, &task.task_id).await {
        Ok(workflow) => Some(workflow),
        Err(Error::NotFound { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let filter =
        JobFilter { task_id: Some(task.task_id.clone()), limit: Some(MAX_JOBS), ..JobFilter::default() };
    let jobs = admin.list_jobs(actor, &filter).await?;
    let findings = admin.list_findings(actor, &task.task_id).await?;
    let neighbours = admin.list_neighbours(actor, &task.task_id).await?;
    let body = html! {
        p .crumbs { a href=(Section::Tasks.address()) { "Tasks" } " / " (name(&task.name)) }
        @if let Some(details) = &workflow { (steering::panel(&session, &details.workflow)) }
        (facts(&task, &neighbours))
        @if !task.acceptance_criteria.is_empty() {
            section {
                h2 { "Acceptance criteria" }
                ul .marked { @for criterion in &task.acceptance_criteria { li { (visible(criterion)) } } }
            }
        }
        (work(&session, &task, workflow.as_ref(), &jobs, &findings))
    };
    Ok(page(&session, Some(Section::Tasks), &visible(&task.title), &body))
}

fn work(
    session: &Session,
    task: &Task,
    workflow: Option<&WorkflowDetails>,
    jobs: &[JobSummary],
    findings: &[Finding],
) -> Markup {
    let is_final = matches!(task.status, TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Canceled);
    html! {
        section {
            h2 { "Workflow" }
            @match workflow {
                Some(details) => { (workflow_facts(details)) }
                None if task.status == TaskStatus::Canceled => {
                    (empty("The task was cancelled without a workflow.", &html! {
                        "Starting one reopens the task."
                    }))
                    (steering::start_form(session, task))
                }
                None if is_final => { p { "The task ended without a workflow." } }
                None => {
                    (empty("No workflow yet.", &html! {
                        "A workflow plans the task, runs its steps in sandboxes and has them verified."
                    }))
                    (steering::start_form(session, task))
                }
            }
        }
        @if let Some(details) = workflow { section { h2 { "Steps" } (parts::steps(details)) } }
        @if !jobs.is_empty() {
            section {
                h2 { "Jobs" }
                (jobs::listed(jobs))
                p { a href=(parts::jobs_of(&task.task_id)) { "Jobs of this task" } }
            }
        }
        @if workflow.is_some() || !findings.is_empty() {
            section { h2 { "Findings" } (parts::findings(findings)) }
        }
    }
}

fn workflow_facts(details: &WorkflowDetails) -> Markup {
    let workflow = &details.workflow;
    let steps = details.open_steps();
    html! {
        dl .facts {
            div { dt { "Status" } dd { (workflows::badge_link(workflow)) } }
            div { dt { "At" } dd {
                (or_dash(details.present_node().map(|node| parts::node_title(node.as_str())).as_deref()))
                @if !steps.is_empty() { span .sub { (visible(&steps.join(", "))) } }
            } }
            div { dt { "Cost" } dd { (parts::cost(details.cost_usd())) } }
            div { dt { "Started" } dd { (format::timestamp(&workflow.created_at)) } }
            @if let Some(why) = workflows::why_waiting(workflow) { div .whole { dt { "Why" } dd { (why) } } }
            @if let Some(error) = &workflow.error {
                div .whole { dt { "Error" } dd .described { (visible_lines(error)) } }
            }
            @if let Some(summary) = &workflow.summary {
                div .whole { dt { "Summary" } dd .described { (visible_lines(summary)) } }
            }
        }
        p .after { a href=(workflows::page_of(&workflow.task_id)) { "Watch this workflow" } }
    }
}

fn facts(task: &Task, neighbours: &TaskNeighbours) -> Markup {
    html! {
        dl .facts {
            div { dt { "Status" } dd { (status_badge(task.status)) } }
            div { dt { "Name" } dd { (name(&task.name)) } }
            div .whole { dt { "Id" } dd { (name(&task.task_id)) } }
            @if !task.description.is_empty() {
                div .whole { dt { "Description" } dd .described { (visible_lines(&task.description)) } }
            }
            div { dt { "Project" } dd {
                @match &task.project_id {
                    Some(project) => { a href=(board_of(project)) { bdi { (visible(project)) } } }
                    None => { (or_dash(None)) }
                }
            } }
            div { dt { "User" } dd { (or_dash(task.user_id.as_deref())) } }
            @if let Some(parent) = &task.parent_task_id {
                div { dt { "Part of" } dd { a href=(page_of(parent)) { (name(parent)) } } }
            }
            @if let Some(schedule) = &task.schedule_id {
                div { dt { "Schedule" } dd { (name(schedule)) } }
            }
            div { dt { "Created" } dd { (format::timestamp(&task.created_at)) } }
            div { dt { "Changed" } dd { (format::timestamp(&task.updated_at)) } }
            @for (title, others) in
                [("Waits for", &neighbours.dependencies), ("Needed by", &neighbours.dependents)] {
                @if !others.is_empty() { div .whole { dt { (title) } dd { (links(others)) } } }
            }
            div { dt { "Jobs" } dd { a href=(parts::jobs_of(&task.task_id)) { "Jobs of this task" } } }
        }
    }
}

fn links(tasks: &[TaskListItem]) -> Markup {
    html! { ul .lines { @for task in tasks { li { (link(task)) " " (status_badge(task.status)) } } } }
}
