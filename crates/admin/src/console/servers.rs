//! Pages of upstream servers: list, one server, switch, refresh, removal.

mod add;

use std::sync::Arc;

pub(super) use add::{add, new};
use api::{Refreshed, Tool, Transport, Upstream, UpstreamChange};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use maud::{Markup, html};

use super::{
    Console, Failure,
    components::{
        FormState, Tone, address, author, badge, button, cells, confirm, empty, form, input, name, options,
        table, visible,
    },
    flash,
    form::{Fields, PostedForm},
    format,
    page::{Section, page, with_actions},
    session::Session,
    tools::{self, SCOPES},
};

use crate::Error;

const HEADINGS: [&str; 5] = ["Server", "Health", "Transport", "Tools", ""];
const TOOL_HEADINGS: [&str; 3] = ["Tool", "For", "State"];

pub(super) async fn list(State(console): State<Arc<Console>>, session: Session) -> Result<Response, Failure> {
    let servers = console.admin.list_upstreams(&session.actor).await?;
    let rows: Vec<Markup> = servers.iter().map(|server| row(&session, server)).collect();
    let body = html! {
        @if rows.is_empty() {
            (empty("No servers registered.", &html! {
                "Add an MCP server to offer its tools to agents. Tools need your approval before they can \
                 be called."
            }))
        } @else {
            p .count { (format::count(rows.len(), "server", "servers")) }
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

pub(super) async fn update(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let namespace = fields.text("namespace");
    let concurrency = match fields.given("concurrency").map(str::parse::<u32>) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => Err(Error::Invalid { field: "concurrency", message: "is not a number".to_owned() }),
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
    let message =
        |server: Upstream| format!("{} changed. It applies from the next call on.", server.namespace);
    flash::redirect_after(&console, &server_address(namespace), changed, message)
}

pub(super) async fn switch(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let (namespace, on) = (fields.text("namespace"), fields.text("on") == "true");
    let switched = console.admin.enable_upstream(&session.actor, namespace, on).await;
    flash::redirect_after(&console, &return_address(&fields), switched, |server| match server.enabled {
        true => format!("{namespace} enabled. Its approved tools can be called."),
        false => format!("{namespace} disabled. Its tools cannot be called; their configuration is kept."),
    })
}

pub(super) async fn refresh(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let namespace = fields.text("namespace");
    let refreshed = console.admin.refresh_upstream(&session.actor, namespace).await;
    flash::redirect_after(&console, &return_address(&fields), refreshed, |found| {
        refresh_message(namespace, &found)
    })
}

pub(super) async fn remove(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let namespace = fields.text("namespace");
    let removed = console.admin.remove_upstream(&session.actor, namespace).await;
    flash::redirect_after(&console, Section::Servers.address(), removed, |()| {
        format!("{namespace} removed, with its tools and their approvals.")
    })
}

/// Returns the health of a server as colour and text.
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

fn refresh_message(namespace: &str, found: &Refreshed) -> String {
    let Refreshed { new, changed, unchanged, gone } = found;
    format!("{namespace} refreshed: {new} new, {changed} changed, {unchanged} unchanged, {gone} removed.")
}

fn server_address(namespace: &str) -> String {
    address("/console/servers/server", &[("namespace", namespace)])
}

fn return_address(fields: &Fields) -> String {
    if fields.is_on("list") {
        Section::Servers.address().to_owned()
    } else {
        server_address(fields.text("namespace"))
    }
}

fn row(session: &Session, server: &Upstream) -> Markup {
    let (tone, words) = health(server);
    let counts = server.tools;
    let cells_of = [
        html! {
            a href=(server_address(&server.namespace)) { (name(&server.namespace)) }
            @if let Some(owner) = &server.owner { span .sub { "installed by " bdi { (owner) } } }
        },
        html! {
            (badge(tone, &words))
            @if let Some(error) = last_error(server) {
                span .sub .clamp title=(visible(error)) { (flash::sentence(&visible(error))) }
            }
        },
        transport(server.transport.as_ref()),
        html! {
            span .nowrap { (counts.approved) " approved" }
            @if counts.quarantined > 0 {
                span .sub {
                    a href=(address(Section::Quarantine.address(), &[("server", &server.namespace)])) {
                        (counts.quarantined) " quarantined"
                    }
                }
            }
            @if counts.gone > 0 { span .sub { (counts.gone) " gone" } }
        },
        buttons(session, server, true),
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}

fn last_error(server: &Upstream) -> Option<&str> {
    let health = server.health.as_ref()?;
    health.last_error.as_deref().filter(|_| health.state != "up")
}

fn transport(transport: Option<&Transport>) -> Markup {
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
    let (on, word) = if server.enabled { ("false", "Disable") } else { ("true", "Enable") };
    html! {
        div .actions {
            @if server.enabled {
                (button(session, "/console/servers/refresh", &[namespace, list], "quiet small", "Refresh"))
            }
            (button(session, "/console/servers/switch", &[namespace, list, ("on", on)], "quiet small", word))
            (confirm(
                "Remove",
                &html! {
                    "Its " (format::count(server.tools.approved, "tool", "tools"))
                    " and their approvals are removed, too. This cannot be undone."
                },
                &button(
                    session,
                    "/console/servers/remove",
                    &[namespace],
                    "danger small",
                    "Remove this server",
                ),
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
                    (format::count(server.tools.quarantined, "tool needs", "tools need")) " approval. "
                    a href=(address(Section::Quarantine.address(), &[("server", &server.namespace)])) {
                        "Decide"
                    }
                }
            }
            @if rows.is_empty() {
                (empty("No tools known.", &html! { "Refresh the server to list its tools." }))
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
            @if let Some(error) = last_error(server) {
                div .whole { dt { "Last error" } dd { (flash::sentence(&visible(error))) } }
            }
            div .whole { dt { "Transport" } dd { (transport(server.transport.as_ref())) } }
            div {
                dt { "Tool names" }
                dd { @if server.prefix { code { (server.namespace) ".…" } } @else { "as at the upstream" } }
            }
            div { dt { "For" } dd { (tools::scope(server.scope)) } }
            @if let Some(health) = &server.health {
                @if let Some(protocol) = &health.protocol {
                    div { dt { "Protocol" } dd { (visible(protocol)) } }
                }
                div { dt { "Calls running" } dd { (health.in_flight) } }
                @if health.restarts > 0 { div { dt { "Restarts" } dd { (health.restarts) } } }
            }
            @if let Some(owner) = &server.owner { div { dt { "Installed by" } dd { bdi { (owner) } } } }
            div {
                dt { "Added" }
                dd { (format::timestamp(&server.created_at)) " by " (author(&server.created_by)) }
            }
        }
    }
}

fn limits(session: &Session, server: &Upstream, fields: &Fields, error: Option<&Error>) -> Markup {
    let present = Fields::default()
        .with("scope", server.scope.as_str())
        .with("call_timeout", &server.call_timeout)
        .with("concurrency", server.concurrency.to_string());
    let filled = FormState { fields: if error.is_some() { fields } else { &present }, error };
    html! {
        div .card .narrow {
            (filled.alert())
            (form(session, "/console/servers/server", &[("namespace", &server.namespace)], &html! {
                (options(
                    filled,
                    "scope",
                    "Which agents may call its tools",
                    "A tool can override it.",
                    &SCOPES,
                ))
                (input(
                    filled,
                    ("call_timeout", "call_timeout"),
                    "text",
                    "Call timeout",
                    "For example 30s; at most 10m.",
                ))
                (input(
                    filled,
                    ("concurrency", "concurrency"),
                    "number",
                    "Concurrent calls",
                    "Further calls are queued.",
                ))
                button .button .quiet type="submit" { "Change" }
            }))
        }
    }
}
