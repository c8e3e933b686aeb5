use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};

use super::{
    Console, Failure,
    flash::{self, Flash},
    form::{Fields, Posted},
    page::{Section, page, with_actions},
    parts::{
        Filled, Tone, address, badge, button, cells, confirm, dash, empty, name, options, short, table,
        visible, visible_lines,
    },
    session::Session,
    when,
    work::{self, without},
};
use crate::{
    admin::{
        Error,
        operations::{DeadFilter, DeadLetter, DeadLetterDetails},
    },
    tools::holds_a_secret,
};

const HEADINGS: [&str; 6] = ["Letter", "Why", "Kind", "Given up", "Size", ""];
const MOST: usize = 100;
/// More of a handoff is not shown; the command line shows all of it.
const LONGEST_BODY: usize = 32 * 1024;
const LETTER: &str = "/console/dead/letter";

pub(super) async fn list(
    State(console): State<Arc<Console>>,
    session: Session,
    fields: Fields,
) -> Result<Response, Failure> {
    let filter = DeadFilter { kind: fields.owned("kind"), reason: fields.owned("reason"), limit: Some(MOST) };
    let is_filtered = filter.kind.is_some() || filter.reason.is_some();
    let letters = match console.admin.list_dead(&session.actor, &filter).await {
        Ok(letters) => letters,
        Err(error) => match without(&console, &error) {
            Some(said) => return Ok(page(&session, Some(Section::Dead), "Dead letters", &said)),
            None => return Err(error.into()),
        },
    };
    let rows: Vec<Markup> = letters.iter().map(|letter| row(&session, letter)).collect();
    let body = html! {
        p .lead {
            "Handoffs that were given up, whole, with the reason. A replay goes on where the handoff failed, under a new id if it \
             has been answered. Letters are kept for thirty days; after seven a replay is refused, because the journal is gone."
        }
        (filters(&fields))
        @if rows.is_empty() && is_filtered {
            (empty("There is no such letter.", &html! { a href=(Section::Dead.address()) { "Show all letters" } }))
        } @else if rows.is_empty() {
            (empty("No dead letters.", &html! { "Handoffs that fail permanently appear here." }))
        } @else {
            p .count {
                (when::count(rows.len(), "letter", "letters")) ", newest first"
                @if rows.len() == MOST { "; there may be more" }
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
    let filled = Filled { fields, error: None };
    html! {
        form .filter method="get" action=(Section::Dead.address()) role="search" {
            (options(filled, "reason", "Why", "", &reasons))
            (options(filled, "kind", "Kind", "", &kinds))
            button .button .quiet type="submit" { "Filter" }
        }
    }
}

fn row(session: &Session, letter: &DeadLetter) -> Markup {
    let cells_of = [
        html! {
            a href=(page_of(letter.number)) { "Letter " (letter.number) }
            @if let Some(id) = &letter.handoff_id { span .sub { (short(id)) } }
        },
        html! { (badge(Tone::Bad, letter.reason)) (state(letter)) span .sub .clamp { bdi { (visible(&letter.message)) } } },
        html! { (letter.kind) },
        html! {
            (when::at(letter.died_at))
            span .sub { (deliveries(letter.deliveries)) }
        },
        size(letter.bytes),
        html! { div .actions { (replay_form(session, letter)) (drop_form(session, letter.number)) } },
    ];
    html! { tr role="row" { (cells(&HEADINGS, &cells_of)) } }
}

/// What became of the handoff since, if it is not open.
fn state(letter: &DeadLetter) -> Markup {
    match letter.not_replayed {
        Some(_) => html! { " " (badge(Tone::Plain, letter.state)) },
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
        Err(error) => match without(&console, &error) {
            Some(said) => return Ok(page(&session, Some(Section::Dead), "Dead letter", &said)),
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
                div .whole { dt { "Why" } dd { (badge(Tone::Bad, letter.reason)) " " bdi { (visible(&letter.message)) } } }
                @if let Some(why) = &letter.not_replayed {
                    div .whole { dt { "State" } dd { (state(letter)) " " (visible(why)) } }
                }
                div { dt { "Kind" } dd { (letter.kind) } }
                div { dt { "Handoff" } dd {
                    @match &letter.handoff_id { Some(id) => { a href=(work::address(id)) { (short(id)) } } None => { (dash()) } }
                } }
                div { dt { "Published" } dd { (when::text(&letter.published_at)) } }
                div { dt { "Given up" } dd { (when::at(letter.died_at)) } }
                div { dt { "By" } dd { (name(&letter.instance)) } }
                div { dt { "Delivered" } dd { (deliveries(letter.deliveries)) } }
                div { dt { "Size" } dd { (size(Some(*body_bytes))) } }
            }
            p .hint .after { "What it means and what to do: see " code { "docs/errors/" (letter.reason) ".md" } "." }
        }
        section {
            h2 { "Handoff" }
            @let text = body.as_ref().and_then(|body| serde_json::to_string_pretty(body).ok());
            @match text {
                None => { p .lead { "Its " (when::count(*body_bytes, "byte", "bytes")) " cannot be read. Replayed, it goes out as it was." } }
                Some(text) if holds_a_secret(&text) => {
                    p .lead { "Not shown: it contains something that looks like a secret. " code { "cynodectl dead show " (letter.number) } " prints it." }
                }
                Some(text) => {
                    pre tabindex="0" aria-label="The handoff" { (visible_lines(&text[..text.floor_char_boundary(LONGEST_BODY)])) }
                    @if text.len() > LONGEST_BODY { p .hint { "Only its beginning is shown; " code { "cynodectl dead show " (letter.number) } " prints all of it." } }
                }
            }
        }
        @if !headers.is_empty() {
            section {
                h2 { "Headers" }
                div .card { dl .facts {
                    @for (header, value) in headers { div .whole { dt { (visible(header)) } dd { code .long { (visible(value)) } } } }
                } }
            }
        }
    }
}

pub(super) async fn replay(State(console): State<Arc<Console>>, posted: Posted) -> Result<Response, Failure> {
    let Posted { session, fields } = posted;
    let number = number(&fields)?;
    let done = console.admin.replay_dead(&session.actor, number).await;
    match done {
        Ok(replayed) => {
            let id = replayed.handoff_id.as_deref();
            let under = id.map_or_else(|| "as it was".to_owned(), |id| format!("as {id}"));
            let notes: String = replayed.notes.iter().map(|note| format!(" Letter {note}")).collect();
            let text = format!("Letter {number} was handed off again {under}.{notes}");
            // Where one sees what becomes of it.
            let next = id.map_or_else(|| Section::Dead.address().to_owned(), work::address);
            Ok(flash::redirect(&console, &next, &Flash { good: true, text }))
        }
        Err(error) => flash::after(&console, Section::Dead.address(), Err(error), |()| String::new()),
    }
}

pub(super) async fn remove(State(console): State<Arc<Console>>, posted: Posted) -> Result<Response, Failure> {
    let Posted { session, fields } = posted;
    let number = number(&fields)?;
    let done = console.admin.drop_dead(&session.actor, number).await;
    flash::after(&console, Section::Dead.address(), done, |()| format!("Letter {number} is gone for good."))
}

/// Nothing for a letter that would not be replayed.
fn replay_form(session: &Session, letter: &DeadLetter) -> Markup {
    if letter.not_replayed.is_some() {
        return html! {};
    }
    let number = letter.number.to_string();
    let sure = button(session, "/console/dead/replay", &[("number", &number)], "small", "Replay it");
    let question = html! {
        "It is handed off again and goes on where it failed: finished model turns and tool calls are not repeated. The letter is \
         removed."
    };
    confirm("Replay", &question, &sure)
}

fn drop_form(session: &Session, number: u64) -> Markup {
    let number = number.to_string();
    let sure =
        button(session, "/console/dead/drop", &[("number", &number)], "danger small", "Drop it for good");
    confirm("Drop", &html! { "The handoff is not kept anywhere else. This cannot be undone." }, &sure)
}

fn number(fields: &Fields) -> Result<u64, Failure> {
    let text = fields.text("number");
    text.parse().map_err(|_| Error::NotFound { what: "dead letter", id: text.to_owned() }.into())
}

fn page_of(number: u64) -> String {
    address(LETTER, &[("number", &number.to_string())])
}

fn deliveries(count: u64) -> String {
    when::count(usize::try_from(count).unwrap_or(usize::MAX), "delivery", "deliveries")
}

fn size(bytes: Option<usize>) -> Markup {
    match bytes {
        Some(bytes) => html! { span .nowrap { (operate::size(u64::try_from(bytes).unwrap_or(u64::MAX))) } },
        None => html! { "large" },
    }
}
