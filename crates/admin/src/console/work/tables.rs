//! Tables of instances, handoffs in progress and answers.

use maud::{Markup, html};
use operate::work::{Answered, InWork};
use subjects::{InFlight, InstanceState, InstanceStatus, Usage};

use super::{address, charts::slots};
use store::clock;

use crate::console::{
    components::{Tone, agent, badge, cells, dash, empty, name, short, table, visible},
    format,
};

const INSTANCES: [&str; 5] = ["Instance", "State", "Busy", "Model", "Since"];
const IN_WORK: [&str; 5] = ["Handoff", "Kind", "Published", "Claimed by", "Usage"];
const ANSWERED: [&str; 5] = ["Handoff", "Status", "When", "Answered by", "Usage"];

pub(super) fn instances(instances: &[InstanceStatus]) -> Markup {
    if instances.is_empty() {
        return empty(
            "No instances running.",
            &html! {
                "Start one with " code { "cynode-pma --role=project_manager" }
                "; handoffs stay queued until then."
            },
        );
    }
    let rows: Vec<Markup> = instances
        .iter()
        .map(|it| {
            let cells_of = [
                html! {
                    (name(it.instance.as_str())) span .sub {
                        (agent(it.role.as_str())) " · " (visible(&it.version))
                    }
                },
                state(it.state),
                html! {
                    ul .slot-lines {
                        @for (kind, in_flight) in &it.in_flight { li { (busy(kind.as_str(), *in_flight)) } }
                    }
                },
                html! { bdi { (visible(&it.model_route)) } },
                format::time(clock::micros(it.started_at.at())),
            ];
            html! { tr role="row" { (cells(&INSTANCES, &cells_of)) } }
        })
        .collect();
    table("Instances", &INSTANCES, &rows)
}

fn busy(kind: &str, in_flight: InFlight) -> Markup {
    html! {
        span .kind { (kind) } " "
        span .of { (in_flight.running) " of " (in_flight.slots) } " "
        (slots(in_flight))
    }
}

fn state(state: InstanceState) -> Markup {
    match state {
        InstanceState::Ready => badge(Tone::Good, "Ready"),
        InstanceState::NotReady => badge(Tone::Bad, "Not ready"),
        InstanceState::Draining => badge(Tone::Warn, "Draining"),
    }
}

pub(super) fn in_work(in_work: &[InWork]) -> Markup {
    if in_work.is_empty() {
        return empty(
            "No handoffs in progress.",
            &html! { "Handoffs appear here while an instance works on them." },
        );
    }
    let rows: Vec<Markup> = in_work
        .iter()
        .map(|it| {
            let id = it.handoff_id.map(|id| id.to_string());
            let so_far = it.so_far.as_ref();
            let cells_of = [
                handoff(id.as_deref()),
                html! { (it.kind.as_str()) },
                format::time(clock::micros(it.published_at.at())),
                match so_far {
                    None => html! { "Not claimed" },
                    Some(so_far) => html! {
                        @match &so_far.instance {
                            Some(instance) => { (name(instance.as_str())) } None => { "Handed back" }
                        }
                        @if so_far.attempt > 1 { span .sub { "attempt " (so_far.attempt) } }
                    },
                },
                match so_far {
                    None => dash(),
                    Some(so_far) => html! {
                        (usage(&so_far.usage)) span .sub {
                            "last entry " (format::time(clock::micros(so_far.last_at.at())))
                        }
                    },
                },
            ];
            html! { tr role="row" { (cells(&IN_WORK, &cells_of)) } }
        })
        .collect();
    table("Handoffs in progress, longest first", &IN_WORK, &rows)
}

pub(super) fn answered(answered: &[Answered]) -> Markup {
    if answered.is_empty() {
        return empty("No answers yet.", &html! { "Answers of the last seven days appear here." });
    }
    let rows: Vec<Markup> = answered
        .iter()
        .map(|it| {
            let cells_of = [
                html! { (handoff(Some(&it.handoff_id.to_string()))) span .sub { (it.kind.as_str()) } },
                html! {
                    (status(&it.status, it.error.is_some()))
                    @if let Some(error) = it.error { span .sub { (error.as_str()) } }
                },
                format::time(clock::micros(it.at.at())),
                html! {
                    (name(it.instance.as_str()))
                    @if it.attempts > 1 { span .sub { "attempt " (it.attempts) } }
                },
                usage(&it.usage),
            ];
            html! { tr role="row" { (cells(&ANSWERED, &cells_of)) } }
        })
        .collect();
    table("Latest answers, newest first", &ANSWERED, &rows)
}

fn handoff(id: Option<&str>) -> Markup {
    match id {
        Some(id) => html! { a .nowrap href=(address(id)) { (short(id)) } },
        None => html! { "(unreadable)" },
    }
}

/// Renders the status of an answer as a badge.
pub(in crate::console) fn status(word: &str, failed: bool) -> Markup {
    let tone = match word {
        _ if failed => Tone::Bad,
        "completed" | "pass" => Tone::Good,
        "fail" | "failed" => Tone::Bad,
        "needs clarification" | "cancelled" => Tone::Warn,
        _ => Tone::Plain,
    };
    badge(tone, &agent(word))
}

/// Renders calls, tokens and cost.
fn usage(usage: &Usage) -> Markup {
    let tokens = usage.prompt_tokens.saturating_add(usage.completion_tokens);
    if *usage == Usage::default() {
        return html! { "Nothing yet" };
    }
    html! {
        span .plain {
            (format::count(number(usage.model_calls), "model call", "model calls")) ", "
            (format::count(number(usage.tool_calls), "tool call", "tool calls"))
        }
        span .sub {
            (format::number(i64::try_from(tokens).unwrap_or(i64::MAX))) " tokens"
            @if let Some(cost) = usage.cost_usd { " · " (format::dollars(cost)) }
        }
    }
}

fn number(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
