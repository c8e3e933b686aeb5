//! Pages of schedules: list, one schedule with its firings and runs, and what can be done with it.

mod edit;
mod fields;
mod tables;

use std::sync::Arc;

use api::{
    Concurrency, MissedRuns, Schedule, ScheduleChange, ScheduleDetails, ScheduleFilter, SchedulePayload,
    ScheduleRunFilter, ScheduleTiming,
};
use axum::{extract::State, response::Response};
use maud::{Markup, html};

pub(super) use self::edit::{create, edit, new, update};
use self::tables::{firings_table, next_firings, runs_table};
use super::{
    Console, Failure,
    components::{
        FormState, Tone, address, author, badge, button, cells, confirm, dash, empty, input, name, or_dash,
        table, visible, visible_lines,
    },
    flash,
    form::{Fields, PostedForm},
    format,
    page::{Section, with_actions},
    session::Session,
};

const HEADINGS: [&str; 4] = ["Schedule", "Due", "Next", "State"];
const NEW: &str = "/console/schedules/new";
const PAGE_SIZE: u32 = 50;

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let offset: u32 = fields.text("offset").parse().unwrap_or_default();
    let filter = ScheduleFilter {
        user_id: fields.owned("user_id"),
        // One more than the page has, to tell whether it is the last.
        limit: Some(u64::from(PAGE_SIZE) + 1),
        offset: Some(offset),
    };
    let found = console.admin.list_schedules(&session.actor, &filter).await?;
    let has_more = found.len() > PAGE_SIZE as usize;
    let is_admin = session.actor.is_admin();
    let rows: Vec<Markup> = found.iter().take(PAGE_SIZE as usize).map(|it| row(it, is_admin)).collect();
    let page_at = |offset: u32| {
        let offset = if offset == 0 { String::new() } else { offset.to_string() };
        address(Section::Schedules.address(), &[("user_id", fields.text("user_id")), ("offset", &offset)])
    };
    let filled = FormState { fields: &fields, error: None };
    let body = html! {
        p .lead {
            "A schedule asks the project manager for something, or queues a job, whenever it is due. \
             An orchestrator fires it."
        }
        @if is_admin {
            form .filter method="get" action=(Section::Schedules.address()) role="search" {
                (input(filled, ("user_id", "user_id"), "search", "User", ""))
                button .button type="submit" { "Filter" }
            }
        }
        @if rows.is_empty() {
            (empty("No schedules.", &html! {
                a href=(NEW) { "Create one" } " to have work done at certain times."
            }))
        } @else {
            p .count { (format::count(rows.len(), "schedule", "schedules")) ", by name" }
            (table("Schedules, by name", &HEADINGS, &rows))
        }
        nav .pages aria-label="Pages" {
            @if offset > 0 {
                a .button .quiet href=(page_at(offset.saturating_sub(PAGE_SIZE))) { "Previous" }
            }
            @if has_more { a .button .quiet href=(page_at(offset.saturating_add(PAGE_SIZE))) { "Next" } }
        }
    };
    let actions = html! { a .button href=(NEW) { "Create a schedule" } };
    Ok(with_actions(&session, Some(Section::Schedules), "Schedules", &actions, &body))
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let details = console.admin.get_schedule(&session.actor, fields.text("id")).await?;
    let schedule = &details.schedule;
    let offset: u32 = fields.text("offset").parse().unwrap_or_default();
    let filter = ScheduleRunFilter { limit: Some(u64::from(PAGE_SIZE) + 1), offset: Some(offset) };
    let runs = console.admin.list_schedule_runs(&session.actor, &schedule.schedule_id, &filter).await?;
    let has_more = runs.len() > PAGE_SIZE as usize;
    let page_at = |offset: u32| {
        let offset = if offset == 0 { String::new() } else { offset.to_string() };
        address("/console/schedules/schedule", &[("id", &schedule.schedule_id), ("offset", &offset)])
    };
    let shown = &runs[..runs.len().min(PAGE_SIZE as usize)];
    let body = html! {
        p .crumbs { a href=(Section::Schedules.address()) { "Schedules" } " / " (name(&schedule.name)) }
        (facts(&details))
        section {
            h2 { "Payload" }
            (payload(&details.payload))
        }
        section {
            h2 { "Next firings" }
            @match next_firings(&console, &session, &schedule.timing) {
                Some(next) if schedule.next_at.is_some() => {
                    @if !schedule.enabled { p .hint { "They do not fire while the schedule is suspended." } }
                    (firings_table(&next.firings))
                }
                _ => { p .hint { "No more firings." } }
            }
        }
        section {
            h2 { "Runs" }
            @if shown.is_empty() {
                p .hint { "There are none yet." }
            } @else {
                (runs_table(shown, session.actor.is_admin()))
            }
            nav .pages aria-label="Pages" {
                @if offset > 0 {
                    a .button .quiet href=(page_at(offset.saturating_sub(PAGE_SIZE))) { "Later" }
                }
                @if has_more {
                    a .button .quiet href=(page_at(offset.saturating_add(PAGE_SIZE))) { "Earlier" }
                }
            }
        }
    };
    Ok(with_actions(&session, Some(Section::Schedules), &schedule.name, &actions(&session, schedule), &body))
}

