//! Pages of nodes: list, one node with its engines, cordon, drain, uncordon, remove.

use std::{sync::Arc, time::Duration};

use api::{Drain, Node, NodeCondition};
use axum::{extract::State, response::Response};
use http::HeaderMap;
use maud::{Markup, html};

use super::{
    Console, Failure,
    components::{Tone, address, badge, button, cells, confirm, dash, empty, name, table, visible},
    flash,
    form::{Fields, PostedForm},
    format,
    jobs::page_of as job_page,
    live::{self, LiveView, Update},
    page::{Section, page, with_actions},
    session::Session,
};
use crate::Error;

const HEADINGS: [&str; 6] = ["Node", "State", "Pool and labels", "Engines", "Jobs", "Seen"];
const LIVE: &str = "/console/nodes/live";
const POLL_INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn list(State(console): State<Arc<Console>>, session: Session) -> Result<Response, Failure> {
    let nodes = console.admin.list_nodes(&session.actor).await?;
    let body = html! {
        p .lead {
            "Nodes are the machines that run jobs in sandboxes. They report themselves every few seconds."
        }
        (render(&nodes))
    };
    Ok(with_actions(&session, Some(Section::Nodes), "Nodes", &live::panel(LIVE), &body))
}

pub(super) async fn live(
    State(console): State<Arc<Console>>,
    session: Session,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    // Refuse users now, before the stream begins.
    console.admin.list_nodes(&session.actor).await?;
    Ok(live::events(console, headers, POLL_INTERVAL, NodeUpdates { last: None }))
}

struct NodeUpdates {
    last: Option<String>,
}

impl LiveView for NodeUpdates {
    async fn poll(&mut self, console: &Console, session: &Session) -> Update {
        let Ok(nodes) = console.admin.list_nodes(&session.actor).await else { return Update::Unchanged };
        let parts = render(&nodes);
        if self.last.as_ref() == Some(&parts.0) {
            return Update::Unchanged;
        }
        self.last = Some(parts.0.clone());
        Update::Parts(parts)
    }
}

fn render(nodes: &[Node]) -> Markup {
    let rows: Vec<Markup> = nodes.iter().map(row).collect();
    html! {
        div #nodes {
            @if rows.is_empty() {
                (empty("No nodes.", &html! {
                    "No node has reported to this gateway yet. Start "
                    code { "cynode-node" } " with a token from "
                    a href={ (Section::Tokens.address()) "/new" } { "Tokens" } " and the same NATS."
                }))
            } @else {
                p .count { (format::count(rows.len(), "node", "nodes")) ", by id" }
                (table("Nodes, by id", &HEADINGS, &rows))
            }
        }
    }
}

