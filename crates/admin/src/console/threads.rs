//! Pages of threads: list, one thread, rename, delete, export.

use std::sync::Arc;

use axum::{
    extract::State,
    response::{IntoResponse, Response},
};
use contract::thread::{Thread, ThreadMessage};
use control::ThreadTurn;
use http::{
    HeaderValue,
    header::{CONTENT_DISPOSITION, CONTENT_TYPE},
};
use maud::{Markup, html};
use serde_json::json;
use store::clock;
use subjects::ChatRole;

use super::{
    Console, Failure, assets, chat,
    components::{
        FormState, Tone, address, badge, button, cells, confirm, empty, form, input, name, table, visible,
    },
    flash,
    form::{Fields, PostedForm},
    format,
    page::{Section, with_actions},
    session::Session,
};

const HEADINGS: [&str; 4] = ["Thread", "Turns", "State", "Last change"];
const PAGE_SIZE: u32 = 50;

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let offset: u32 = fields.text("offset").parse().unwrap_or_default();
    // One more than the page has, to tell whether it is the last.
    let found =
        console.admin.list_threads(&session.actor, u64::from(offset), u64::from(PAGE_SIZE) + 1).await?;
    let has_more = found.len() > PAGE_SIZE as usize;
    let rows: Vec<Markup> = found.iter().take(PAGE_SIZE as usize).map(row).collect();
    let page_at = |offset: u32| {
        let offset = if offset == 0 { String::new() } else { offset.to_string() };
        address(Section::Threads.address(), &[("offset", &offset)])
    };
    let body = html! {
        p .lead {
            "Your conversations with the project manager, in the console and over the chat API."
            @if let Some(user) = &session.actor.chat_user {
                " You are the user " strong { bdi { (visible(user)) } } "."
            }
        }
        @if session.actor.chat_user.is_none() {
            (empty("Your token names no user.", &html! {
                a href=(address("/console/tokens/new", &[("agent", "admin")])) { "Issue an admin token" }
                " with a user, and sign in with it."
            }))
        } @else if rows.is_empty() {
            (empty("No threads.", &html! { a href=(chat::CHAT) { "Ask the project manager" } " something." }))
        } @else {
            (table("Threads, last changed first", &HEADINGS, &rows))
        }
        nav .pages aria-label="Pages" {
            @if offset > 0 {
                a .button .quiet href=(page_at(offset.saturating_sub(PAGE_SIZE))) { "Previous" }
            }
            @if has_more { a .button .quiet href=(page_at(offset.saturating_add(PAGE_SIZE))) { "Next" } }
        }
    };
    let actions = html! { a .button href=(chat::CHAT) { "New thread" } };
    Ok(with_actions(&session, Some(Section::Threads), "Threads", &actions, &body))
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let thread = console.admin.get_thread(&session.actor, fields.text("id")).await?;
    let before = fields.given("before").and_then(|before| before.parse().ok());
    let id = thread.thread_id.as_str();
    let turns = console.admin.turns_before(&session.actor, id, before, chat::SHOWN_TURNS).await?;
    let earlier = turns.first().map(|first| first.position).filter(|position| *position > 0);
    let titled = Fields::default().with("title", &*thread.title);
    let filled = FormState { fields: &titled, error: None };
    let body = html! {
        link rel="stylesheet" href=(assets::CHAT_STYLE.path);
        p .crumbs { a href=(Section::Threads.address()) { "Threads" } " / " bdi { (visible(&thread.title)) } }
        div .card {
            dl .facts {
                div { dt { "State" } dd { (state(&thread)) } }
                div { dt { "Turns" } dd { (format::number(thread.turns)) } }
                div { dt { "Begun" } dd { (format::timestamp(&thread.created_at)) } }
                div { dt { "Last change" } dd { (format::timestamp(&thread.updated_at)) } }
                @if let Some(named) = &thread.name {
                    div { dt { "Name of the client" } dd { (name(named)) } }
                }
            }
        }
        details .more .after {
            summary { "Rename" }
            (form(&session, "/console/threads/rename", &[("id", id)], &html! {
                div .look-up .filter {
                    (input(filled, ("title", "title"), "text", "Title", ""))
                    button .button type="submit" { "Rename" }
                }
            }))
        }
        section aria-label="Conversation" {
            @if let Some(before) = earlier {
                p .earlier {
                    @let before = before.to_string();
                    a href=(address("/console/threads/thread", &[("id", id), ("before", &before)])) {
                        "Earlier messages"
                    }
                }
            }
            div .conversation { (chat::turn_list(&session, &turns)) }
        }
    };
    Ok(with_actions(
        &session,
        Some(Section::Threads),
        &visible(&thread.title),
        &actions(&session, &thread),
        &body,
    ))
}

