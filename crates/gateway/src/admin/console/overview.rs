use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{
    Console, Failure,
    audit::{self, Checked, HEADINGS},
    page::{Section, page},
    parts::{Tone, address, badge, empty, name, table},
    servers::health,
    session::Session,
    when,
};
use crate::{
    admin::operations::{TokenFilter, TokenState, Tool, ToolState, Upstream},
    audit::Filter,
    clock,
};

const HOUR_US: i64 = 3_600_000_000;
const MOST: usize = 1000;
const DENIALS: usize = 5;

pub(super) async fn show(State(console): State<Arc<Console>>, session: Session) -> Result<Response, Failure> {
    let (admin, actor) = (&console.admin, &session.actor);
    let tools = admin.list_tools(actor).await?;
    let servers = admin.list_upstreams(actor).await?;
    let looked = if actor.is_admin() { Some(look(&console, &session).await?) } else { None };
    let body = html! {
        (attention(&tools, &servers, looked.as_ref()))
        div .stats {
            (stat(Section::Tools, "Tools", &tool_counts(&tools)))
            (stat(Section::Servers, "Servers", &server_counts(&servers)))
            @if let Some(looked) = &looked { (looked.stats()) }
        }
        section { h2 { "Servers" } (server_table(&servers)) }
        @if let Some(looked) = &looked {
            section {
                h2 { "Latest denials" }
                @if looked.denials.is_empty() {
                    (empty("No calls were denied in the last hour.", &html! {
                        "Denied calls appear here, with the reason."
                    }))
                } @else {
                    (table("Latest denied calls", &HEADINGS, &looked.latest()))
                }
            }
        }
    };
    Ok(page(&session, Some(Section::Overview), "Overview", &body))
}

/// What administrators see.
struct Looked {
    tokens: usize,
    denials: Vec<subjects::audit::Row>,
    since: String,
    rows: i64,
    checked: Option<Checked>,
}

async fn look(console: &Console, session: &Session) -> Result<Looked, Failure> {
    let (admin, actor) = (&console.admin, &session.actor);
    let limit = u64::try_from(MOST).ok();
    let active = TokenFilter { state: Some(TokenState::Active), limit, ..TokenFilter::default() };
    let since = clock::now().saturating_sub(HOUR_US);
    let denied = Filter { decision: Some("deny".to_owned()), since: Some(since), limit, ..Filter::default() };
    Ok(Looked {
        tokens: admin.list_tokens(actor, &active).await?.len(),
        denials: admin.query_audit(actor, &denied).await?,
        since: audit::moment(since),
        rows: audit::rows(console, actor).await?,
        checked: audit::lately(console, actor).await?,
    })
}

impl Looked {
    fn stats(&self) -> Markup {
        let denials = address(Section::Audit.address(), &[("decision", "deny"), ("since", &self.since)]);
        html! {
            (stat(Section::Tokens, "Active tokens", &html! { p .figure { (up_to(self.tokens)) } }))
            div .stat {
                h2 { a href=(denials) { "Denied in the last hour" } }
                p .figure { (up_to(self.denials.len())) }
            }
            div .stat .wide {
                div {
                    h2 { a href=(Section::Audit.address()) { "Audit rows" } }
                    p .figure { (when::number(self.rows)) }
                }
                div { (audit::verdict(self.checked.as_ref())) }
            }
        }
    }

    fn latest(&self) -> Vec<Markup> {
        self.denials.iter().take(DENIALS).map(audit::row).collect()
    }
}

fn up_to(count: usize) -> String {
    let more = if count >= MOST { "+" } else { "" };
    format!("{}{more}", when::number(i64::try_from(count).unwrap_or(i64::MAX)))
}

fn stat(section: Section, title: &str, inner: &Markup) -> Markup {
    html! { div .stat { h2 { a href=(section.address()) { (title) } } (inner) } }
}

fn tool_counts(tools: &[Tool]) -> Markup {
    let count = |wanted: fn(&&Tool) -> bool| tools.iter().filter(wanted).count();
    let on = count(|tool| tool.state == ToolState::Approved && tool.enabled);
    let off = count(|tool| tool.state == ToolState::Approved && !tool.enabled);
    let waiting = count(|tool| tool.state == ToolState::Quarantined);
    html! {
        p .figure { (on) small { " on" } }
        p .parts { span { (off) " off" } span { (waiting) " quarantined" } }
    }
}

fn server_counts(servers: &[Upstream]) -> Markup {
    let up = servers.iter().filter(|server| health(server).0 == Tone::Good).count();
    let troubled = servers.iter().filter(|server| health(server).0 == Tone::Bad).count();
    html! {
        p .figure { (up) small { " up" } }
        p .parts { span { (servers.len()) " registered" } span { (troubled) " in trouble" } }
    }
}

fn server_table(servers: &[Upstream]) -> Markup {
    const SERVERS: [&str; 4] = ["Server", "Health", "Tools", "Waiting"];
    if servers.is_empty() {
        return empty(
            "No servers registered.",
            &html! { "To serve tools of other MCP servers, " a href="/console/servers/new" { "add a server" } "." },
        );
    }
    let rows: Vec<Markup> = servers
        .iter()
        .map(|server| {
            let page = address("/console/servers/server", &[("namespace", &server.namespace)]);
            let (tone, words) = health(server);
            let cells = [
                html! { a href=(page) { (name(&server.namespace)) } },
                badge(tone, &words),
                html! { (server.tools.approved) },
                html! { (server.tools.quarantined) },
            ];
            html! { tr role="row" { (super::parts::cells(&SERVERS, &cells)) } }
        })
        .collect();
    table("Servers and their state", &SERVERS, &rows)
}

/// What somebody should look at now.
fn attention(tools: &[Tool], servers: &[Upstream], looked: Option<&Looked>) -> Markup {
    let waiting = tools.iter().filter(|tool| tool.state == ToolState::Quarantined).count();
    let troubled: Vec<&Upstream> = servers.iter().filter(|server| health(server).0 == Tone::Bad).collect();
    let broken = looked.and_then(|looked| looked.checked.as_ref()).filter(|checked| !checked.verified.ok);
    html! {
        @if waiting > 0 || !troubled.is_empty() || broken.is_some() {
            section .attention aria-labelledby="attention" {
                h2 #attention { "Needs attention" }
                ul {
                    @if let Some(checked) = broken {
                        li {
                            "Audit verification failed: "
                            (checked.verified.problem.as_deref().unwrap_or("its chain is broken")) ". "
                            a href=(Section::Audit.address()) { "Show the audit" }
                        }
                    }
                    @if waiting > 0 {
                        li {
                            (when::count(waiting, "tool waits", "tools wait")) " for approval. "
                            a href=(Section::Quarantine.address()) { "Decide" }
                        }
                    }
                    @for server in troubled {
                        li {
                            "The server " (name(&server.namespace)) " is in trouble. "
                            a href=(address("/console/servers/server", &[("namespace", &server.namespace)])) { "See why" }
                        }
                    }
                }
            }
        }
    }
}