fn row(node: &Node) -> Markup {
    let cells_of = [
        html! { a href=(page_of(&node.node_id)) { (name(&node.node_id)) } },
        html! { (state_badge(node.state)) @for reason in &node.reasons { span .sub { (visible(reason)) } } },
        html! { bdi { (visible(&node.pool)) } span .sub { (labels(node)) } },
        html! {
            @if node.engines.is_empty() { (dash()) }
            @for engine in &node.engines {
                (badge(if engine.offered { Tone::Good } else { Tone::Plain }, engine.engine.as_str())) " "
            }
        },
        html! {
            (node.busy) " of " (node.slots)
            @if node.waiting > 0 { span .sub { (node.waiting) " waiting" } }
        },
        html! { (format::timestamp(&node.seen_at)) },
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}

fn labels(node: &Node) -> String {
    let labels: Vec<String> = node.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    visible(&labels.join(", "))
}

fn page_of(id: &str) -> String {
    address("/console/nodes/node", &[("id", id)])
}

fn state_badge(state: NodeCondition) -> Markup {
    let (tone, title) = match state {
        NodeCondition::Ready => (Tone::Good, "Ready"),
        NodeCondition::NotReady => (Tone::Warn, "Not ready"),
        NodeCondition::Cordoned => (Tone::Warn, "Cordoned"),
        NodeCondition::Stopping => (Tone::Plain, "Stopping"),
        NodeCondition::Away => (Tone::Bad, "Away"),
    };
    badge(tone, title)
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let node = console.admin.get_node(&session.actor, fields.text("id")).await?;
    let body = html! {
        p .crumbs { a href=(Section::Nodes.address()) { "Nodes" } " / " (name(&node.node_id)) }
        dl .facts {
            div { dt { "State" } dd { (state_badge(node.state)) } }
            div { dt { "Pool" } dd { bdi { (visible(&node.pool)) } } }
            @if !node.labels.is_empty() { div { dt { "Labels" } dd { bdi { (labels(&node)) } } } }
            div { dt { "Slots" } dd { (node.busy) " of " (node.slots) " in use" } }
            div { dt { "Waiting for it alone" } dd { (node.waiting) } }
            @if let Some(version) = &node.version { div { dt { "Version" } dd { (visible(version)) } } }
            @if let Some(at) = &node.started_at { div { dt { "Started" } dd { (format::timestamp(at)) } } }
            div { dt { "Seen" } dd { (format::timestamp(&node.seen_at)) } }
            @if let Some(by) = &node.drain_by {
                div { dt { "Hands back its jobs" } dd { (format::timestamp(by)) } }
            }
            @if !node.reasons.is_empty() {
                div .whole { dt { "Why it takes no jobs" } dd { (visible(&node.reasons.join("; "))) } }
            }
            @if !node.images.is_empty() {
                div .whole { dt { "Images" } dd { bdi { (visible(&node.images.join(", "))) } } }
            }
            @if !node.running.is_empty() {
                div .whole {
                    dt { "Runs" }
                    dd { @for job in &node.running { a href=(job_page(job)) { (name(job)) } " " } }
                }
            }
        }
        (engines(&node))
        div .actions { (actions(&session, &node)) }
    };
    Ok(page(&session, Some(Section::Nodes), "Node", &body))
}

/// Renders the engines and how they held when the node tested them at its start.
fn engines(node: &Node) -> Markup {
    const HEADINGS: [&str; 3] = ["Attempt to escape", "Outcome", "Detail"];
    html! {
        @for engine in &node.engines {
            section {
                h2 { "Engine " (engine.engine.as_str()) }
                p {
                    @if engine.offered {
                        (badge(Tone::Good, "Offered"))
                    } @else {
                        (badge(Tone::Bad, "Not offered"))
                    }
                    @for note in &engine.notes { " " (visible(note)) }
                }
                @if !engine.attempts.is_empty() {
                    @let rows: Vec<Markup> = engine.attempts.iter().map(|attempt| {
                        let (tone, outcome) = match (attempt.held, attempt.untried) {
                            (true, _) => (Tone::Good, "Held"),
                            (false, true) => (Tone::Warn, "Not tested"),
                            (false, false) => (Tone::Bad, "Escaped"),
                        };
                        let cells_of = [
                            html! { (visible(&attempt.name)) },
                            badge(tone, outcome),
                            attempt.detail.as_deref().map_or_else(dash, |detail| html! { (visible(detail)) }),
                        ];
                        html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
                    }).collect();
                    (table("Self-test at the start of the node", &HEADINGS, &rows))
                }
            }
        }
    }
}

fn actions(session: &Session, node: &Node) -> Markup {
    let id = [("id", &*node.node_id)];
    html! {
        @if node.cordoned {
            (button(session, "/console/nodes/uncordon", &id, "small", "Uncordon"))
        } @else {
            (button(session, "/console/nodes/cordon", &id, "quiet small", "Cordon"))
        }
        (confirm(
            "Drain",
            &html! { "The node takes no more jobs, and hands back in five minutes what it still runs." },
            &button(session, "/console/nodes/drain", &id, "danger small", "Drain this node"),
        ))
        @if node.state == NodeCondition::Away
            || (node.state == NodeCondition::Stopping && node.running.is_empty())
        {
            (confirm(
                "Remove",
                &html! { "Jobs that only this node may run are moved to other nodes, or end as lost." },
                &button(session, "/console/nodes/remove", &id, "danger small", "Remove this node"),
            ))
        }
    }
}

pub(super) async fn cordon(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let changed = console.admin.cordon_node(&posted.session.actor, posted.fields.text("id")).await;
    after(&console, &posted, changed, "takes no more jobs")
}

pub(super) async fn drain(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let (actor, id) = (&posted.session.actor, posted.fields.text("id"));
    let changed = console.admin.drain_node(actor, id, Drain::default()).await;
    after(&console, &posted, changed, "takes no more jobs and hands back what it runs in five minutes")
}

pub(super) async fn uncordon(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let changed = console.admin.uncordon_node(&posted.session.actor, posted.fields.text("id")).await;
    after(&console, &posted, changed, "may take jobs again")
}

fn after(
    console: &Console,
    posted: &PostedForm,
    changed: Result<Node, Error>,
    what: &str,
) -> Result<Response, Failure> {
    let back = page_of(posted.fields.text("id"));
    flash::redirect_after(console, &back, changed, |node| format!("Node {} {what}.", node.node_id))
}

pub(super) async fn remove(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let removed = console.admin.remove_node(&posted.session.actor, posted.fields.text("id")).await;
    flash::redirect_after(&console, Section::Nodes.address(), removed, |removed| {
        let (moved, lost) = (removed.moved.len(), removed.lost.len());
        format!(
            "Node {} removed. Jobs moved to other nodes: {moved}; ended as lost: {lost}.",
            removed.node_id
        )
    })
}