pub(super) async fn rename(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let id = fields.text("id");
    let renamed = console.admin.rename_thread(&session.actor, id, fields.text("title")).await;
    flash::redirect_after(&console, &page_of(id), renamed, |thread| {
        format!("The thread is now called “{}”.", thread.title)
    })
}

pub(super) async fn delete(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let deleted = console.admin.delete_thread(&session.actor, fields.text("id")).await;
    flash::redirect_after(&console, Section::Threads.address(), deleted, |(thread, not_stopped)| {
        let more = match not_stopped {
            Some(_) => " The work on its last message could not be stopped.",
            None => "",
        };
        format!("“{}” deleted, with all that was said in it.{more}", thread.title)
    })
}

/// Returns a whole thread as a file: JSON, or Markdown.
pub(super) async fn export(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let thread = console.admin.get_thread(&session.actor, fields.text("id")).await?;
    let turns = console.admin.all_turns(&session.actor, &thread.thread_id).await?;
    let messages: Vec<ThreadMessage> = turns.into_iter().flat_map(messages_of).collect();
    let (text, kind, file) = match fields.text("format") {
        "markdown" => (markdown(&thread, &messages), "text/markdown; charset=utf-8", "thread.md"),
        _ => {
            let whole = json!({ "thread": thread, "messages": messages });
            let text = serde_json::to_string_pretty(&whole).unwrap_or_default();
            (text, "application/json", "thread.json")
        }
    };
    let disposition = HeaderValue::try_from(format!("attachment; filename=\"{file}\""));
    let disposition = disposition.unwrap_or_else(|_| HeaderValue::from_static("attachment"));
    let headers = [(CONTENT_TYPE, HeaderValue::from_static(kind)), (CONTENT_DISPOSITION, disposition)];
    Ok((headers, text).into_response())
}

fn page_of(id: &str) -> String {
    address("/console/threads/thread", &[("id", id)])
}

fn actions(session: &Session, thread: &Thread) -> Markup {
    let id = thread.thread_id.as_str();
    let export = |format| address("/console/threads/export", &[("id", id), ("format", format)]);
    html! {
        a .button .small href=(address(chat::CHAT, &[("thread", id)])) { "Continue in chat" }
        a .button .quiet .small href=(export("markdown")) { "Export Markdown" }
        a .button .quiet .small href=(export("json")) { "Export JSON" }
        (confirm(
            "Delete",
            &html! {
                "The thread and all of its messages are deleted. Work on its last message is stopped."
            },
            &button(session, "/console/threads/delete", &[("id", id)], "danger small", "Delete this thread"),
        ))
    }
}

fn row(thread: &Thread) -> Markup {
    let cells_of = [
        html! { a href=(page_of(&thread.thread_id)) { bdi { (visible(&thread.title)) } } },
        html! { (format::number(thread.turns)) },
        state(thread),
        format::timestamp(&thread.updated_at),
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}

fn state(thread: &Thread) -> Markup {
    match (&thread.open_turn, &thread.open_question) {
        (Some(_), _) => badge(Tone::Good, "Working"),
        (None, Some(_)) => badge(Tone::Warn, "Question"),
        (None, None) => badge(Tone::Plain, "Answered"),
    }
}

/// Returns what was said in a turn: its messages and its answer.
fn messages_of(turn: ThreadTurn) -> Vec<ThreadMessage> {
    let handoff_id = turn.handoff_id;
    let created_at = clock::text(turn.created_at);
    let said = turn.messages.into_iter().map(|message| ThreadMessage {
        handoff_id,
        role: message.role,
        content: message.content,
        state: None,
        created_at: created_at.clone(),
    });
    let answer = turn.answer.map(|answer| ThreadMessage {
        handoff_id,
        role: ChatRole::Assistant,
        content: answer.text,
        state: Some(answer.state),
        created_at: clock::text(turn.ended_at.unwrap_or(turn.created_at)),
    });
    said.chain(answer).collect()
}

fn markdown(thread: &Thread, messages: &[ThreadMessage]) -> String {
    let mut out = format!("# {}\n", thread.title);
    for message in messages {
        let who = match message.role {
            ChatRole::System => "System",
            ChatRole::User => "User",
            ChatRole::Assistant => "Project manager",
        };
        out.push_str(&format!("\n## {who}\n\n{}\n", message.content.trim_end()));
    }
    out
}
