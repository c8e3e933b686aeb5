//! The page of one text.

use std::sync::Arc;

use api::{MemoryAddress, MemoryChanges, MemoryContent};
use axum::{extract::State, response::Response};
use maud::html;

use super::profile_page;
use crate::console::{
    Console, Failure,
    components::{address, button, confirm, name, visible, visible_lines},
    flash,
    form::{Fields, PostedForm},
    format,
    page::{Section, with_actions},
    session::Session,
};

pub(in super::super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let at = MemoryAddress { path: fields.text("path").to_owned(), cursor: fields.owned("cursor") };
    let content = console.admin.get_memory(&session.actor, fields.text("profile"), &at).await?;
    Ok(render(&session, &content))
}

pub(in super::super) async fn delete(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let (profile, path) = (fields.text("profile"), fields.text("path"));
    let changes = MemoryChanges { delete: vec![path.to_owned()], ..MemoryChanges::default() };
    let deleted = console.admin.change_memories(&session.actor, profile, changes).await;
    flash::redirect_after(&console, &profile_page(profile), deleted, |done| match done.deleted {
        0 => format!("{path} was not there any more."),
        _ => format!("{path} deleted. Agents no longer find it."),
    })
}

fn render(session: &Session, content: &MemoryContent) -> Response {
    let source = &content.source;
    let target = [("profile", source.profile.as_str()), ("path", source.path.as_str())];
    let next = content.next_cursor.as_deref();
    let next =
        next.map(|cursor| address("/console/memory/text", &[target[0], target[1], ("cursor", cursor)]));
    let body = html! {
        p .crumbs {
            a href=(Section::Memory.address()) { "Memory" } " / "
            a href=(profile_page(&source.profile)) { (name(&source.profile)) } " / " (name(&source.path))
        }
        div .card {
            dl .facts {
                div { dt { "From" } dd { bdi { (visible(&source.source)) } } }
                @if !source.tags.is_empty() {
                    div { dt { "Tags" } dd { bdi { (visible(&source.tags.join(", "))) } } }
                }
                div { dt { "Size" } dd { (format::number(source.bytes)) " bytes" } }
                div { dt { "Pieces" } dd { (format::number(source.chunks)) } }
                div { dt { "Digest" } dd { (name(&source.digest)) } }
                div { dt { "Added" } dd { (format::timestamp(&source.created_at)) } }
                div { dt { "Changed" } dd { (format::timestamp(&source.updated_at)) } }
                @if let Some(expires) = &source.expires_at {
                    div { dt { "Kept until" } dd { (format::timestamp(expires)) } }
                }
            }
        }
        section {
            h2 { "Lines " (content.first_line) " to " (content.last_line) }
            pre tabindex="0" aria-label="Text" { code { (visible_lines(&content.text)) } }
            @if let Some(next) = next {
                nav .pages aria-label="Pages" { a .button .quiet href=(next) { "Next lines" } }
            }
        }
    };
    let actions = confirm(
        "Delete",
        &html! { "Agents no longer find it, and its text is lost. This cannot be undone." },
        &button(session, "/console/memory/delete", &target, "danger small", "Delete this text"),
    );
    with_actions(session, Some(Section::Memory), &source.path, &actions, &body)
}
