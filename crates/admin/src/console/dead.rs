//! Pages of dead letters: list, one letter, replay, drop.

use std::sync::Arc;

use api::{DeadFilter, DeadLetter, DeadLetterDetails};
use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{
    Console, Failure,
    components::{
        FormState, Tone, address, badge, button, cells, confirm, dash, empty, name, options, short, table,
        visible, visible_lines,
    },
    flash::{self, Flash},
    form::{Fields, PostedForm},
    format,
    page::{Section, page, with_actions},
    session::Session,
    work::{self, render_nats_error},
};

use crate::Error;

const HEADINGS: [&str; 6] = ["Letter", "Reason", "Kind", "Dead-lettered", "Size", ""];
const MAX_LETTERS: usize = 100;
/// Longer handoffs are truncated; `cynodectl dead show` prints all of them.
const MAX_BODY_BYTES: usize = 32 * 1024;
const LETTER: &str = "/console/dead/letter";

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let filter =
        DeadFilter { kind: fields.owned("kind"), reason: fields.owned("reason"), limit: Some(MAX_LETTERS) };
    let is_filtered = filter.kind.is_some() || filter.reason.is_some();
    let letters = match console.admin.list_dead(&session.actor, &filter).await {
        Ok(letters) => letters,
        Err(error) => match render_nats_error(&console, &error) {
            Some(notice) => return Ok(page(&session, Some(Section::Dead), "Dead letters", &notice)),
            None => return Err(error.into()),
        },
    };
    let rows: Vec<Markup> = letters.iter().map(|letter| row(&session, letter)).collect();
    let body = html! {
        p .lead {
            "Handoffs that failed permanently, with the reason. A replay continues where the handoff \
             failed, under a new id if it has been answered. Dead letters are kept for 30 days; after 7 \
             days a replay is refused, because the journal has expired."
        }
        (filters(&fields))
        @if rows.is_empty() && is_filtered {
            (empty(
                "No matching dead letters.",
                &html! { a href=(Section::Dead.address()) { "Show all letters" } },
            ))
        } @else if rows.is_empty() {
            (empty("No dead letters.", &html! { "Handoffs that fail permanently appear here." }))
        } @else {
            p .count {
                (format::count(rows.len(), "letter", "letters")) ", newest first"
                @if rows.len() == MAX_LETTERS { "; there may be more" }
            }
            (table("Dead letters, newest first", &HEADINGS, &rows))
        }
    };
    Ok(page(&session, Some(Section::Dead), "Dead letters", &body))
}

fn filters(fields: &Fields) -> Markup {
    let mut kinds = vec![("", "Any")];
    kinds.extend(subjects::Kind::ALL.map(|kind| (kind.as_str(), kind.as_str())));
    let mut reasons = vec![("", "Any")];
    reasons.extend(subjects::ErrorCode::ALL.map(|code| (code.as_str(), code.as_str())));
    let filled = FormState { fields, error: None };
    html! {
        form .filter method="get" action=(Section::Dead.address()) role="search" {
            (options(filled, "reason", "Reason", "", &reasons))
            (options(filled, "kind", "Kind", "", &kinds))
            button .button .quiet type="submit" { "Filter" }
        }
    }
}

