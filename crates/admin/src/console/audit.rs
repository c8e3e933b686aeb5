//! Pages of the audit: rows with filter and live updates, one call, verification of the chain.

mod check;
mod filter;
mod live;
mod nodes;

use std::sync::Arc;

use axum::{extract::State, response::Response};
pub(super) use check::{ChainCheck, count_rows, recent_check, render_check, verify};
pub(super) use filter::format_moment;
pub(super) use live::live;
use maud::{Markup, html};
use subjects::audit::Row;

use self::filter::AuditFilter;
use super::{
    Console, Failure,
    components::{Tone, address, agent, badge, button, cells, dash, empty, name, or_dash, short, table_with},
    form::Fields,
    format,
    page::{Section, page},
    session::Session,
};
use audit::Filter;
use store::clock;

use crate::{Error, console::components::visible};

pub(super) const HEADINGS: [&str; 6] = ["Tool", "When", "Who", "Decision", "Outcome", "Duration"];
const PAGE_SIZE: u64 = 50;
/// A call has one row, unless something is very wrong.
const MAX_ROWS_PER_CALL: u64 = 10;

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let admin = &console.admin;
    let filter_form = AuditFilter::from_fields(&fields);
    // Read first: a row that is added during the search is then shown twice at most, and never missed.
    let newest = admin.query_audit(&session.actor, &Filter { limit: Some(1), ..Filter::default() }).await?;
    let newest = newest.first().map_or(0, |row| row.seq);
    let filter = Filter { limit: Some(PAGE_SIZE), ..filter_form.filter.clone() };
    let found = admin.query_audit(&session.actor, &filter).await?;
    let is_first = filter_form.filter.before.is_none();
    let live = is_first && filter_form.filter.until.is_none();
    let older = found.last().filter(|_| found.len() >= usize::try_from(PAGE_SIZE).unwrap_or(usize::MAX));
    let check = recent_check(&console, &session.actor).await?;
    let of_nodes = admin.node_audit(&session.actor).await?;
    let rows: Vec<Markup> = found.iter().map(row).collect();
    let source = filter_form.address("/console/audit/live", &[]);
    let body = html! {
        div .card .chain {
            div {
                h2 { "Chain" }
                (render_check(check.as_ref()))
                (nodes::render(&of_nodes))
            }
            (button(&session, "/console/audit/verify", &[], "quiet", "Verify now"))
        }
        (filter_form.form(&fields))
        div .above {
            p .count {
                @if live { "Newest first" } @else { "Older rows, newest first" }
            }
            @if live {
                div .live data-live=(source) data-after=(newest) hidden {
                    span #live-said role="status" aria-live="polite" {}
                    button .button .quiet .small type="button" aria-pressed="true" { "Stop refreshing" }
                }
            }
        }
        @if rows.is_empty() && !live {
            (empty("No matching rows.", &html! { a href=(Section::Audit.address()) { "Show all rows" } }))
        } @else {
            (table_with("Calls, newest first", &HEADINGS, "rows", &rows))
            @if rows.is_empty() {
                div #none { (empty("Nothing yet.", &html! {
                    "Every tool call and every change gets a row here. "
                    a href=(Section::Audit.address()) { "Show all rows" }
                })) }
            }
        }
        nav .pages aria-label="Pages" {
            @if !is_first {
                a .button .quiet href=(filter_form.address(Section::Audit.address(), &[])) { "Newest" }
            }
            @if let Some(last) = older {
                @let before = last.seq.to_string();
                @let older = filter_form.address(Section::Audit.address(), &[("before", &before)]);
                a .button .quiet href=(older) { "Older" }
            }
        }
    };
    Ok(page(&session, Some(Section::Audit), "Audit", &body))
}

/// Shows the rows of one call.
pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let call = fields.text("call");
    let filter =
        Filter { call_id: Some(call.to_owned()), limit: Some(MAX_ROWS_PER_CALL), ..Filter::default() };
    let found = console.admin.query_audit(&session.actor, &filter).await?;
    if found.is_empty() {
        return Err(Error::NotFound { what: "call", id: call.to_owned() }.into());
    }
    let body = html! {
        p .crumbs { a href=(Section::Audit.address()) { "Audit" } " / " (name(call)) }
        @for row in &found { (details(row)) }
    };
    Ok(page(&session, Some(Section::Audit), "A call", &body))
}

