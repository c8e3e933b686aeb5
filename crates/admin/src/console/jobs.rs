//! Pages of jobs in sandboxes: list with filter, one job with its log as it grows, cancel.

mod log;

use std::{sync::Arc, time::Duration};

use api::{Job, JobFilter, JobStatus, JobSummary};
use axum::{
    extract::{Path, State},
    response::Response,
};
use http::HeaderMap;
use log::LogView;
use maud::{Markup, html};
use subjects::job::End;

use super::{
    Console, Failure,
    components::{
        FormState, Tone, address, badge, button, cells, confirm, empty, input, name, options, or_dash, short,
        table, visible,
    },
    flash,
    form::{Fields, PostedForm},
    format,
    live::{self, LiveView, Update},
    page::{Section, page, with_actions},
    session::Session,
    tasks,
};

const HEADINGS: [&str; 5] = ["Job", "Status", "Where", "Task", "Created"];
const POLL_INTERVAL: Duration = Duration::from_millis(500);

pub(super) fn page_of(id: &str) -> String {
    format!(
        "{}/{}",
        Section::Jobs.address(),
        url::form_urlencoded::byte_serialize(id.as_bytes()).collect::<String>()
    )
}

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let status = JobStatus::ALL.into_iter().find(|status| status.as_str() == fields.text("status"));
    let filter = JobFilter {
        status,
        task_id: fields.owned("task_id"),
        node_id: fields.owned("node_id"),
        ..JobFilter::default()
    };
    let jobs = console.admin.list_jobs(&session.actor, &filter).await?;
    let mut statuses = vec![("", "Any status")];
    statuses.extend(JobStatus::ALL.map(|status| (status.as_str(), title(status))));
    let filled = FormState { fields: &fields, error: None };
    let body = html! {
        p .lead { "A job is a command that a node runs in a sandbox, for a task." }
        form .filter method="get" action=(Section::Jobs.address()) role="search" {
            (options(filled, "status", "Status", "", &statuses))
            (input(filled, ("task_id", "task_id"), "search", "Task", ""))
            (input(filled, ("node_id", "node_id"), "search", "Node", ""))
            button .button type="submit" { "Filter" }
        }
        @if jobs.is_empty() {
            (empty("No matching jobs.", &html! {
                "Managers create them with " code { "sandbox.run" } ". "
                a href=(Section::Jobs.address()) { "Show all jobs" } "."
            }))
        } @else {
            p .count { (format::count(jobs.len(), "job", "jobs")) ", newest first" }
            (listed(&jobs))
        }
    };
    Ok(page(&session, Some(Section::Jobs), "Jobs", &body))
}

/// Renders a table of jobs.
pub(super) fn listed(jobs: &[JobSummary]) -> Markup {
    let rows: Vec<Markup> = jobs.iter().map(row).collect();
    table("Jobs, newest first", &HEADINGS, &rows)
}

fn title(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Queued => "Queued",
        JobStatus::Running => "Running",
        JobStatus::Completed => "Completed",
        JobStatus::Failed => "Failed",
        JobStatus::Canceled => "Canceled",
    }
}

fn status_badge(status: JobStatus) -> Markup {
    let tone = match status {
        JobStatus::Completed => Tone::Good,
        JobStatus::Failed => Tone::Bad,
        JobStatus::Running => Tone::Warn,
        JobStatus::Queued | JobStatus::Canceled => Tone::Plain,
    };
    badge(tone, title(status))
}

/// Returns how a job ended, for people.
fn ended(end: &End) -> String {
    let text = match end {
        End::Exited { code } => format!("Exited with code {code}"),
        End::Signalled { signal } => format!("Ended by signal {signal}"),
        End::Oom => "Used more memory than its limit".to_owned(),
        End::Timeout => "Ran longer than its limit".to_owned(),
        End::Output => "Wrote more output than its limit".to_owned(),
        End::Disk => "Wrote more to its disk than its limit".to_owned(),
        End::Cancelled => "Was cancelled".to_owned(),
        End::NodeLost { why } => format!("Its node was lost{}", with_reason(why.as_deref())),
        End::EngineFailed { why } => format!("No process could be started{}", with_reason(Some(why))),
    };
    visible(&text)
}

fn with_reason(why: Option<&str>) -> String {
    why.map_or_else(String::new, |why| format!(": {why}"))
}

