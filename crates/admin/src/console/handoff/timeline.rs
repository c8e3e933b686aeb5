//! The timeline of a handoff: attempts and their steps as bars on one axis.

use maud::{Markup, html};

use super::facts::HIDDEN;
use crate::{
    console::{
        components::{Tone, badge, name, short, visible},
        format,
        work::{address, swatch},
    },
    operations::{Attempt, AttemptEnd, HandoffHistory, HandoffStep, Outcome, StepKind},
};

/// Minimum width of a bar; a narrower one would be invisible.
const MIN_WIDTH_PERCENT: f64 = 0.6;
/// Number of marks on the axis.
const MARKS: i64 = 4;

/// The drawn time span, in microseconds since 1970.
#[derive(Clone, Copy)]
struct Axis {
    from: i64,
    to: i64,
}

impl Axis {
    /// Returns the position of a time on the axis, in percent.
    fn at(self, moment: i64) -> f64 {
        let whole = (self.to - self.from).max(1) as f64;
        ((moment - self.from) as f64 * 100.0 / whole).clamp(0.0, 100.0)
    }

    fn bar(self, class: &str, from: i64, to: i64) -> Markup {
        let width = (self.at(to) - self.at(from)).max(MIN_WIDTH_PERCENT);
        let x = self.at(from).min(100.0 - width);
        let (x, width) = (format!("{x:.2}%"), format!("{width:.2}%"));
        html! { rect class=(class) x=(x) y="3" width=(width) height="10" rx="3" {} }
    }
}

/// Renders each attempt, followed by its steps. Open bars end at `now`.
pub(super) fn render(history: &HandoffHistory, now: i64) -> Markup {
    let last = history.steps.iter().filter_map(|step| step.ended_at).max();
    let to = history.ended_at.unwrap_or(now).max(last.unwrap_or(now));
    let axis = Axis { from: history.began_at, to: to.max(history.began_at + 1_000) };
    let steps_of = |attempt: usize| history.steps.iter().filter(move |step| step.attempt == attempt);
    html! {
        div .card .life {
            p .legend aria-hidden="true" {
                span { (swatch("turn")) "Model" }
                span { (swatch("call")) "Tool" }
                span { (swatch("verification")) "Analyst" }
                span { (swatch("silent")) "Lost" }
            }
            div .axis aria-hidden="true" {
                span { "0" }
                @for mark in 1..=MARKS { span { (format::duration((axis.to - axis.from) / MARKS * mark)) } }
            }
            ol .spans {
                // Steps whose claim cannot be read.
                @for step in steps_of(0) { (render_step(step, axis)) }
                @for (index, attempt) in history.attempts.iter().enumerate() {
                    (render_attempt(attempt, index > 0, axis))
                    @for step in steps_of(index + 1) { (render_step(step, axis)) }
                }
            }
        }
    }
}

fn render_attempt(attempt: &Attempt, resumed: bool, axis: Axis) -> Markup {
    let ended = attempt.ended_at.unwrap_or(axis.to);
    let (tone, end) = match attempt.end {
        AttemptEnd::Open => (Tone::Plain, "running"),
        AttemptEnd::Answered => (Tone::Good, "answered"),
        AttemptEnd::Released => (Tone::Warn, "handed back"),
        AttemptEnd::Lost => (Tone::Bad, "lost"),
    };
    // A lost attempt was alive at least until its last entry.
    let alive_until = if attempt.end == AttemptEnd::Lost { attempt.last_at } else { ended };
    html! {
        li .attempt {
            div .label {
                strong { "Attempt " (attempt.number) } " " (badge(tone, end))
                span .sub {
                    (name(&attempt.instance)) " · " (visible(&attempt.build))
                    @if resumed { " · resumed after " (format::count(attempt.found, "step", "steps")) }
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

fn render_step(step: &HandoffStep, axis: Axis) -> Markup {
    let class = match step.what {
        StepKind::Turn | StepKind::StructuredOutput => "turn",
        StepKind::Call => "call",
        StepKind::Verification => "verification",
    };
    let class = match step.outcome {
        Outcome::Done => class.to_owned(),
        Outcome::Open => format!("{class} open"),
        Outcome::Failed | Outcome::Rejected => format!("{class} bad"),
        Outcome::CutOff => "silent".to_owned(),
    };
    html! {
        li .step {
            div .label {
                (title(step)) " " (outcome(step.outcome))
                span .sub { (facts(step)) }
                @if let Some(excerpt) = &step.excerpt { span .sub .said { bdi { (visible(excerpt)) } } }
                @if step.holds_a_secret { span .sub .said { (HIDDEN) } }
            }
            (track(&axis.bar(&class, step.began_at, step.ended_at.unwrap_or(axis.to))))
            (length(step.began_at, step.ended_at, axis))
        }
    }
}

fn title(step: &HandoffStep) -> Markup {
    match step.what {
        StepKind::Turn => html! { "Model, " bdi { (visible(&step.name)) } },
        StepKind::StructuredOutput => html! { "Model, " (name(&step.name)) },
        StepKind::Call => html! { "Tool " (name(&step.name)) },
        StepKind::Verification => html! { "Analyst on " (name(&step.name)) },
    }
}

fn outcome(outcome: Outcome) -> Markup {
    match outcome {
        Outcome::Done => html! {},
        Outcome::Open => badge(Tone::Plain, "running"),
        Outcome::Failed => badge(Tone::Bad, "failed"),
        Outcome::Rejected => badge(Tone::Bad, "rejected"),
        Outcome::CutOff => badge(Tone::Warn, "cut off"),
    }
}

fn facts(step: &HandoffStep) -> Markup {
    let number = |count: u64| format::number(i64::try_from(count).unwrap_or(i64::MAX));
    html! {
        @if let Some(model) = &step.model { bdi { (visible(model)) } }
        @if let (Some(prompt), Some(completion)) = (step.prompt_tokens, step.completion_tokens) {
            " · " (number(prompt)) " + " (number(completion)) " tokens"
        }
        @if let Some(cost) = step.cost_usd { " · " (format::dollars(cost)) }
        @if step.tries > 1 { span .again { " · " (step.tries) " tries" } }
        @if let Some(id) = &step.handoff_id { a href=(address(id)) { "handoff " (short(id)) } }
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

/// Renders the duration and, for screen readers, the start.
fn length(began: i64, ended: Option<i64>, axis: Axis) -> Markup {
    html! {
        span .length {
            @match ended { Some(ended) => { (format::duration((ended - began).max(0))) } None => { "…" } }
            span .unseen {
                ", started " (format::duration((began - axis.from).max(0))) " after the first attempt"
            }
        }
    }
}
