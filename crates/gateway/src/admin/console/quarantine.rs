use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{
    Console, Failure, flash,
    form::{Fields, Posted},
    page::{Section, page},
    parts::{Tone, address, badge, button, empty, name, visible},
    session::Session,
    when,
};
use crate::admin::operations::{Difference, Waiting, Why};

/// Nobody decides about more at a time.
const AT_A_TIME: usize = 20;

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
    for tool in waiting.iter().take(AT_A_TIME) {
        shown.push(console.admin.diff_tool(&session.actor, &tool.namespace, &tool.remote).await?);
    }
    let body = html! {
        p .lead {
            "A tool that is new, or not what was approved any more, is not served until somebody has looked at it. \
             What is approved is what is shown here, and nothing else."
        }
        @if waiting.is_empty() {
            (empty("Nothing waits.", &html! {
                "New tools appear here when you " a href="/console/servers/new" { "add a server" }
                ", and changed ones when a server changes them."
            }))
        } @else {
            p .count {
                (when::count(waiting.len(), "tool waits", "tools wait"))
                @if waiting.len() > AT_A_TIME { "; the first " (AT_A_TIME) " are shown" }
            }
            @for difference in &shown { (card(&session, difference)) }
        }
    };
    Ok(page(&session, Some(Section::Quarantine), "Quarantine", &body))
}

pub(super) async fn approve(
    State(console): State<Arc<Console>>,
    posted: Posted,
) -> Result<Response, Failure> {
    let Posted { session, fields } = posted;
    let (namespace, remote) = (fields.text("namespace"), fields.text("remote"));
    let done = console.admin.approve_tool(&session.actor, namespace, remote, fields.text("hash")).await;
    let said = |()| format!("{} of {namespace} is approved. Agents may call it now.", visible(remote));
    flash::after(&console, Section::Quarantine.address(), done, said)
}

pub(super) async fn reject(State(console): State<Arc<Console>>, posted: Posted) -> Result<Response, Failure> {
    let Posted { session, fields } = posted;
    let (namespace, remote) = (fields.text("namespace"), fields.text("remote"));
    let done = console.admin.reject_tool(&session.actor, namespace, remote).await;
    let said =
        |()| format!("{} of {namespace} rejected. It is not served until it is approved.", visible(remote));
    flash::after(&console, Section::Quarantine.address(), done, said)
}

fn card(session: &Session, difference: &Difference) -> Markup {
    let Difference { tool, lines } = difference;
    let named = [("namespace", tool.namespace.as_str()), ("remote", tool.remote.as_str())];
    let server = address("/console/servers/server", &[("namespace", &tool.namespace)]);
    html! {
        article .card .waiting {
            header {
                h2 { (name(&tool.name)) }
                (why(tool.why))
            }
            p .meta {
                "From " a href=(server) { (name(&tool.namespace)) } ", seen " (when::text(&tool.seen_at))
                "."
                @if tool.why != Why::New { " " bdi { (flash::sentence(&visible(&tool.reason))) } }
            }
            @if let Some(title) = &tool.title { p { strong { (title) } } }
            @if !tool.description.is_empty() { p .described { (tool.description) } }
            (changes(tool, lines))
            div .actions {
                @if let Some(hash) = &tool.offered_hash {
                    (button(session, "/console/quarantine/approve", &[named[0], named[1], ("hash", hash)], "", "Approve"))
                }
                @if tool.why != Why::Rejected {
                    (button(session, "/console/quarantine/reject", &named, "quiet", "Reject"))
                }
            }
        }
    }
}

fn why(why: Why) -> Markup {
    match why {
        Why::New => badge(Tone::Plain, "New"),
        Why::Changed => badge(Tone::Warn, "Changed"),
        Why::Collision => badge(Tone::Bad, "Name taken"),
        Why::Rejected => badge(Tone::Plain, "Rejected"),
    }
}

/// Each line says by its sign and, for those who hear the page, by a word what became of it.
fn changes(tool: &Waiting, lines: &[String]) -> Markup {
    let is_new = tool.pinned_hash.is_none();
    let title = if is_new { "All of what it offers" } else { "What changed since it was approved" };
    let lines = lines.iter().filter(|line| !line.starts_with("--- ") && !line.starts_with("+++ "));
    html! {
        details open[!is_new] {
            summary { (title) }
            @if !is_new {
                p .hint { "Lines with " del { "−" } " were approved and are gone; lines with " ins { "+" } " are offered instead." }
            }
            div .diff tabindex="0" role="region" aria-label=(title) {
                @for line in lines { (changed(line)) }
            }
        }
    }
}

fn changed(line: &str) -> Markup {
    let (sign, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
    html! {
        @match sign {
            "+" => { ins { span .sign aria-hidden="true" { "+" } span .unseen { "added: " } code { (rest) } } }
            "-" => { del { span .sign aria-hidden="true" { "−" } span .unseen { "removed: " } code { (rest) } } }
            "@" => { div .gap { code { (line) } } }
            _ => { div { span .sign aria-hidden="true" { " " } code { (rest) } } }
        }
    }
}