pub(super) async fn run(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let id = fields.text("id");
    let started = console.admin.run_schedule(&session.actor, id).await;
    flash::redirect_after(&console, &page_of(id), started, |run| match run.job_id {
        Some(_) => "A job was queued.".to_owned(),
        None => "A run was started. An orchestrator publishes it within seconds.".to_owned(),
    })
}

pub(super) async fn switch(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let (id, on) = (fields.text("id"), fields.text("on") == "true");
    let change = ScheduleChange { enabled: Some(on), ..ScheduleChange::default() };
    let changed = console.admin.change_schedule(&session.actor, id, change).await;
    flash::redirect_after(&console, &page_of(id), changed, |it| match on {
        true => format!("{} resumed. What was due meanwhile counts as missed.", it.schedule.name),
        false => format!("{} suspended. It does not fire until it is resumed.", it.schedule.name),
    })
}

pub(super) async fn delete(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let version = fields.given("version").and_then(|version| version.parse().ok());
    let deleted = console.admin.delete_schedule(&session.actor, fields.text("id"), version).await;
    flash::redirect_after(&console, Section::Schedules.address(), deleted, |it| {
        format!("{} deleted, with its runs.", it.name)
    })
}

fn page_of(id: &str) -> String {
    address("/console/schedules/schedule", &[("id", id)])
}

fn actions(session: &Session, schedule: &Schedule) -> Markup {
    let version = schedule.version.to_string();
    let id = ("id", schedule.schedule_id.as_str());
    let (on, title) = if schedule.enabled { ("false", "Suspend") } else { ("true", "Resume") };
    html! {
        (button(session, "/console/schedules/run", &[id], "small", "Run now"))
        (button(session, "/console/schedules/switch", &[id, ("on", on)], "quiet small", title))
        a .button .quiet .small href=(address("/console/schedules/edit", &[id])) { "Change" }
        (confirm(
            "Delete",
            &html! { "The schedule and its runs are lost. Work that it started continues." },
            &button(
                session,
                "/console/schedules/delete",
                &[id, ("version", &version)],
                "danger small",
                "Delete this schedule",
            ),
        ))
    }
}

