mod add; // the form for a new one

use std::sync::Arc;

pub(super) use add::{add, new};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use maud::{Markup, html};

use super::{
    Console, Failure, flash,
    form::{Fields, Posted},
    page::{Section, page, with_actions},
    parts::{
        Filled, Tone, address, author, badge, button, cells, confirm, empty, form, input, name, options,
        table, visible,
    },
    session::Session,
    tools::{self, SCOPES},
    when,
};
use crate::{
    admin::{
        Error,
        operations::{Tool, Transport, Upstream, UpstreamChange},
    },
    upstreams::Refreshed,
};

const HEADINGS: [&str; 5] = ["Server", "Health", "Reached by", "Tools", ""];
const TOOL_HEADINGS: [&str; 3] = ["Tool", "For", "State"];

pub(super) async fn list(State(console): State<Arc<Console>>, session: Session) -> Result<Response, Failure> {
    let servers = console.admin.list_upstreams(&session.actor).await?;
    let rows: Vec<Markup> = servers.iter().map(|server| row(&session, server)).collect();
    let body = html! {
        @if rows.is_empty() {
            (empty("No servers registered.", &html! {
                "Add an MCP server to offer its tools to agents. Tools need your approval before they can be called."
            }))
        } @else {
            p .count { (when::count(rows.len(), "server", "servers")) }
            (table("Upstream MCP servers", &HEADINGS, &rows))
        }
    };
    let actions = html! { a .button href="/console/servers/new" { "Add a server" } };
    Ok(with_actions(&session, Some(Section::Servers), "Servers", &actions, &body))
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let server = console.admin.get_upstream(&session.actor, fields.text("namespace")).await?;
    show_page(&console, &session, &server, &fields, None).await
}

pub(super) async fn update(State(console): State<Arc<Console>>, posted: Posted) -> Result<Response, Failure> {
    let Posted { session, fields } = posted;
    let namespace = fields.text("namespace");
    let concurrency = match fields.given("concurrency").map(str::parse::<u32>) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(Error::Invalid { field: "concurrency", message: "is no number".to_owned() }),
    };
    let changed = match concurrency {
        Ok(concurrency) => {
            let change = UpstreamChange {
                transport: None,
                scope: fields.given("scope").and_then(|scope| scope.parse().ok()),
                call_timeout: fields.owned("call_timeout"),
                concurrency,
            };
            console.admin.update_upstream(&session.actor, namespace, change).await
        }
        Err(error) => Err(error),
    };
    if let Err(error @ Error::Invalid { .. }) = &changed {
        let server = console.admin.get_upstream(&session.actor, namespace).await?;
        let page = show_page(&console, &session, &server, &fields, Some(error)).await?;
        return Ok((error.status(), page).into_response());
    }
    let said = |server: Upstream| format!("{} changed. It applies from the next call on.", server.namespace);
    flash::after(&console, &at(namespace), changed, said)
}

pub(super) async fn switch(State(console): State<Arc<Console>>, posted: Posted) -> Result<Response, Failure> {
    let Posted { session, fields } = posted;
    let (namespace, on) = (fields.text("namespace"), fields.text("on") == "true");
    let switched = console.admin.enable_upstream(&session.actor, namespace, on).await;
    flash::after(&console, &back(&fields), switched, |server| match server.enabled {
        true => format!("{namespace} enabled. Its approved tools can be called."),
        false => format!("{namespace} disabled. Its tools cannot be called; their configuration is kept."),
    })
}

pub(super) async fn refresh(
    State(console): State<Arc<Console>>,
    posted: Posted,
) -> Result<Response, Failure> {
    let Posted { session, fields } = posted;
    let namespace = fields.text("namespace");
    let refreshed = console.admin.refresh_upstream(&session.actor, namespace).await;
    flash::after(&console, &back(&fields), refreshed, |found| told(namespace, &found))
}

