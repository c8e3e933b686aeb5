//! The facts, unreadable entries and the answer of a handoff.

use maud::{Markup, html};

use crate::{
    console::{
        components::{self, Tone, agent, badge, dash, name, visible, visible_lines},
        format,
        work::status,
    },
    operations::{HandoffHistory, HandoffState},
};

/// Renders state, times, attempts and usage.
pub(super) fn facts(history: &HandoffHistory) -> Markup {
    let usage = &history.usage;
    let duration = history.ended_at.map(|ended| format::duration(ended - history.began_at));
    let count = |count: u32, one: &str, several: &str| {
        format::count(usize::try_from(count).unwrap_or(usize::MAX), one, several)
    };
    // The answer counts attempts whose entries are no longer readable.
    let answered = history.answer.as_ref().map_or(0, |answer| usize::try_from(answer.attempts).unwrap_or(0));
    let attempts = history.attempts.len().max(answered);
    let tokens = |count: u64| format::number(i64::try_from(count).unwrap_or(i64::MAX));
    html! {
        div .card {
            dl .facts .dense {
                @if let Some(request) = &history.request {
                    div .whole { dt { "Request" } dd { (visible_lines(request)) } }
                }
                div { dt { "State" } dd { (state(history)) } }
                div {
                    dt { "Kind" } dd { @match history.kind { Some(kind) => { (kind) } None => { (dash()) } } }
                }
                div { dt { "For" } dd { (agent(history.role)) } }
                div { dt { "Started" } dd { (format::time(history.began_at)) } }
                div {
                    dt { "Duration" }
                    dd { @match duration { Some(duration) => { (duration) } None => { "not answered yet" } } }
                }
                div {
                    dt { "Attempts" }
                    dd { (attempts) }
                }
                div {
                    dt { "Calls" }
                    dd {
                        (count(usage.model_calls, "model call", "model calls")) ", "
                        (count(usage.tool_calls, "tool call", "tool calls"))
                    }
                }
                div {
                    dt { "Tokens" }
                    dd { (tokens(usage.prompt_tokens)) " in, " (tokens(usage.completion_tokens)) " out" }
                }
                div {
                    dt { "Cost" }
                    dd {
                        @match usage.cost_usd {
                            Some(cost) => { (format::dollars(cost)) } None => { "unknown" }
                        }
                    }
                }
            }
        }
    }
}

fn state(history: &HandoffHistory) -> Markup {
    match (history.state, &history.answer) {
        (HandoffState::Answered, Some(answer)) => status(&answer.status, answer.error.is_some()),
        (HandoffState::Answered, None) | (HandoffState::Unknown, _) => badge(Tone::Warn, "Unreadable"),
        (HandoffState::InWork, _) => badge(Tone::Plain, "In progress"),
        (HandoffState::HandedBack, _) => badge(Tone::Warn, "Handed back"),
    }
}

/// Renders an alert for each journal entry that cannot be read.
pub(super) fn unreadable(history: &HandoffHistory) -> Markup {
    html! {
        @for entry in &history.unreadable {
            p .flash .bad role="alert" {
                @if entry.newer {
                    "Journal entry " (entry.sequence) " was written by a newer build, which can read it: "
                    (visible(&entry.why)) ". The entries before and after it are shown."
                } @else {
                    "Journal entry " (entry.sequence) " is corrupt and cannot be read (" (visible(&entry.why))
                    "). An unreadable journal is not repaired: "
                    "the next worker dead-letters the handoff as internal."
                }
            }
        }
    }
}

/// Renders the answer; nothing if there is none.
pub(super) fn answer(history: &HandoffHistory) -> Markup {
    let Some(answer) = &history.answer else { return html! {} };
    html! {
        section {
            h2 { "Answer" }
            div .card {
                p .parts {
                    (status(&answer.status, answer.error.is_some()))
                    span { "by " (name(&answer.instance)) }
                    span { "stopped: " (answer.stop) }
                }
                @if let Some(error) = answer.error {
                    p .why {
                        strong { (error) }
                        @if let Some(message) = &answer.error_message { ": " bdi { (visible(message)) } }
                    }
                    p .hint { "What it means and what to do: see " code { "docs/errors/" (error) ".md" } "." }
                }
                @if let Some(number) = history.dead_letter {
                    @let number = number.to_string();
                    @let page = components::address("/console/dead/letter", &[("number", &number)]);
                    p { "Dead-lettered: " a href=(page) { "dead letter " (number) } }
                }
                @if let Some(text) = &answer.text { p .described { (visible_lines(text)) } }
                @if answer.holds_a_secret { p .hint { (HIDDEN) } }
                @if !answer.findings.is_empty() {
                    ul .findings {
                        @for (criterion, verdict) in &answer.findings {
                            li { (verdict_badge(verdict)) " " bdi { (visible(criterion)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Shown in place of a text that looks like a secret.
pub(super) const HIDDEN: &str = "Not shown: it contains something that looks like a secret.";

fn verdict_badge(verdict: &str) -> Markup {
    let tone = match verdict {
        "met" => Tone::Good,
        "not met" => Tone::Bad,
        _ => Tone::Warn,
    };
    badge(tone, &agent(verdict))
}
