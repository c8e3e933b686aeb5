//! HTML components that the pages share.

mod field;
mod graph;
mod table;

use maud::{Markup, PreEscaped, html};
use url::form_urlencoded::Serializer;

pub(super) use self::{
    field::{FormState, area, checkbox, document, input, options, suggest},
    graph::{GraphNode, arrowhead, graph},
    table::{cells, table, table_with},
};
use super::{form::CSRF, session::Session};
use registry::sanitize;

/// The colour of a badge. The text of the badge says the same.
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

/// Renders an untrusted name: invisible characters are escaped, and it cannot change the direction of the
/// text around it.
pub(super) fn name(text: &str) -> Markup {
    html! { bdi { code { (visible(text)) } } }
}

/// Escapes invisible characters.
pub(super) fn visible(text: &str) -> String {
    sanitize::escape_hidden(text)
}

/// Like [`visible`], but keeps line breaks.
pub(super) fn visible_lines(text: &str) -> String {
    text.lines().map(visible).collect::<Vec<_>>().join("\n")
}

/// Renders the last characters of an id, where ids differ; the full id is in the tooltip.
pub(super) fn short(id: &str) -> Markup {
    let from = id.char_indices().rev().nth(7).map_or(0, |(at, _)| at);
    let mark = if from > 0 { "…" } else { "" };
    html! { code title=(visible(id)) { (mark) (visible(&id[from..])) } }
}

/// Renders an author; the id of the token is only in the tooltip.
pub(super) fn author(by: &str) -> Markup {
    html! { bdi title=(visible(by)) { (visible(by.split(':').next().unwrap_or(by))) } }
}

pub(super) fn dash() -> Markup {
    html! { span .dash aria-label="none" { "–" } }
}

pub(super) fn or_dash(text: Option<&str>) -> Markup {
    text.map_or_else(dash, |text| html! { bdi { (visible(text)) } })
}

/// Returns an address with query parameters; empty ones are omitted.
pub(super) fn address(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut query = Serializer::new(String::new());
    query.extend_pairs(parameters.iter().filter(|(_, value)| !value.is_empty()));
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

/// Renders a POST form with the CSRF token and hidden fields.
pub(super) fn form(session: &Session, action: &str, hidden: &[(&str, &str)], inner: &Markup) -> Markup {
    html! {
        form method="post" action=(action) {
            input type="hidden" name=(CSRF) value=(session.csrf);
            @for (name, value) in hidden { input type="hidden" name=(name) value=(value); }
            (inner)
        }
    }
}

/// Renders a POST form that consists of one button.
pub(super) fn button(
    session: &Session,
    action: &str,
    hidden: &[(&str, &str)],
    class: &str,
    text: &str,
) -> Markup {
    form(session, action, hidden, &html! { button class={ "button " (class) } type="submit" { (text) } })
}

/// Renders a button that asks for confirmation.
pub(super) fn confirm(summary: &str, question: &Markup, button: &Markup) -> Markup {
    html! {
        details .confirm {
            summary .button .quiet .small { (summary) }
            div .question { p { (question) } (button) }
        }
    }
}

/// Renders an empty state: what is missing, and what to do next.
pub(super) fn empty(title: &str, next: &Markup) -> Markup {
    html! { div .empty { p .what { (title) } p { (next) } } }
}

pub(super) fn logo() -> Markup {
    PreEscaped(include_str!("icon.svg").to_owned())
}

/// Formats an identifier such as `project_manager` for display.
pub(super) fn agent(word: &str) -> String {
    let words = visible(&word.replace('_', " "));
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}
