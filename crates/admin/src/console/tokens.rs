//! Pages of tokens: list with filter, issue, revoke.

use std::sync::Arc;

use api::{IssuedToken, NewToken, OnDisconnect, Token, TokenFilter, TokenKind, TokenState};
use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use maud::{Markup, html};

use super::{
    Console, Failure,
    components::{
        FormState, Tone, address, agent, author, badge, button, cells, checkbox, confirm, empty, form, input,
        name, options, or_dash, short, table,
    },
    flash,
    form::{Fields, PostedForm},
    format,
    page::{Section, page, with_actions},
    session::Session,
};
use crate::Error;

const HEADINGS: [&str; 6] = ["Token", "For", "User and task", "State", "Expires", ""];
const STATES: [(&str, &str); 4] =
    [("", "Any state"), ("active", "Active"), ("expired", "Expired"), ("revoked", "Revoked")];
/// Value, kind, title and description.
const KINDS: [(&str, TokenKind, &str, &str); 8] = [
    (
        "project_manager",
        TokenKind::ProjectManager,
        "Project manager",
        "An agent that acts for the whole system, or for the user of a lease.",
    ),
    (
        "project_analyst",
        TokenKind::ProjectAnalyst,
        "Project analyst",
        "An agent that reads and reports. It acts under a lease, unless it is bound to a user and a task.",
    ),
    (
        "sandbox",
        TokenKind::Sandbox,
        "Sandbox",
        "An agent in a sandbox. It acts under a lease, unless it is bound to a user and a task.",
    ),
    (
        "orchestrator",
        TokenKind::Orchestrator,
        "Orchestrator",
        "A program that publishes handoffs, issues their leases, and keeps the threads of all users.",
    ),
    (
        "node",
        TokenKind::Node,
        "Node",
        "A machine that runs jobs. It acts under the leases of its jobs and can do nothing without one.",
    ),
    (
        "workflow",
        TokenKind::Workflow,
        "Workflow runner",
        "A program that drives tasks through their workflows. It acts only for workflows that it holds.",
    ),
    (
        "user",
        TokenKind::User,
        "User",
        "A person: an API key for chat, which also manages the person's own servers. Cannot call tools.",
    ),
    ("admin", TokenKind::Admin, "Administrator", "An administrator, person or program. Cannot call tools."),
];

/// Value and text of what happens to the work for a client that closes its connection.
const ON_DISCONNECT: [(&str, &str); 2] = [("continue", "Continue the work"), ("cancel", "Cancel the work")];

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let state = match fields.text("state") {
        "active" => Some(TokenState::Active),
        "expired" => Some(TokenState::Expired),
        "revoked" => Some(TokenState::Revoked),
        _ => None,
    };
    let agent = kind(fields.text("agent")).map(|(_, agent, ..)| agent);
    let user_id = fields.owned("user_id");
    let filter = TokenFilter { state, agent, user_id, task_id: None, limit: None };
    let tokens = console.admin.list_tokens(&session.actor, &filter).await?;
    let rows: Vec<Markup> = tokens.iter().map(|token| row(&session, token)).collect();
    let mut kinds = vec![("", "Any")];
    kinds.extend(KINDS.map(|(word, _, title, _)| (word, title)));
    let filled = FormState { fields: &fields, error: None };
    let body = html! {
        form .filter method="get" action=(Section::Tokens.address()) role="search" {
            (options(filled, "state", "State", "", &STATES))
            (options(filled, "agent", "For", "", &kinds))
            (input(filled, ("user_id", "user_id"), "search", "User", ""))
            button .button type="submit" { "Filter" }
        }
        @if rows.is_empty() {
            (empty("No matching tokens.", &html! {
                a href=(Section::Tokens.address()) { "Show all tokens" }
                " or " a href="/console/tokens/new" { "issue one" } "."
            }))
        } @else {
            p .count { (format::count(rows.len(), "token", "tokens")) ", newest first" }
            (table("Tokens, newest first", &HEADINGS, &rows))
        }
    };
    let actions = html! { a .button href="/console/tokens/new" { "Issue a token" } };
    Ok(with_actions(&session, Some(Section::Tokens), "Tokens", &actions, &body))
}

