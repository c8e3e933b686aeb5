//! The page of quarantined tools: what changed, approve, reject.

use std::sync::Arc;

use api::{Difference, QuarantineReason, QuarantinedTool};
use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{
    Console, Failure,
    components::{Tone, address, badge, button, empty, name, visible},
    flash,
    form::{Fields, PostedForm},
    format,
    page::{Section, page},
    session::Session,
};

/// Tools shown at a time.
const PAGE_SIZE: usize = 20;

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let mut waiting = console.admin.list_quarantine(&session.actor).await?;
    if let Some(server) = fields.given("server") {
        waiting.retain(|tool| tool.namespace == server);
    }
    let mut shown = Vec::new();
    for tool in waiting.iter().take(PAGE_SIZE) {
        shown.push(console.admin.diff_tool(&session.actor, &tool.namespace, &tool.remote).await?);
    }
    let body = html! {
        p .lead {
            "A tool that is new or has changed is not served until it is approved. An approval applies to \
             exactly the version that is shown here."
        }
        @if waiting.is_empty() {
            (empty("No tools need approval.", &html! {
                "New tools appear here when you " a href="/console/servers/new" { "add a server" }
                ", and changed ones when a server changes them."
            }))
        } @else {
            p .count {
                (format::count(waiting.len(), "tool needs approval", "tools need approval"))
                @if waiting.len() > PAGE_SIZE { "; the first " (PAGE_SIZE) " are shown" }
            }
            @for difference in &shown { (card(&session, difference)) }
        }
    };
    Ok(page(&session, Some(Section::Quarantine), "Quarantine", &body))
}

pub(super) async fn approve(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let (namespace, remote) = (fields.text("namespace"), fields.text("remote"));
    let done = console.admin.approve_tool(&session.actor, namespace, remote, fields.text("hash")).await;
    let message = |()| format!("{} of {namespace} is approved. Agents may call it now.", visible(remote));
    flash::redirect_after(&console, Section::Quarantine.address(), done, message)
}

pub(super) async fn reject(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let (namespace, remote) = (fields.text("namespace"), fields.text("remote"));
    let done = console.admin.reject_tool(&session.actor, namespace, remote).await;
    let message =
        |()| format!("{} of {namespace} rejected. It is not served until it is approved.", visible(remote));
    flash::redirect_after(&console, Section::Quarantine.address(), done, message)
}

fn card(session: &Session, difference: &Difference) -> Markup {
    let Difference { tool, lines } = difference;
    let named = [("namespace", tool.namespace.as_str()), ("remote", tool.remote.as_str())];
    let server = address("/console/servers/server", &[("namespace", &tool.namespace)]);
    html! {
        article .card .waiting {
            header {
                h2 { (name(&tool.name)) }
                (reason_badge(tool.why))
            }
            p .meta {
                "From " a href=(server) { (name(&tool.namespace)) }
                ", seen " (format::timestamp(&tool.seen_at)) "."
                @if tool.why != QuarantineReason::New {
                    " " bdi { (flash::sentence(&visible(&tool.reason))) }
                }
            }
            @if let Some(title) = &tool.title { p { strong { (title) } } }
            @if !tool.description.is_empty() { p .described { (tool.description) } }
            (render_diff(tool, lines))
            div .actions {
                @if let Some(hash) = &tool.offered_hash {
                    (button(
                        session,
                        "/console/quarantine/approve",
                        &[named[0], named[1], ("hash", hash)],
                        "",
                        "Approve",
                    ))
                }
                @if tool.why != QuarantineReason::Rejected {
                    (button(session, "/console/quarantine/reject", &named, "quiet", "Reject"))
                }
            }
        }
    }
}

fn reason_badge(why: QuarantineReason) -> Markup {
    match why {
        QuarantineReason::New => badge(Tone::Plain, "New"),
        QuarantineReason::Changed => badge(Tone::Warn, "Changed"),
        QuarantineReason::Collision => badge(Tone::Bad, "Name taken"),
        QuarantineReason::Rejected => badge(Tone::Plain, "Rejected"),
    }
}

/// Renders the diff. Each line has a sign, and a word for screen readers.
fn render_diff(tool: &QuarantinedTool, lines: &[String]) -> Markup {
    let is_new = tool.pinned_hash.is_none();
    let title = if is_new { "Offered version" } else { "What changed since it was approved" };
    let lines = lines.iter().filter(|line| !line.starts_with("--- ") && !line.starts_with("+++ "));
    html! {
        details open[!is_new] {
            summary { (title) }
            @if !is_new {
                p .hint {
                    "Lines with " del { "−" }
                    " are in the approved version only; lines with " ins { "+" }
                    " in the offered one."
                }
            }
            div .diff tabindex="0" role="region" aria-label=(title) {
                @for line in lines { (diff_line(line)) }
            }
        }
    }
}

fn diff_line(line: &str) -> Markup {
    let (sign, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
    html! {
        @match sign {
            "+" => {
                ins { span .sign aria-hidden="true" { "+" } span .unseen { "added: " } code { (rest) } }
            }
            "-" => {
                del { span .sign aria-hidden="true" { "−" } span .unseen { "removed: " } code { (rest) } }
            }
            "@" => { div .gap { code { (line) } } }
            _ => { div { span .sign aria-hidden="true" { " " } code { (rest) } } }
        }
    }
}