pub(super) async fn remove(State(console): State<Arc<Console>>, posted: Posted) -> Result<Response, Failure> {
    let Posted { session, fields } = posted;
    let namespace = fields.text("namespace");
    let removed = console.admin.remove_upstream(&session.actor, namespace).await;
    flash::after(&console, Section::Servers.address(), removed, |()| {
        format!("{namespace} removed, with its tools and their approvals.")
    })
}

/// How a server is, in a word and a colour.
pub(super) fn health(server: &Upstream) -> (Tone, String) {
    let state = server.health.as_ref().map(|health| health.state.as_str());
    let (tone, words) = match (server.enabled, state) {
        (false, _) => (Tone::Plain, "Off"),
        (true, Some("up")) => (Tone::Good, "Up"),
        (true, Some("down")) => (Tone::Bad, "Down"),
        (true, Some("open")) => (Tone::Bad, "Circuit open after failures"),
        (true, _) => (Tone::Plain, "Not used yet"),
    };
    (tone, words.to_owned())
}

fn told(namespace: &str, found: &Refreshed) -> String {
    let Refreshed { new, changed, unchanged, gone } = found;
    format!("{namespace} refreshed: {new} new, {changed} changed, {unchanged} unchanged, {gone} removed.")
}

fn at(namespace: &str) -> String {
    address("/console/servers/server", &[("namespace", namespace)])
}

fn back(fields: &Fields) -> String {
    if fields.is_on("list") { Section::Servers.address().to_owned() } else { at(fields.text("namespace")) }
}

