//! The overview page: counts, servers, latest denials, and what needs attention.

use std::sync::Arc;

use api::{
    TokenFilter, TokenState, Tool, ToolState, Upstream, WaitingMessages, WorkflowFilter, WorkflowStatus,
};
use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{
    Console, Failure,
    audit::{self, ChainCheck, HEADINGS},
    components::{Tone, address, badge, empty, name, table},
    format,
    page::{Section, page},
    servers::health,
    session::Session,
};
use ::audit::Filter;
use store::clock;

const HOUR_US: i64 = 3_600_000_000;
const MAX_COUNTED: usize = 1000;
const LATEST_DENIALS: usize = 5;

pub(super) async fn show(State(console): State<Arc<Console>>, session: Session) -> Result<Response, Failure> {
    let (admin, actor) = (&console.admin, &session.actor);
    let tools = admin.list_tools(actor).await?;
    let servers = admin.list_upstreams(actor).await?;
    let summary = if actor.is_admin() { Some(load_summary(&console, &session).await?) } else { None };
    let body = html! {
        (attention(&tools, &servers, summary.as_ref()))
        div .stats {
            (stat(Section::Tools, "Tools", &tool_counts(&tools)))
            (stat(Section::Servers, "Servers", &server_counts(&servers)))
            @if let Some(summary) = &summary { (summary.stats()) }
        }
        section { h2 { "Servers" } (server_table(&servers)) }
        @if let Some(summary) = &summary {
            section {
                h2 { "Latest denials" }
                @if summary.denials.is_empty() {
                    (empty("No calls were denied in the last hour.", &html! {
                        "Denied calls appear here, with the reason."
                    }))
                } @else {
                    (table("Latest denied calls", &HEADINGS, &summary.latest()))
                }
            }
        }
    };
    Ok(page(&session, Some(Section::Overview), "Overview", &body))
}

/// The part of the page that only administrators see.
struct AdminSummary {
    tokens: usize,
    denials: Vec<subjects::audit::Row>,
    since: String,
    rows: i64,
    check: Option<ChainCheck>,
    waiting: Vec<WaitingMessages>,
    /// How many workflows ask a person something.
    questions: usize,
}

async fn load_summary(console: &Console, session: &Session) -> Result<AdminSummary, Failure> {
    let (admin, actor) = (&console.admin, &session.actor);
    let limit = u64::try_from(MAX_COUNTED).ok();
    let active = TokenFilter { state: Some(TokenState::Active), limit, ..TokenFilter::default() };
    let since = clock::now().saturating_sub(HOUR_US);
    let denied = Filter { decision: Some("deny".to_owned()), since: Some(since), limit, ..Filter::default() };
    let asking = WorkflowFilter { status: Some(WorkflowStatus::Waiting), limit, ..WorkflowFilter::default() };
    let asking = admin.list_workflows(actor, &asking).await?;
    Ok(AdminSummary {
        tokens: admin.list_tokens(actor, &active).await?.len(),
        denials: admin.query_audit(actor, &denied).await?,
        since: audit::format_moment(since),
        rows: audit::count_rows(console, actor).await?,
        check: audit::recent_check(console, actor).await?,
        waiting: admin.list_waiting_messages(actor).await?,
        questions: asking.iter().filter(|workflow| workflow.question.is_some()).count(),
    })
}

impl AdminSummary {
    fn stats(&self) -> Markup {
        let denials = address(Section::Audit.address(), &[("decision", "deny"), ("since", &self.since)]);
        html! {
            (stat(Section::Tokens, "Active tokens", &html! { p .figure { (capped_count(self.tokens)) } }))
            div .stat {
                h2 { a href=(denials) { "Denied in the last hour" } }
                p .figure { (capped_count(self.denials.len())) }
            }
            div .stat .wide {
                div {
                    h2 { a href=(Section::Audit.address()) { "Audit rows" } }
                    p .figure { (format::number(self.rows)) }
                }
                div { (audit::render_check(self.check.as_ref())) }
            }
        }
    }

    /// Returns how many messages wait to be published, and since when; `None` if there are none.
    fn waiting(&self) -> Option<(usize, &str)> {
        let oldest = self.waiting.iter().map(|subject| subject.oldest_at.as_str()).min()?;
        let count: i64 = self.waiting.iter().map(|subject| subject.messages).sum();
        Some((usize::try_from(count).unwrap_or_default(), oldest))
    }

    fn latest(&self) -> Vec<Markup> {
        self.denials.iter().take(LATEST_DENIALS).map(audit::row).collect()
    }
}

fn capped_count(count: usize) -> String {
    let more = if count >= MAX_COUNTED { "+" } else { "" };
    format!("{}{more}", format::number(i64::try_from(count).unwrap_or(i64::MAX)))
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
    let unhealthy = servers.iter().filter(|server| health(server).0 == Tone::Bad).count();
    html! {
        p .figure { (up) small { " up" } }
        p .parts { span { (servers.len()) " registered" } span { (unhealthy) " unhealthy" } }
    }
}

fn server_table(servers: &[Upstream]) -> Markup {
    const SERVERS: [&str; 4] = ["Server", "Health", "Tools", "Quarantined"];
    if servers.is_empty() {
        return empty(
            "No servers registered.",
            &html! {
                "To serve tools of other MCP servers, " a href="/console/servers/new" { "add a server" } "."
            },
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
            html! { tr role="row" { (super::components::cells(&SERVERS, &cells)) } }
        })
        .collect();
    table("Servers and their state", &SERVERS, &rows)
}

/// Renders what needs attention now; nothing if all is well.
fn attention(tools: &[Tool], servers: &[Upstream], summary: Option<&AdminSummary>) -> Markup {
    let waiting = tools.iter().filter(|tool| tool.state == ToolState::Quarantined).count();
    let unhealthy: Vec<&Upstream> = servers.iter().filter(|server| health(server).0 == Tone::Bad).collect();
    let broken = summary.and_then(|summary| summary.check.as_ref()).filter(|check| !check.verified.ok);
    let messages = summary.and_then(AdminSummary::waiting);
    let questions = summary.map_or(0, |summary| summary.questions);
    let is_well = waiting == 0 && questions == 0 && unhealthy.is_empty();
    html! {
        @if !is_well || broken.is_some() || messages.is_some() {
            section .attention aria-labelledby="attention" {
                h2 #attention { "Needs attention" }
                ul {
                    @if let Some(check) = broken {
                        li {
                            "Audit verification failed: "
                            (check.verified.problem.as_deref().unwrap_or("its chain is broken")) ". "
                            a href=(Section::Audit.address()) { "Show the audit" }
                        }
                    }
                    @if questions > 0 {
                        li {
                            (format::count(questions, "workflow waits", "workflows wait"))
                            " for your answer. "
                            a href=(address(Section::Workflows.address(), &[("status", "waiting")])) {
                                "Answer"
                            }
                        }
                    }
                    @if waiting > 0 {
                        li {
                            (format::count(waiting, "tool needs", "tools need")) " approval. "
                            a href=(Section::Quarantine.address()) { "Decide" }
                        }
                    }
                    @if let Some((count, oldest)) = messages {
                        li {
                            (format::count(count, "message waits", "messages wait"))
                            " to be published on NATS, the oldest from "
                            (format::timestamp(oldest)) "."
                        }
                    }
                    @for server in unhealthy {
                        li {
                            "Server " (name(&server.namespace)) " is unhealthy. "
                            a href=(address("/console/servers/server", &[("namespace", &server.namespace)])) {
                                "Details"
                            }
                        }
                    }
                }
            }
        }
    }
}