pub(super) fn row(row: &Row) -> Markup {
    let page = address("/console/audit/row", &[("call", &row.call_id)]);
    let cells_of = [
        html! {
            a href=(page) { @if row.tool.is_empty() { "(unreadable)" } @else { (name(&row.tool)) } }
            span .sub { "#" (row.seq) }
        },
        format::time(row.created_at),
        html! {
            span .nowrap { (agent(&row.agent)) }
            @if let Some(user) = &row.user_id { span .sub { bdi { (visible(user)) } } }
            @if let Some(task) = &row.task_id { span .sub { "task " bdi { (visible(task)) } } }
        },
        decision(row),
        outcome(row),
        html! { (format::duration(row.duration_us)) },
    ];
    html! { tr role="row" id={ "row-" (row.seq) } { (cells(&HEADINGS, &cells_of)) } }
}

fn decision(row: &Row) -> Markup {
    match row.decision.as_str() {
        "allow" => badge(Tone::Good, "Allowed"),
        "deny" => badge(Tone::Bad, "Denied"),
        other => badge(Tone::Warn, other),
    }
}

fn outcome(row: &Row) -> Markup {
    let why = row.error_type.as_deref().map(|why| why.replace('_', " "));
    html! {
        @match row.status.as_str() {
            "success" => { "Succeeded" }
            "denied" => { "Not run" }
            "replayed" => { "Answered from the recorded result" }
            "failure" => { "Failed" }
            "unknown" => { "Unknown" }
            other => { (visible(other)) }
        }
        @if let Some(why) = why { span .sub { (visible(&why)) } }
    }
}

fn details(row: &Row) -> Markup {
    let text = |text: &Option<String>| or_dash(text.as_deref());
    let link = |field: &str, value: &Option<String>| match value {
        Some(value) => {
            html! {
                a href=(address(Section::Audit.address(), &[(field, value)])) { bdi { (visible(value)) } }
            }
        }
        None => dash(),
    };
    let exact = format::exact_time(clock::from_micros(row.created_at));
    html! {
        div .card {
            dl .facts {
                div { dt { "Row" } dd { "#" (row.seq) } }
                div { dt { "Tool" } dd { (link("tool", &Some(row.tool.clone()))) } }
                div { dt { "When" } dd { (format::time(row.created_at)) " · " (exact) } }
                div { dt { "Decision" } dd { (decision(row)) } }
                div { dt { "Outcome" } dd { (outcome(row)) } }
                div { dt { "Duration" } dd { (format::duration(row.duration_us)) } }
                div { dt { "Who" } dd { (agent(&row.agent)) } }
                div {
                    dt { "Token" }
                    dd {
                        @match &row.subject {
                            Some(id) => {
                                a href=(address(Section::Audit.address(), &[("subject", id)])) { (short(id)) }
                            }
                            None => { (dash()) }
                        }
                    }
                }
                div { dt { "User" } dd { (link("user_id", &row.user_id)) } }
                div { dt { "Task" } dd { (link("task_id", &row.task_id)) } }
                div { dt { "Project" } dd { (text(&row.project_id)) } }
                div { dt { "Run" } dd { (text(&row.run_id)) } }
                div { dt { "Job" } dd { (text(&row.job_id)) } }
                div .whole { dt { "Trace" } dd { (text(&row.trace_id)) } }
                @if let Some(lease) = &row.lease_id {
                    div .whole {
                        dt { "Lease" }
                        dd { a href=(address("/console/leases/lease", &[("id", lease)])) { (lease) } }
                    }
                }
                @if row.profile.is_some() {
                    div { dt { "Memory profile" } dd { (text(&row.profile)) } }
                }
                div .whole {
                    dt { "Digest of the arguments" }
                    dd {
                        @match &row.arguments_digest {
                            Some(digest) => { code .long { (digest) } } None => { (dash()) }
                        }
                    }
                }
                div .whole { dt { "Hash of the row" } dd { code .long { (row.hash) } } }
            }
        }
    }
}