fn row(schedule: &Schedule, is_admin: bool) -> Markup {
    let cells_of = [
        html! {
            a href=(page_of(&schedule.schedule_id)) { bdi { (visible(&schedule.name)) } }
            span .sub {
                (schedule.payload_type.as_str().replace('_', " "))
                @if is_admin { " for " bdi { (visible(&schedule.user_id)) } }
            }
        },
        due(&schedule.timing),
        schedule.next_at.as_deref().map_or_else(dash, format::timestamp),
        state(schedule),
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}

fn state(schedule: &Schedule) -> Markup {
    match (schedule.enabled, &schedule.next_at) {
        (false, _) => badge(Tone::Warn, "Suspended"),
        (true, Some(_)) => badge(Tone::Good, "Active"),
        (true, None) => badge(Tone::Plain, "Ended"),
    }
}

/// Renders when a schedule is due.
fn due(timing: &ScheduleTiming) -> Markup {
    match timing {
        ScheduleTiming::Cron { expression, time_zone } => html! {
            code { (visible(expression)) } span .sub { (visible(time_zone)) }
        },
        ScheduleTiming::Interval { every_seconds, .. } => {
            let every = humantime::format_duration(std::time::Duration::from_secs(*every_seconds));
            html! { "Every " (every) }
        }
        ScheduleTiming::Once { at, time_zone } => html! {
            "Once, at " (tables::local_time(at))
            @if let Some(zone) = time_zone { span .sub { (visible(zone)) } }
        },
    }
}

fn facts(details: &ScheduleDetails) -> Markup {
    let schedule = &details.schedule;
    let missed = match schedule.missed {
        MissedRuns::Skip => "Skipped".to_owned(),
        MissedRuns::Once => "The latest fires".to_owned(),
        MissedRuns::All => format!("The latest {} fire", schedule.missed_limit),
    };
    let concurrency = match schedule.concurrency {
        Concurrency::Allow => "Both run",
        Concurrency::Forbid => "The new one is skipped",
        Concurrency::Replace => "The old one is cancelled",
    };
    let timeout = humantime::format_duration(std::time::Duration::from_secs(schedule.timeout_seconds));
    html! {
        div .card {
            dl .facts {
                div { dt { "State" } dd { (state(schedule)) } }
                div { dt { "Due" } dd { (due(&schedule.timing)) } }
                div {
                    dt { "Next" }
                    dd { (schedule.next_at.as_deref().map_or_else(dash, format::timestamp)) }
                }
                div { dt { "User" } dd { bdi { (visible(&schedule.user_id)) } } }
                div { dt { "Project" } dd { (or_dash(schedule.project_id.as_deref())) } }
                div { dt { "Missed slots" } dd { (missed) } }
                div { dt { "If a run is open" } dd { (concurrency) } }
                div { dt { "A run may take" } dd { (timeout) } }
                div {
                    dt { "Changed" }
                    dd {
                        (format::timestamp(&schedule.updated_at)) " by " (author(&schedule.updated_by))
                        ", version " (schedule.version)
                    }
                }
            }
        }
    }
}

fn payload(payload: &SchedulePayload) -> Markup {
    match payload {
        SchedulePayload::Prompt { prompt } => html! {
            pre tabindex="0" aria-label="Prompt" { code { (visible_lines(prompt)) } }
        },
        SchedulePayload::Task { name, description, acceptance_criteria } => html! {
            div .card {
                dl .facts {
                    div .whole { dt { "Task" } dd { bdi { (visible(name)) } } }
                    @if let Some(description) = description {
                        div .whole {
                            dt { "Description" }
                            dd .described { bdi { (visible_lines(description)) } }
                        }
                    }
                    @if !acceptance_criteria.is_empty() {
                        div .whole {
                            dt { "Acceptance criteria" }
                            @for criterion in acceptance_criteria { dd { bdi { (visible(criterion)) } } }
                        }
                    }
                }
            }
        },
        SchedulePayload::JobSpec { kind, payload, task_id, node_id } => {
            let task = task_id.as_ref().map(|id| id.as_str());
            let node = node_id.as_ref().map(|id| id.as_str());
            let text = serde_json::to_string_pretty(payload).unwrap_or_default();
            html! {
                div .card {
                    dl .facts {
                        div { dt { "Job" } dd { bdi { (visible(kind)) } } }
                        div { dt { "Task" } dd { (or_dash(task)) } }
                        div { dt { "Node" } dd { (or_dash(node)) } }
                    }
                }
                pre tabindex="0" aria-label="Payload of the job" { code { (visible_lines(&text)) } }
            }
        }
    }
}
