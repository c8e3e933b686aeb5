use maud::{Markup, html};

use crate::admin::{
    console::{
        parts::{self, Tone, agent, badge, dash, name, visible, visible_lines},
        when,
        work::status,
    },
    operations::{Life, LifeState},
};

pub(super) fn facts(life: &Life) -> Markup {
    let usage = &life.usage;
    let took = life.ended_at.map(|ended| when::took(ended - life.began_at));
    let count = |count: u32, one: &str, several: &str| {
        when::count(usize::try_from(count).unwrap_or(usize::MAX), one, several)
    };
    let tokens = |count: u64| when::number(i64::try_from(count).unwrap_or(i64::MAX));
    html! {
        div .card {
            dl .facts .dense {
                div { dt { "State" } dd { (state(life)) } }
                div { dt { "Kind" } dd { @match life.kind { Some(kind) => { (kind) } None => { (dash()) } } } }
                div { dt { "For" } dd { (agent(life.role)) } }
                div { dt { "Begun" } dd { (when::at(life.began_at)) } }
                div { dt { "Took" } dd { @match took { Some(took) => { (took) } None => { "not answered yet" } } } }
                div { dt { "Attempts" } dd { (life.attempts.len().max(life.answer.as_ref().map_or(0, |answer| usize::try_from(answer.attempts).unwrap_or(0)))) } }
                div { dt { "Work" } dd { (count(usage.model_calls, "model call", "model calls")) ", " (count(usage.tool_calls, "tool call", "tool calls")) } }
                div { dt { "Tokens" } dd { (tokens(usage.prompt_tokens)) " in, " (tokens(usage.completion_tokens)) " out" } }
                div { dt { "Cost" } dd { @match usage.cost_usd { Some(cost) => { (when::dollars(cost)) } None => { "not known" } } } }
            }
        }
    }
}

fn state(life: &Life) -> Markup {
    match (life.state, &life.answer) {
        (LifeState::Answered, Some(answer)) => status(&answer.status, answer.error.is_some()),
        (LifeState::Answered, None) | (LifeState::Unknown, _) => badge(Tone::Warn, "Not readable"),
        (LifeState::InWork, _) => badge(Tone::Plain, "In work"),
        (LifeState::HandedBack, _) => badge(Tone::Warn, "Handed back"),
    }
}

pub(super) fn unreadable(life: &Life) -> Markup {
    html! {
        @for torn in &life.unreadable {
            p .flash .bad role="alert" {
                @if torn.newer {
                    "Message " (torn.sequence) " of the journal was written by a newer build, which can read it: "
                    (visible(&torn.why)) ". What is shown here is what came before and after it."
                } @else {
                    "Message " (torn.sequence) " of the journal is torn and cannot be read (" (visible(&torn.why))
                    "). An unreadable journal is not repaired: the next worker dead-letters the handoff as internal."
                }
            }
        }
    }
}

pub(super) fn answer(life: &Life) -> Markup {
    let Some(answer) = &life.answer else { return html! {} };
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
                        strong { (error) } @if let Some(message) = &answer.error_message { ": " bdi { (visible(message)) } }
                    }
                    p .hint { "What it means and what to do: see " code { "docs/errors/" (error) ".md" } "." }
                }
                @if let Some(number) = life.dead_letter {
                    p { "Dead-lettered: " a href=(parts::address("/console/dead/letter", &[("number", &number.to_string())])) { "dead letter " (number) } }
                }
                @if let Some(text) = &answer.text { p .described { (visible_lines(text)) } }
                @if answer.holds_a_secret { p .hint { (HIDDEN) } }
                @if !answer.findings.is_empty() {
                    ul .findings {
                        @for (criterion, verdict) in &answer.findings {
                            li { (judged(verdict)) " " bdi { (visible(criterion)) } }
                        }
                    }
                }
            }
        }
    }
}

/// In place of what looks like a secret.
pub(super) const HIDDEN: &str = "Not shown: it contains something that looks like a secret.";

fn judged(verdict: &str) -> Markup {
    let tone = match verdict {
        "met" => Tone::Good,
        "not met" => Tone::Bad,
        _ => Tone::Warn,
    };
    badge(tone, &agent(verdict))
}
