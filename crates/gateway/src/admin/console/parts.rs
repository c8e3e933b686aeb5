//! What pages are made of.

mod field; // one question of a form
mod table; // rows on wide screens, cards on narrow ones

use maud::{Markup, PreEscaped, html};
use url::form_urlencoded::Serializer;

pub(super) use self::{
    field::{Filled, area, checkbox, input, options},
    table::{cells, table, table_with},
};
use super::{form::CSRF, session::Session};
use crate::sanitize;

/// How something is, for the eye. The words say it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    Warn,
    Bad,
    Plain,
}

pub(super) fn badge(tone: Tone, text: &str) -> Markup {
    let class = match tone {
        Tone::Good => "good",
        Tone::Warn => "warn",
        Tone::Bad => "bad",
        Tone::Plain => "plain",
    };
    html! { span class={ "badge " (class) } { (text) } }
}

/// A name that a stranger may have chosen: what would be hidden is seen, and it cannot turn the text around it.
pub(super) fn name(text: &str) -> Markup {
    html! { bdi { code { (visible(text)) } } }
}

pub(super) fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if sanitize::is_hidden(letter) {
            out.extend(letter.escape_unicode());
        } else {
            out.push(letter);
        }
    }
    out
}

/// The same for a text of several lines, which stay lines.
pub(super) fn visible_lines(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}

/// The end of an id, which is where ids differ; the whole of it when one points at it.
pub(super) fn short(id: &str) -> Markup {
    let from = id.char_indices().rev().nth(7).map_or(0, |(at, _)| at);
    let mark = if from > 0 { "…" } else { "" };
    html! { code title=(visible(id)) { (mark) (visible(&id[from..])) } }
}

/// Who did it, without the id of their token unless one points at it.
pub(super) fn author(by: &str) -> Markup {
    html! { bdi title=(visible(by)) { (visible(by.split(':').next().unwrap_or(by))) } }
}

pub(super) fn dash() -> Markup {
    html! { span .dash aria-label="none" { "–" } }
}

pub(super) fn or_dash(text: Option<&str>) -> Markup {
    text.map_or_else(dash, |text| html! { bdi { (visible(text)) } })
}

/// An address with parameters; empty ones are left out.
pub(super) fn address(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(parameters.iter().filter(|(_, value)| !value.is_empty()));
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

/// A form that changes something.
pub(super) fn form(session: &Session, action: &str, hidden: &[(&str, &str)], inner: &Markup) -> Markup {
    html! {
        form method="post" action=(action) {
            input type="hidden" name=(CSRF) value=(session.csrf);
            @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
            (inner)
        }
    }
}

/// A form that is one button.
pub(super) fn button(
    session: &Session,
    action: &str,
    hidden: &[(&str, &str)],
    class: &str,
    text: &str,
) -> Markup {
    form(session, action, hidden, &html! { button class={ "button " (class) } type="submit" { (text) } })
}

/// Asks once more before something is done that cannot be undone.
pub(super) fn confirm(summary: &str, question: &Markup, button: &Markup) -> Markup {
    html! {
        details .confirm {
            summary .button .quiet .small { (summary) }
            div .question { p { (question) } (button) }
        }
    }
}

/// Nothing to show, and what to do about it.
pub(super) fn empty(title: &str, next: &Markup) -> Markup {
    html! { div .empty { p .what { (title) } p { (next) } } }
}

pub(super) fn mark() -> Markup {
    PreEscaped(include_str!("icon.svg").to_owned())
}

/// How an agent is called.
pub(super) fn agent(word: &str) -> String {
    let words = visible(&word.replace('_', " "));
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}
