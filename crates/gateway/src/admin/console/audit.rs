mod check; // whether the chain holds
mod filter; // which rows
mod live; // rows as they come

use std::sync::Arc;

use axum::{extract::State, response::Response};
pub(super) use check::{Checked, lately, rows, verdict, verify};
pub(super) use filter::moment;
pub(super) use live::live;
use maud::{Markup, html};
use subjects::audit::Row;

use self::filter::Wanted;
use super::{
    Console, Failure,
    form::Fields,
    page::{Section, page},
    parts::{Tone, address, agent, badge, button, cells, dash, empty, name, or_dash, short, table_with},
    session::Session,
    when,
};
use crate::{
    admin::{Error, console::parts::visible},
    audit::Filter,
    clock,
};

pub(super) const HEADINGS: [&str; 6] = ["Tool", "When", "Who", "Decision", "Outcome", "Took"];
const ON_A_PAGE: u64 = 50;
/// Of one call; there is one, unless something is very wrong.
const OF_A_CALL: u64 = 10;

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let admin = &console.admin;
    let wanted = Wanted::read(&fields);
    // First: what comes while we search is then seen twice at most, and never missed.
    let newest = admin.query_audit(&session.actor, &Filter { limit: Some(1), ..Filter::default() }).await?;
    let newest = newest.first().map_or(0, |row| row.seq);
    let filter = Filter { limit: Some(ON_A_PAGE), ..wanted.filter.clone() };
    let found = admin.query_audit(&session.actor, &filter).await?;
    let is_first = wanted.filter.before.is_none();
    let live = is_first && wanted.filter.until.is_none();
    let older = found.last().filter(|_| found.len() >= usize::try_from(ON_A_PAGE).unwrap_or(usize::MAX));
    let checked = lately(&console, &session.actor).await?;
    let rows: Vec<Markup> = found.iter().map(row).collect();
    let source = wanted.address("/console/audit/live", &[]);
    let body = html! {
        div .card .chain {
            div {
                h2 { "Chain" }
                (verdict(checked.as_ref()))
            }
            (button(&session, "/console/audit/verify", &[], "quiet", "Verify now"))
        }
        (wanted.form(&fields))
        div .above {
            p .count {
                @if live { "Newest on top" } @else { "Older rows, newest on top" }
            }
            @if live {
                div .live data-live=(source) data-after=(newest) hidden {
                    span #live-said role="status" aria-live="polite" {}
                    button .button .quiet .small type="button" aria-pressed="true" { "Pause" }
                }
            }
        }
        @if rows.is_empty() && !live {
            (empty("Row not found.", &html! { a href=(Section::Audit.address()) { "Show all rows" } }))
        } @else {
            (table_with("Calls, newest on top", &HEADINGS, "rows", &rows))
            @if rows.is_empty() {
                div #none { (empty("Nothing yet.", &html! {
                    "Every call of a tool, and every change in the console, gets a row here. "
                    a href=(Section::Audit.address()) { "Show all rows" }
                })) }
            }
        }
        nav .pages aria-label="Pages" {
            @if !is_first { a .button .quiet href=(wanted.address(Section::Audit.address(), &[])) { "Newest" } }
            @if let Some(last) = older {
                a .button .quiet href=(wanted.address(Section::Audit.address(), &[("before", &last.seq.to_string())])) { "Older" }
            }
        }
    };
    Ok(page(&session, Some(Section::Audit), "Audit", &body))
}

/// All that is known about a call.
pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let call = fields.text("call");
    let filter = Filter { call_id: Some(call.to_owned()), limit: Some(OF_A_CALL), ..Filter::default() };
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
        when::at(row.created_at),
        html! {
            span .nowrap { (agent(&row.agent)) }
            @if let Some(user) = &row.user_id { span .sub { bdi { (visible(user)) } } }
            @if let Some(task) = &row.task_id { span .sub { "task " bdi { (visible(task)) } } }
        },
        decision(row),
        outcome(row),
        html! { (when::took(row.duration_us)) },
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
            "unknown" => { "Not known" }
            other => { (visible(other)) }
        }
        @if let Some(why) = why { span .sub { (visible(&why)) } }
    }
}

fn details(row: &Row) -> Markup {
    let text = |text: &Option<String>| or_dash(text.as_deref());
    let link = |field: &str, value: &Option<String>| match value {
        Some(value) => {
            html! { a href=(address(Section::Audit.address(), &[(field, value)])) { bdi { (visible(value)) } } }
        }
        None => dash(),
    };
    let exact = when::exact(clock::from_micros(row.created_at));
    html! {
        div .card {
            dl .facts {
                div { dt { "Row" } dd { "#" (row.seq) } }
                div { dt { "Tool" } dd { (link("tool", &Some(row.tool.clone()))) } }
                div { dt { "When" } dd { (when::at(row.created_at)) " · " (exact) } }
                div { dt { "Decision" } dd { (decision(row)) } }
                div { dt { "Outcome" } dd { (outcome(row)) } }
                div { dt { "Took" } dd { (when::took(row.duration_us)) } }
                div { dt { "Who" } dd { (agent(&row.agent)) } }
                div { dt { "Token" } dd { @match &row.subject { Some(id) => { a href=(address(Section::Audit.address(), &[("subject", id)])) { (short(id)) } } None => { (dash()) } } } }
                div { dt { "User" } dd { (link("user_id", &row.user_id)) } }
                div { dt { "Task" } dd { (link("task_id", &row.task_id)) } }
                div { dt { "Project" } dd { (text(&row.project_id)) } }
                div { dt { "Run" } dd { (text(&row.run_id)) } }
                div { dt { "Job" } dd { (text(&row.job_id)) } }
                div .whole { dt { "Trace" } dd { (text(&row.trace_id)) } }
                div .whole { dt { "Digest of the arguments" } dd { @match &row.arguments_digest { Some(digest) => { code .long { (digest) } } None => { (dash()) } } } }
                div .whole { dt { "Hash of the row" } dd { code .long { (row.hash) } } }
            }
        }
    }
}