pub(super) async fn new(session: Session, fields: Fields) -> Result<Response, Failure> {
    require_admin(&session)?;
    Ok(issue_page(&session, &fields, None))
}

pub(super) async fn issue(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let (_, agent, ..) = kind(fields.text("agent")).unwrap_or(KINDS[0]);
    let new = NewToken {
        label: fields.text("label").to_owned(),
        agent,
        user_id: fields.owned("user_id"),
        task_id: fields.owned("task_id"),
        node: fields.owned("node"),
        profile: fields.owned("profile"),
        is_front_end: fields.is_on("is_front_end"),
        on_disconnect: fields.text("on_disconnect").parse::<OnDisconnect>().ok(),
        lives: fields.owned("lives"),
    };
    match console.admin.issue_token(&session.actor, new).await {
        // No redirect: the secret is shown once and must not be stored in between.
        Ok(issued) => Ok(issued_page(&session, &issued)),
        Err(error @ (Error::Forbidden(_) | Error::Unavailable | Error::Unrecorded)) => Err(error.into()),
        Err(error) => Ok((error.status(), issue_page(&session, &fields, Some(&error))).into_response()),
    }
}

pub(super) async fn revoke(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let revoked = console.admin.revoke_token(&posted.session.actor, posted.fields.text("id")).await;
    flash::redirect_after(&console, Section::Tokens.address(), revoked, |token| {
        format!("Token “{}” revoked. Its next call is denied.", token.label)
    })
}

/// Refuses users on pages that call no operation, which would refuse them.
pub(super) fn require_admin(session: &Session) -> Result<(), Failure> {
    if session.actor.is_admin() {
        return Ok(());
    }
    Err(Error::Forbidden("only an administrator may do this".to_owned()).into())
}

fn kind(word: &str) -> Option<(&'static str, TokenKind, &'static str, &'static str)> {
    KINDS.into_iter().find(|(known, ..)| *known == word)
}