fn row(session: &Session, server: &Upstream) -> Markup {
    let (tone, words) = health(server);
    let counts = server.tools;
    let cells_of = [
        html! {
            a href=(at(&server.namespace)) { (name(&server.namespace)) }
            @if let Some(owner) = &server.owner { span .sub { "installed by " bdi { (owner) } } }
        },
        html! {
            (badge(tone, &words))
            @if let Some(error) = trouble(server) { span .sub .clamp title=(visible(error)) { (flash::sentence(&visible(error))) } }
        },
        reached(server.transport.as_ref()),
        html! {
            span .nowrap { (counts.approved) " approved" }
            @if counts.quarantined > 0 {
                span .sub {
                    a href=(address(Section::Quarantine.address(), &[("server", &server.namespace)])) {
                        (counts.quarantined) " waiting"
                    }
                }
            }
            @if counts.gone > 0 { span .sub { (counts.gone) " gone" } }
        },
        buttons(session, server, true),
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}

fn trouble(server: &Upstream) -> Option<&str> {
    let health = server.health.as_ref()?;
    health.last_error.as_deref().filter(|_| health.state != "up")
}

fn reached(transport: Option<&Transport>) -> Markup {
    match transport {
        Some(Transport::Http(http)) => html! { span .sub { "HTTP" } code .long { (visible(&http.url)) } },
        Some(Transport::Stdio(stdio)) => {
            html! { span .sub { "Program" } code .long { (visible(&stdio.argv.join(" "))) } }
        }
        None => badge(Tone::Bad, "Unreadable"),
    }
}

fn buttons(session: &Session, server: &Upstream, is_list: bool) -> Markup {
    let namespace = ("namespace", server.namespace.as_str());
    let list = ("list", if is_list { "1" } else { "" });
    let (on, word) = if server.enabled { ("false", "Switch off") } else { ("true", "Switch on") };
    html! {
        div .actions {
            @if server.enabled {
                (button(session, "/console/servers/refresh", &[namespace, list], "quiet small", "Refresh"))
            }
            (button(session, "/console/servers/switch", &[namespace, list, ("on", on)], "quiet small", word))
            (confirm(
                "Remove",
                &html! {
                    "Its " (when::count(server.tools.approved, "tool", "tools")) " and what was decided about them go with it. \
                     This cannot be undone."
                },
                &button(session, "/console/servers/remove", &[namespace], "danger small", "Remove this server"),
            ))
        }
    }
}

async fn show_page(
    console: &Console,
    session: &Session,
    server: &Upstream,
    fields: &Fields,
    error: Option<&Error>,
) -> Result<Response, Failure> {
    let tools = console.admin.list_tools(&session.actor).await?;
    let own: Vec<&Tool> =
        tools.iter().filter(|tool| tool.namespace.as_ref() == Some(&server.namespace)).collect();
    let rows: Vec<Markup> = own
        .iter()
        .map(|tool| {
            let page = address("/console/tools/tool", &[("name", &tool.name)]);
            let cells_of = [
                html! { a href=(page) { (name(&tool.name)) } },
                html! { (tools::scope(tool.scope)) },
                tools::state(tool),
            ];
            html! { tr role="row" { (cells(&TOOL_HEADINGS, &cells_of)) } }
        })
        .collect();
    let body = html! {
        p .crumbs { a href=(Section::Servers.address()) { "Servers" } " / " (name(&server.namespace)) }
        div .card { (facts(server)) (buttons(session, server, false)) }
        section {
            h2 { "Tools" }
            @if server.tools.quarantined > 0 {
                p {
                    (when::count(server.tools.quarantined, "tool waits", "tools wait")) " for approval. "
                    a href=(address(Section::Quarantine.address(), &[("server", &server.namespace)])) { "Decide" }
                }
            }
            @if rows.is_empty() {
                (empty("It offers no tools that are known here.", &html! { "Refresh it to ask what it offers." }))
            } @else {
                (table("Tools of this server", &TOOL_HEADINGS, &rows))
            }
        }
        section { h2 { "Limits" } (limits(session, server, fields, error)) }
    };
    Ok(page(session, Some(Section::Servers), &server.namespace, &body))
}

fn facts(server: &Upstream) -> Markup {
    let (tone, words) = health(server);
    html! {
        dl .facts {
            div { dt { "Health" } dd { (badge(tone, &words)) } }
            @if let Some(error) = trouble(server) { div .whole { dt { "Last error" } dd { (flash::sentence(&visible(error))) } } }
            div .whole { dt { "Reached by" } dd { (reached(server.transport.as_ref())) } }
            div { dt { "Names of its tools" } dd { @if server.prefix { code { (server.namespace) ".…" } } @else { "as they are over there" } } }
            div { dt { "For" } dd { (tools::scope(server.scope)) } }
            @if let Some(health) = &server.health {
                @if let Some(protocol) = &health.protocol { div { dt { "Protocol" } dd { (visible(protocol)) } } }
                div { dt { "Calls running" } dd { (health.in_flight) } }
                @if health.restarts > 0 { div { dt { "Started again" } dd { (health.restarts) " times" } } }
            }
            @if let Some(owner) = &server.owner { div { dt { "Installed by" } dd { bdi { (owner) } } } }
            div { dt { "Added" } dd { (when::text(&server.created_at)) " by " (author(&server.created_by)) } }
        }
    }
}

fn limits(session: &Session, server: &Upstream, fields: &Fields, error: Option<&Error>) -> Markup {
    let present = Fields::default()
        .with("scope", server.scope.as_str())
        .with("call_timeout", &server.call_timeout)
        .with("concurrency", server.concurrency.to_string());
    let filled = Filled { fields: if error.is_some() { fields } else { &present }, error };
    html! {
        div .card .narrow {
            (filled.alert())
            (form(session, "/console/servers/server", &[("namespace", &server.namespace)], &html! {
                (options(filled, "scope", "Which agents may call its tools", "Unless a tool has a setting of its own.", &SCOPES))
                (input(filled, ("call_timeout", "call_timeout"), "text", "Call timeout", "As 30s; at most 10m."))
                (input(filled, ("concurrency", "concurrency"), "number", "Concurrent calls", "Others wait for their turn."))
                button .button .quiet type="submit" { "Change" }
            }))
        }
    }
}
