use maud::{Markup, html};

use super::told::HIDDEN;
use crate::admin::{
    console::{
        parts::{Tone, badge, name, short, visible},
        when,
        work::{address, swatch},
    },
    operations::{Attempt, AttemptEnd, Did, DidWhat, Life, Outcome},
};

/// Narrower than this nothing is seen.
const NARROWEST: f64 = 0.6;
/// The time is marked at each quarter.
const MARKS: i64 = 4;

/// The time that is drawn.
#[derive(Clone, Copy)]
struct Axis {
    from: i64,
    to: i64,
}

impl Axis {
    /// How far along, in hundredths.
    fn at(self, moment: i64) -> f64 {
        let whole = (self.to - self.from).max(1) as f64;
        ((moment - self.from) as f64 * 100.0 / whole).clamp(0.0, 100.0)
    }

    fn bar(self, class: &str, from: i64, to: i64) -> Markup {
        let width = (self.at(to) - self.at(from)).max(NARROWEST);
        let x = self.at(from).min(100.0 - width);
        let (x, width) = (format!("{x:.2}%"), format!("{width:.2}%"));
        html! { rect class=(class) x=(x) y="3" width=(width) height="10" rx="3" {} }
    }
}

/// Each attempt, and under it what was done in it, on one axis.
pub(super) fn timeline(life: &Life, now: i64) -> Markup {
    let last = life.steps.iter().filter_map(|did| did.ended_at).max();
    let to = life.ended_at.unwrap_or(now).max(last.unwrap_or(now));
    let axis = Axis { from: life.began_at, to: to.max(life.began_at + 1_000) };
    let done_in = |attempt: usize| life.steps.iter().filter(move |did| did.attempt == attempt);
    html! {
        div .card .life {
            p .legend aria-hidden="true" {
                span { (swatch("turn")) "Model" }
                span { (swatch("call")) "Tool" }
                span { (swatch("verification")) "Analyst" }
                span { (swatch("silent")) "Silent" }
            }
            div .axis aria-hidden="true" {
                span { "0" }
                @for mark in 1..=MARKS { span { (when::took((axis.to - axis.from) / MARKS * mark)) } }
            }
            ol .spans {
                // Those whose claim cannot be read.
                @for did in done_in(0) { (step(did, axis)) }
                @for (place, attempt) in life.attempts.iter().enumerate() {
                    (attempted(attempt, place > 0, axis))
                    @for did in done_in(place + 1) { (step(did, axis)) }
                }
            }
        }
    }
}

fn attempted(attempt: &Attempt, goes_on: bool, axis: Axis) -> Markup {
    let ended = attempt.ended_at.unwrap_or(axis.to);
    let (tone, end) = match attempt.end {
        AttemptEnd::Open => (Tone::Plain, "at it"),
        AttemptEnd::Answered => (Tone::Good, "answered"),
        AttemptEnd::Released => (Tone::Warn, "returned"),
        AttemptEnd::Lost => (Tone::Bad, "fell silent"),
    };
    // One that fell silent was there at least until its last entry.
    let alive_until = if attempt.end == AttemptEnd::Lost { attempt.last_at } else { ended };
    html! {
        li .attempt {
            div .label {
                strong { "Attempt " (attempt.number) } " " (badge(tone, end))
                span .sub {
                    (name(&attempt.instance)) " · " (visible(&attempt.build))
                    @if goes_on { " · went on after " (when::count(attempt.found, "step", "steps")) }
                }
            }
            (track(&html! {
                @if alive_until < ended { (axis.bar("silent", alive_until, ended)) }
                (axis.bar("whole", attempt.began_at, alive_until))
            }))
            (length(attempt.began_at, attempt.ended_at, axis))
        }
    }
}

fn step(did: &Did, axis: Axis) -> Markup {
    let class = match did.what {
        DidWhat::Turn | DidWhat::Think => "turn",
        DidWhat::Call => "call",
        DidWhat::Verification => "verification",
    };
    let class = match did.outcome {
        Outcome::Done => class.to_owned(),
        Outcome::Open => format!("{class} open"),
        Outcome::Failed | Outcome::Rejected => format!("{class} bad"),
        Outcome::CutOff => "silent".to_owned(),
    };
    html! {
        li .step {
            div .label {
                (title(did)) " " (outcome(did.outcome))
                span .sub { (facts(did)) }
                @if let Some(said) = &did.said { span .sub .said { bdi { (visible(said)) } } }
                @if did.holds_a_secret { span .sub .said { (HIDDEN) } }
            }
            (track(&axis.bar(&class, did.began_at, did.ended_at.unwrap_or(axis.to))))
            (length(did.began_at, did.ended_at, axis))
        }
    }
}

fn title(did: &Did) -> Markup {
    match did.what {
        DidWhat::Turn => html! { "Model, " bdi { (visible(&did.name)) } },
        DidWhat::Think => html! { "Model, " (name(&did.name)) },
        DidWhat::Call => html! { "Tool " (name(&did.name)) },
        DidWhat::Verification => html! { "Analyst on " (name(&did.name)) },
    }
}

fn outcome(outcome: Outcome) -> Markup {
    match outcome {
        Outcome::Done => html! {},
        Outcome::Open => badge(Tone::Plain, "at it"),
        Outcome::Failed => badge(Tone::Bad, "failed"),
        Outcome::Rejected => badge(Tone::Bad, "rejected"),
        Outcome::CutOff => badge(Tone::Warn, "cut off"),
    }
}

fn facts(did: &Did) -> Markup {
    let number = |count: u64| when::number(i64::try_from(count).unwrap_or(i64::MAX));
    html! {
        @if let Some(model) = &did.model { bdi { (visible(model)) } }
        @if let (Some(prompt), Some(completion)) = (did.prompt_tokens, did.completion_tokens) {
            " · " (number(prompt)) " + " (number(completion)) " tokens"
        }
        @if let Some(cost) = did.cost_usd { " · " (when::dollars(cost)) }
        @if did.tries > 1 { span .again { " · " (did.tries) " tries" } }
        @if let Some(id) = &did.handoff_id { a href=(address(id)) { "its handoff " (short(id)) } }
    }
}

fn track(inner: &Markup) -> Markup {
    html! {
        svg .track width="100%" height="16" aria-hidden="true" focusable="false" {
            @for mark in 1..MARKS {
                @let x = format!("{}%", 100 * mark / MARKS);
                line x1=(x) y1="0" x2=(x) y2="100%" {}
            }
            (inner)
        }
    }
}

/// How long it took, and for those who do not see the bar, when it began.
fn length(began: i64, ended: Option<i64>, axis: Axis) -> Markup {
    html! {
        span .length {
            @match ended { Some(ended) => { (when::took((ended - began).max(0))) } None => { "…" } }
            span .unseen { ", begun " (when::took((began - axis.from).max(0))) " after the first attempt" }
        }
    }
}