fn row(session: &Session, token: &Token) -> Markup {
    let (tone, state) = match token.state {
        TokenState::Active => (Tone::Good, "Active"),
        TokenState::Expired => (Tone::Plain, "Expired"),
        TokenState::Revoked => (Tone::Bad, "Revoked"),
    };
    let calls = address(Section::Audit.address(), &[("subject", &token.id)]);
    let action = match token.state {
        TokenState::Active if token.id == session.actor.token_id => {
            html! { span .hint { "You are signed in with it" } }
        }
        TokenState::Active => confirm(
            "Revoke",
            &html! {
                "Clients that use “" bdi { (token.label) }
                "” are denied from the next call on. This cannot be undone."
            },
            &button(
                session,
                "/console/tokens/revoke",
                &[("id", &token.id)],
                "danger small",
                "Revoke this token",
            ),
        ),
        TokenState::Expired | TokenState::Revoked => html! {},
    };
    let cells_of = [
        html! {
            bdi { (token.label) }
            span .sub {
                a href=(calls) title="Calls with this token in the audit" { (short(&token.id)) }
                " by " (author(&token.created_by)) ", " (format::timestamp(&token.created_at))
            }
        },
        html! { span .nowrap { (agent(&token.agent)) } },
        html! {
            (or_dash(token.user_id.as_deref()))
            @if let Some(task) = &token.task_id { span .sub { "task " bdi { (task) } } }
            @if let Some(node) = &token.node { span .sub { "node " bdi { (node) } } }
            @if let Some(profile) = &token.profile { span .sub { "profile " bdi { (profile) } } }
            @if token.is_front_end == Some(true) { span .sub { "front end: names its users" } }
            @if token.on_disconnect == Some(OnDisconnect::Cancel) { span .sub { "a disconnect cancels" } }
        },
        badge(tone, state),
        format::timestamp(token.revoked_at.as_deref().unwrap_or(&token.expires_at)),
        action,
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}

fn issue_page(session: &Session, fields: &Fields, error: Option<&Error>) -> Response {
    let (word, agent, title, about) = kind(fields.text("agent")).unwrap_or(KINDS[0]);
    let filled = FormState { fields, error };
    let may_be_bound = matches!(agent, TokenKind::ProjectAnalyst | TokenKind::Sandbox);
    let user_hint = match agent {
        TokenKind::User => Some("Id of the user."),
        TokenKind::Admin => Some("Optional: the user that the administrator is in chats."),
        _ => may_be_bound.then_some("Optional, with the task: binds it."),
    };
    let lives = if may_be_bound {
        "For example 8h or 7days. Bound: at most 30 days, default one day. Otherwise as for managers."
    } else {
        "For example 12h or 90days; at most 365 days. Default 30 days."
    };
    let body = html! {
        p .crumbs { a href=(Section::Tokens.address()) { "Tokens" } " / Issue" }
        nav .tabs aria-label="Agent type" {
            ul {
                @for (it, _, title, _) in KINDS {
                    li {
                        a href=(address("/console/tokens/new", &[("agent", it)]))
                            aria-current=[(it == word).then_some("true")] {
                            (title)
                        }
                    }
                }
            }
        }
        div .card .narrow {
            h2 { (title) }
            p { (about) }
            (filled.alert())
            (form(session, "/console/tokens", &[("agent", word)], &html! {
                (input(filled, ("label", "label"), "text", "Label", "A name to recognise it by."))
                @if let Some(hint) = user_hint {
                    (input(filled, ("user_id", "user_id"), "text", "User", hint))
                }
                @if may_be_bound {
                    (input(
                        filled,
                        ("task_id", "task_id"),
                        "text",
                        "Task",
                        "Optional, with the user: binds the token.",
                    ))
                }
                @if agent == TokenKind::Node {
                    (input(filled, ("node", "node"), "text", "Node", "Id of the only node that may use it."))
                }
                @if !matches!(agent, TokenKind::Admin | TokenKind::User) {
                    (input(
                        filled,
                        ("profile", "profile"),
                        "text",
                        "Memory profile",
                        "Optional: its calls can name no other.",
                    ))
                }
                @if agent == TokenKind::User {
                    (options(
                        filled,
                        "on_disconnect",
                        "When a client disconnects",
                        "Continued work is answered in its thread.",
                        &ON_DISCONNECT,
                    ))
                    (checkbox(
                        filled,
                        "is_front_end",
                        "Front end",
                        "Requests may name another user in a header. For a program with users of its own.",
                    ))
                }
                (input(filled, ("lives", "lives"), "text", "Lifetime", lives))
                button .button type="submit" { "Issue the token" }
            }))
        }
    };
    page(session, Some(Section::Tokens), "Issue a token", &body)
}

fn issued_page(session: &Session, issued: &IssuedToken) -> Response {
    let IssuedToken { token, secret } = issued;
    let body = html! {
        div .card .narrow {
            p .flash role="status" {
                "The token “" bdi { (token.label) } "” is valid now. "
                strong { "The secret is shown only now:" }
                " it is not stored, so copy it before you leave this page."
            }
            div .secret {
                code #secret { (secret) }
                button .button .quiet type="button" data-copy="secret" hidden { "Copy" }
            }
            p .hint #copied aria-live="polite" {}
            dl .facts {
                div { dt { "For" } dd { (agent(&token.agent)) } }
                @if let Some(user) = &token.user_id { div { dt { "User" } dd { bdi { (user) } } } }
                @if let Some(task) = &token.task_id { div { dt { "Task" } dd { bdi { (task) } } } }
                @if let Some(node) = &token.node { div { dt { "Node" } dd { bdi { (node) } } } }
                @if let Some(profile) = &token.profile {
                    div { dt { "Memory profile" } dd { bdi { (profile) } } }
                }
                @if token.is_front_end == Some(true) { div { dt { "Front end" } dd { "names its users" } } }
                @if let Some(policy) = token.on_disconnect {
                    div { dt { "When a client disconnects" } dd { (policy) " the work" } }
                }
                div { dt { "Expires" } dd { (format::timestamp(&token.expires_at)) } }
                div { dt { "Id" } dd { (name(&token.id)) } }
            }
        }
        p { a .button .quiet href=(Section::Tokens.address()) { "Back to tokens" } }
    };
    page(session, Some(Section::Tokens), "Token issued", &body)
}