fn row(session: &Session, letter: &DeadLetter) -> Markup {
    let cells_of = [
        html! {
            a href=(letter_address(letter.number)) { "Letter " (letter.number) }
            @if let Some(id) = &letter.handoff_id { span .sub { (short(id)) } }
        },
        html! {
            (badge(Tone::Bad, &letter.reason)) (state(letter))
            span .sub .clamp { bdi { (visible(&letter.message)) } }
        },
        html! { (letter.kind) },
        html! {
            (format::time(letter.died_at))
            span .sub { (deliveries(letter.deliveries)) }
        },
        size(letter.bytes),
        html! { div .actions { (replay_form(session, letter)) (drop_form(session, letter.number)) } },
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}

/// Renders the current state of the handoff, unless it is open.
fn state(letter: &DeadLetter) -> Markup {
    match letter.not_replayed {
        Some(_) => html! { " " (badge(Tone::Plain, &letter.state)) },
        None => html! {},
    }
}

pub(super) async fn show(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let number = number(&fields)?;
    let found = match console.admin.get_dead(&session.actor, number).await {
        Ok(found) => found,
        Err(error) => match render_nats_error(&console, &error) {
            Some(notice) => return Ok(page(&session, Some(Section::Dead), "Dead letter", &notice)),
            None => return Err(error.into()),
        },
    };
    let actions = html! { (replay_form(&session, &found.letter)) (drop_form(&session, number)) };
    let title = format!("Dead letter {number}");
    Ok(with_actions(&session, Some(Section::Dead), &title, &actions, &details(&found)))
}

fn details(found: &DeadLetterDetails) -> Markup {
    let DeadLetterDetails { letter, headers, body, body_bytes } = found;
    html! {
        p .crumbs { a href=(Section::Dead.address()) { "Dead letters" } " / " (letter.number) }
        div .card {
            dl .facts .dense {
                div .whole {
                    dt { "Reason" }
                    dd { (badge(Tone::Bad, &letter.reason)) " " bdi { (visible(&letter.message)) } }
                }
                @if let Some(why) = &letter.not_replayed {
                    div .whole { dt { "State" } dd { (state(letter)) " " (visible(why)) } }
                }
                div { dt { "Kind" } dd { (letter.kind) } }
                div { dt { "Handoff" } dd {
                    @match &letter.handoff_id {
                        Some(id) => { a href=(work::address(id)) { (short(id)) } } None => { (dash()) }
                    }
                } }
                div { dt { "Published" } dd { (format::timestamp(&letter.published_at)) } }
                div { dt { "Dead-lettered" } dd { (format::time(letter.died_at)) } }
                div { dt { "By" } dd { (name(&letter.instance)) } }
                div { dt { "Delivered" } dd { (deliveries(letter.deliveries)) } }
                div { dt { "Size" } dd { (size(Some(*body_bytes))) } }
            }
            p .hint .after {
                "What it means and what to do: see " code { "docs/errors/" (letter.reason) ".md" } "."
            }
        }
        section {
            h2 { "Handoff" }
            @let text = body.as_ref().and_then(|body| serde_json::to_string_pretty(body).ok());
            @match text {
                None => {
                    p .lead {
                        "Its " (format::count(*body_bytes, "byte", "bytes"))
                        " are unreadable. A replay publishes them unchanged."
                    }
                }
                Some(text) if secrets::find(&text).is_some() => {
                    p .lead {
                        "Not shown: it contains something that looks like a secret. "
                        code { "cynodectl dead show " (letter.number) } " prints it."
                    }
                }
                Some(text) => {
                    pre tabindex="0" aria-label="The handoff" {
                        (visible_lines(&text[..text.floor_char_boundary(MAX_BODY_BYTES)]))
                    }
                    @if text.len() > MAX_BODY_BYTES {
                        p .hint {
                            "Only its beginning is shown; " code { "cynodectl dead show " (letter.number) }
                            " prints all of it."
                        }
                    }
                }
            }
        }
        @if !headers.is_empty() {
            section {
                h2 { "Headers" }
                div .card { dl .facts {
                    @for (header, value) in headers {
                        div .whole { dt { (visible(header)) } dd { code .long { (visible(value)) } } }
                    }
                } }
            }
        }
    }
}

pub(super) async fn replay(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let number = number(&fields)?;
    let done = console.admin.replay_dead(&session.actor, number).await;
    match done {
        Ok(replayed) => {
            let id = replayed.handoff_id.as_deref();
            let under = id.map_or_else(|| "unchanged".to_owned(), |id| format!("as {id}"));
            let notes: String = replayed.notes.iter().map(|note| format!(" Letter {note}")).collect();
            let text = format!("Letter {number} replayed {under}.{notes}");
            // The page of the handoff shows its progress.
            let next = id.map_or_else(|| Section::Dead.address().to_owned(), work::address);
            Ok(flash::redirect(&console, &next, &Flash { good: true, text }))
        }
        Err(error) => {
            flash::redirect_after(&console, Section::Dead.address(), Err(error), |()| String::new())
        }
    }
}

pub(super) async fn remove(
    State(console): State<Arc<Console>>,
    posted: PostedForm,
) -> Result<Response, Failure> {
    let PostedForm { session, fields } = posted;
    let number = number(&fields)?;
    let done = console.admin.drop_dead(&session.actor, number).await;
    flash::redirect_after(&console, Section::Dead.address(), done, |()| format!("Letter {number} dropped."))
}

/// Renders the replay button; nothing for a letter that cannot be replayed.
fn replay_form(session: &Session, letter: &DeadLetter) -> Markup {
    if letter.not_replayed.is_some() {
        return html! {};
    }
    let number = letter.number.to_string();
    let sure = button(session, "/console/dead/replay", &[("number", &number)], "small", "Replay it");
    let question = html! {
        "The handoff is published again and continues where it failed: finished model turns and tool calls \
         are not repeated. The letter is removed."
    };
    confirm("Replay", &question, &sure)
}

fn drop_form(session: &Session, number: u64) -> Markup {
    let number = number.to_string();
    let sure =
        button(session, "/console/dead/drop", &[("number", &number)], "danger small", "Drop permanently");
    confirm("Drop", &html! { "The handoff is not kept anywhere else. This cannot be undone." }, &sure)
}

fn number(fields: &Fields) -> Result<u64, Failure> {
    let text = fields.text("number");
    text.parse().map_err(|_| Error::NotFound { what: "dead letter", id: text.to_owned() }.into())
}

fn letter_address(number: u64) -> String {
    address(LETTER, &[("number", &number.to_string())])
}

fn deliveries(count: u64) -> String {
    format::count(usize::try_from(count).unwrap_or(usize::MAX), "delivery", "deliveries")
}

fn size(bytes: Option<usize>) -> Markup {
    match bytes {
        Some(bytes) => {
            html! { span .nowrap { (operate::format_size(u64::try_from(bytes).unwrap_or(u64::MAX))) } }
        }
        None => html! { "large" },
    }
}
