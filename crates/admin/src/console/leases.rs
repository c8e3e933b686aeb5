//! Pages of leases: list with filter, one lease, revoke.

use std::sync::Arc;

use api::{Lease, LeaseFilter, LeaseState};
use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{
    Console, Failure,
    components::{
        FormState, Tone, address, agent, author, badge, button, cells, confirm, empty, input, options,
        or_dash, short, table,
    },
    flash,
    form::{Fields, PostedForm},
    format,
    page::{Section, page},
    session::Session,
};

const HEADINGS: [&str; 5] = ["Lease", "Agent", "On behalf of", "State", "Renewable until"];
/// Value, state and title.
const STATES: [(&str, LeaseState, &str); 4] = [
    ("active", LeaseState::Active, "Active"),
    ("renewable", LeaseState::Renewable, "Expired, renewable"),
    ("ended", LeaseState::Ended, "Ended"),
    ("revoked", LeaseState::Revoked, "Revoked"),
];

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let state = STATES.into_iter().find(|(word, ..)| *word == fields.text("state"));
    let filter = LeaseFilter {
        state: state.map(|(_, state, _)| state),
        user_id: fields.owned("user_id"),
        task_id: fields.owned("task_id"),
        handoff_id: fields.owned("handoff_id"),
        ..LeaseFilter::default()
    };
    let leases = console.admin.list_leases(&session.actor, &filter).await?;
    let rows: Vec<Markup> = leases.iter().map(row).collect();
    let mut states = vec![("", "Any state")];
    states.extend(STATES.map(|(word, _, title)| (word, title)));
    let filled = FormState { fields: &fields, error: None };
    let body = html! {
        p .lead {
            "A lease says on whose behalf an agent acts. It narrows what the agent's token permits, and ends \
             with its handoff."
        }
        form .filter method="get" action=(Section::Leases.address()) role="search" {
            (options(filled, "state", "State", "", &states))
            (input(filled, ("user_id", "user_id"), "search", "User", ""))
            (input(filled, ("task_id", "task_id"), "search", "Task", ""))
            button .button type="submit" { "Filter" }
        }
        @if rows.is_empty() {
            (empty("No matching leases.", &html! {
                "Orchestrators issue them with their handoffs, and so does "
                code { "cynodectl handoff" } ". "
                a href=(Section::Leases.address()) { "Show all leases" } "."
            }))
        } @else {
            p .count { (format::count(rows.len(), "lease", "leases")) ", newest first" }
            (table("Leases, newest first", &HEADINGS, &rows))
        }
    };
    Ok(page(&session, Some(Section::Leases), "Leases", &body))
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let lease = console.admin.get_lease(&session.actor, fields.text("id")).await?;
    let calls = address(Section::Audit.address(), &[("lease_id", &lease.id)]);
    let body = html! {
        p .crumbs { a href=(Section::Leases.address()) { "Leases" } " / " (short(&lease.id)) }
        dl .facts {
            div { dt { "State" } dd { (state_badge(lease.state)) } }
            div { dt { "Agent" } dd { (agent(&lease.agent)) } }
            div { dt { "User" } dd { bdi { (lease.user_id) } } }
            @for (name, id) in [
                ("Project", &lease.project_id),
                ("Task", &lease.task_id),
                ("Run", &lease.run_id),
                ("Job", &lease.job_id),
            ] {
                @if let Some(id) = id { div { dt { (name) } dd { bdi { (id) } } } }
            }
            @if let Some(id) = &lease.handoff_id {
                div { dt { "Handoff" } dd { a href={ "/console/handoffs/" (id) } { (id) } } }
            }
            @if let Some(id) = &lease.parent_id {
                div { dt { "Issued under" } dd { a href=(page_of(id)) { (id) } } }
            }
            div .whole {
                dt { "Tools" }
                dd { @match &lease.tools {
                    Some(tools) => { bdi { (tools.join(", ")) } },
                    None => { "All of the agent type" },
                } }
            }
            @if let Some(profile) = &lease.profile {
                div { dt { "Memory profile" } dd { bdi { (profile) } } }
            }
            div {
                dt { "Issued" }
                dd { (format::timestamp(&lease.issued_at)) " by " (author(&lease.issued_by)) }
            }
            div { dt { "Expires" } dd { (format::timestamp(&lease.expires_at)) } }
            div { dt { "Renewable until" } dd { (format::timestamp(&lease.renewable_until)) } }
            @if let (Some(at), Some(by)) = (&lease.revoked_at, &lease.revoked_by) {
                div { dt { "Revoked" } dd { (format::timestamp(at)) " by " (author(by)) } }
            }
        }
        p { a href=(calls) { "Calls under this lease in the audit" } }
        @if matches!(lease.state, LeaseState::Active | LeaseState::Renewable) {
            (confirm(
                "Revoke",
                &html! { "Calls under this lease, and under those issued with it, are denied from now on." },
                &button(
                    &session,
                    "/console/leases/revoke",
                    &[("id", &lease.id)],
                    "danger small",
                    "Revoke this lease",
                ),
            ))
        }
    };
    Ok(page(&session, Some(Section::Leases), "Lease", &body))
}

pub(super) async fn revoke(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let revoked = console.admin.revoke_lease(&posted.session.actor, posted.fields.text("id")).await;
    flash::redirect_after(&console, Section::Leases.address(), revoked, |lease| {
        format!("Lease of {} revoked. Its next call is denied.", lease.user_id)
    })
}

fn page_of(id: &str) -> String {
    address("/console/leases/lease", &[("id", id)])
}

fn state_badge(state: LeaseState) -> Markup {
    let title = STATES.into_iter().find(|(_, known, _)| *known == state).map_or("", |(_, _, title)| title);
    let tone = match state {
        LeaseState::Active => Tone::Good,
        LeaseState::Renewable | LeaseState::Ended => Tone::Plain,
        LeaseState::Revoked => Tone::Bad,
    };
    badge(tone, title)
}

fn row(lease: &Lease) -> Markup {
    let cells_of = [
        html! {
            a href=(page_of(&lease.id)) { (short(&lease.id)) }
            span .sub { "by " (author(&lease.issued_by)) ", " (format::timestamp(&lease.issued_at)) }
        },
        html! { (agent(&lease.agent)) },
        html! {
            bdi { (lease.user_id) }
            span .sub { (or_dash(lease.task_id.as_deref())) }
            @if let Some(profile) = &lease.profile { span .sub { "profile " bdi { (profile) } } }
        },
        state_badge(lease.state),
        html! { (format::timestamp(&lease.renewable_until)) },
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}