fn row(job: &JobSummary) -> Markup {
    let cells_of = [
        html! {
            a href=(page_of(&job.job_id)) { (short(&job.job_id)) }
            span .sub { code { (visible(&job.command)) } }
        },
        html! {
            (status_badge(job.status))
            @if let Some(end) = &job.end { span .sub { (ended(end)) } }
            @if job.cancel_requested_at.is_some() && !job.status.is_final() {
                span .sub { "cancel requested" }
            }
        },
        html! { @match &job.node_id {
            Some(node) => { bdi { "node " (visible(node)) } },
            None => { bdi { (visible(&job.queue)) } },
        } },
        html! { a href=(tasks::page_of(&job.task_id)) { (short(&job.task_id)) } },
        html! { (format::timestamp(&job.created_at)) },
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let job = console.admin.get_job(&session.actor, &id).await?;
    let mut log = LogView::default();
    log.read_on(&console.admin, &session.actor, &job.job_id).await;
    let body = html! {
        p .crumbs { a href=(Section::Jobs.address()) { "Jobs" } " / " (name(&job.job_id)) }
        (render(&job, &log))
        @if !job.status.is_final() && job.cancel_requested_at.is_none() {
            (confirm(
                "Cancel",
                &html! { "A queued job ends at once, a running one when its node receives the cancel." },
                &button(
                    &session,
                    "/console/jobs/cancel",
                    &[("id", &job.job_id)],
                    "danger small",
                    "Cancel this job",
                ),
            ))
        }
    };
    let is_open = !job.status.is_final() || !log.is_complete();
    let source = format!("{}/live", page_of(&job.job_id));
    let actions = if is_open {
        live::panel_until(&source, Some("Ended"))
    } else {
        html! {}
    };
    Ok(with_actions(&session, Some(Section::Jobs), "Job", &actions, &body))
}

fn render(job: &Job, log: &LogView) -> Markup {
    html! {
        div #job { (facts(job)) }
        section #log { h2 { "Output" } (log.render(job)) }
    }
}

fn facts(job: &Job) -> Markup {
    let limits = &job.limits;
    html! {
        dl .facts {
            div { dt { "Status" } dd { (status_badge(job.status)) } }
            @if let Some(why) = &job.waiting_because { div .whole { dt { "Why" } dd { (visible(why)) } } }
            @if let Some(end) = &job.end { div { dt { "End" } dd { (ended(end)) } } }
            div .whole { dt { "Command" } dd { code { (visible(&job.command.join(" "))) } } }
            @if let Some(image) = &job.image { div .whole { dt { "Image" } dd { (name(image)) } } }
            div { dt { "Task" } dd { a href=(tasks::page_of(&job.task_id)) { (name(&job.task_id)) } } }
            div { dt { "Queue" } dd { bdi { (visible(&job.queue)) } } }
            div { dt { "Node" } dd { @match &job.node_id {
                Some(node) => { a href=(address("/console/nodes/node", &[("id", node)])) { (name(node)) } },
                None => { (or_dash(None)) },
            } } }
            @if job.attempt > 0 { div { dt { "Attempt" } dd { (job.attempt) } } }
            div { dt { "Created" } dd { (format::timestamp(&job.created_at)) } }
            @for (title, at) in [
                ("Started", &job.started_at),
                ("Ended", &job.ended_at),
                ("Asked to end", &job.cancel_requested_at),
            ] {
                @if let Some(at) = at { div { dt { (title) } dd { (format::timestamp(at)) } } }
            }
            @if let Some(usage) = job.usage {
                div {
                    dt { "Used" }
                    dd {
                        (format::duration(micros(usage.wall_ms)))
                        ", " (usage.cpu_ms) " ms of CPU, " (usage.memory_peak_bytes / (1 << 20)) " MiB"
                    }
                }
            }
            div {
                dt { "Limits" }
                dd {
                    (cores(limits.cpu_milli)) ", " (limits.memory_mb) " MiB, "
                    (limits.seconds) " s"
                }
            }
            @if !job.network.is_empty() {
                div .whole { dt { "Network" } dd { (visible(&job.network.join(", "))) } }
            }
            @if !job.files.is_empty() {
                div .whole {
                    dt { "Files" }
                    dd {
                        ul { @for file in &job.files { li { (name(&file.path)) " " (file.size) " bytes" } } }
                    }
                }
            }
            @if !job.problems.is_empty() {
                div .whole {
                    dt { "Problems" }
                    dd { ul { @for problem in &job.problems { li { (visible(problem)) } } } }
                }
            }
        }
    }
}

pub(super) async fn live(
    State(console): State<Arc<Console>>,
    session: Session,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let job = console.admin.get_job(&session.actor, &id).await?;
    let updates = JobUpdates { id: job.job_id, log: LogView::default(), last: None };
    Ok(live::events(console, headers, POLL_INTERVAL, updates))
}

struct JobUpdates {
    id: String,
    log: LogView,
    last: Option<String>,
}

impl LiveView for JobUpdates {
    async fn poll(&mut self, console: &Console, session: &Session) -> Update {
        let Ok(job) = console.admin.get_job(&session.actor, &self.id).await else { return Update::Unchanged };
        self.log.read_on(&console.admin, &session.actor, &self.id).await;
        let parts = render(&job, &self.log);
        if job.status.is_final() && self.log.is_complete() {
            return Update::Last(parts);
        }
        if self.last.as_ref() == Some(&parts.0) {
            return Update::Unchanged;
        }
        self.last = Some(parts.0.clone());
        Update::Parts(parts)
    }
}

pub(super) async fn cancel(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let id = posted.fields.text("id");
    let cancelled = console.admin.cancel_job(&posted.session.actor, id).await;
    let back = if cancelled.is_ok() { page_of(id) } else { Section::Jobs.address().to_owned() };
    flash::redirect_after(&console, &back, cancelled, |job| match job.status.is_final() {
        true => "The job has ended already.".to_owned(),
        false => "Cancel requested: the job ends when its node receives it.".to_owned(),
    })
}

fn cores(milli: u32) -> String {
    let unit = if milli == 1000 { "core" } else { "cores" };
    format!("{} {unit}", f64::from(milli) / 1000.0)
}

fn micros(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or_default().saturating_mul(1_000)
}
