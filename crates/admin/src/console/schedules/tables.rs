//! Tables of firings and runs.

use api::{
    Firing, FiringNote, PreviewedSchedule, SchedulePreview, ScheduleRun, ScheduleRunState,
    ScheduleRunTrigger, ScheduleTiming, SkipReason, SkippedSlots,
};
use maud::{Markup, html};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use crate::console::{
    Console,
    components::{Tone, badge, cells, dash, table, visible, visible_lines},
    format,
    session::Session,
};

const FIRING_HEADINGS: [&str; 3] = ["By the clock", "UTC", "From now"];
const RUN_HEADINGS: [&str; 4] = ["Slot", "State", "Fired", "Result"];
/// How much of an answer is shown without a click.
const MAX_EXCERPT_CHARS: usize = 120;

/// Computes the next ten firings of a timing; `None` if there are none.
pub(super) fn next_firings(
    console: &Console,
    session: &Session,
    timing: &ScheduleTiming,
) -> Option<PreviewedSchedule> {
    let preview = SchedulePreview { timing: timing.clone(), count: Some(10), after: None };
    console.admin.preview_schedule(&session.actor, &preview).ok()
}

pub(super) fn firings_table(firings: &[Firing]) -> Markup {
    let row = |firing: &Firing| {
        let note = match firing.note {
            Some(FiringNote::Moved) => Some("the clock skips the time that is named"),
            Some(FiringNote::First) => Some("the first of two: the clock is put back"),
            Some(FiringNote::Second) => Some("the second of two: the clock was put back"),
            None => None,
        };
        let cells_of = [
            html! {
                span .nowrap { (local_time(&firing.local)) }
                @if let Some(note) = note { span .sub { (note) } }
            },
            html! { span .nowrap { (local_time(&firing.at)) } },
            format::timestamp(&firing.at),
        ];
        html! { tr role="row" { (cells(&FIRING_HEADINGS, &cells_of)) } }
    };
    let rows: Vec<Markup> = firings.iter().map(row).collect();
    table("Next firings, soonest first", &FIRING_HEADINGS, &rows)
}

/// Formats a time with its weekday and offset: `Sun 2026-10-25 02:30:00 +02:00`.
pub(super) fn local_time(rfc3339: &str) -> String {
    let Ok(at) = OffsetDateTime::parse(rfc3339, &Rfc3339) else { return visible(rfc3339) };
    let weekday = at.weekday().to_string();
    let (hour, minute, second) = at.time().as_hms();
    let (hours, minutes, _) = at.offset().as_hms();
    let offset = match at.offset().is_utc() {
        true => "UTC".to_owned(),
        false => {
            let sign = if at.offset().is_negative() { '-' } else { '+' };
            format!("{sign}{:02}:{:02}", hours.unsigned_abs(), minutes.unsigned_abs())
        }
    };
    format!("{} {} {hour:02}:{minute:02}:{second:02} {offset}", &weekday[..3], at.date())
}

pub(super) fn runs_table(runs: &[ScheduleRun], is_admin: bool) -> Markup {
    let rows: Vec<Markup> = runs.iter().map(|run| run_row(run, is_admin)).collect();
    table("Runs, newest first", &RUN_HEADINGS, &rows)
}

fn run_row(run: &ScheduleRun, is_admin: bool) -> Markup {
    let is_handoff = run.job_id.is_none() && run.skipped.is_none();
    let cells_of = [
        html! {
            span .nowrap { (local_time(&run.slot)) }
            @if run.trigger == ScheduleRunTrigger::Manual { span .sub { "started by a person" } }
        },
        html! {
            (state(run.state))
            @if let Some(skipped) = &run.skipped { span .sub { (why_skipped(skipped)) } }
        },
        html! {
            (format::timestamp(&run.fired_at))
            @if let Some(at) = &run.ended_at {
                @if run.skipped.is_none() { span .sub { "ended " (format::timestamp(at)) } }
            }
        },
        html! {
            @if let Some(code) = &run.error_code { code { (visible(code)) } " " }
            @match &run.text {
                Some(text) if !text.trim().is_empty() => (answer(text)),
                _ => { @if !is_handoff || !is_admin { (dash()) } }
            }
            // The page of a handoff is for administrators.
            @if is_handoff && is_admin {
                span .sub { a href={ "/console/handoffs/" (run.run_id) } { "Handoff" } }
            }
            @if let Some(job) = &run.job_id { span .sub { "Job " code { (visible(job)) } } }
        },
    ];
    html! { tr role="row" { (cells(&RUN_HEADINGS, &cells_of)) } }
}

fn answer(text: &str) -> Markup {
    let first = text.lines().next().unwrap_or_default();
    let excerpt: String = first.chars().take(MAX_EXCERPT_CHARS).collect();
    if excerpt == text {
        return html! { bdi { (visible(text)) } };
    }
    html! {
        details {
            summary { bdi { (visible(&excerpt)) "…" } }
            p .described { bdi { (visible_lines(text)) } }
        }
    }
}

fn why_skipped(skipped: &SkippedSlots) -> String {
    let why = match skipped.reason {
        SkipReason::Missed => "missed",
        SkipReason::Busy => "a run was open",
        SkipReason::Replaced => "a later one was due",
    };
    match skipped.slots {
        1 => why.to_owned(),
        slots => {
            let slots = format::number(i64::try_from(slots).unwrap_or(i64::MAX));
            format!("{slots} slots since {}: {why}", local_time(&skipped.first_slot))
        }
    }
}

fn state(state: ScheduleRunState) -> Markup {
    let (tone, text) = match state {
        ScheduleRunState::Pending => (Tone::Plain, "Pending"),
        ScheduleRunState::Running => (Tone::Plain, "Running"),
        ScheduleRunState::Completed => (Tone::Good, "Completed"),
        ScheduleRunState::Question => (Tone::Warn, "Question"),
        ScheduleRunState::Failed => (Tone::Bad, "Failed"),
        ScheduleRunState::Cancelled => (Tone::Warn, "Cancelled"),
        ScheduleRunState::Replaced => (Tone::Warn, "Replaced"),
        ScheduleRunState::TimedOut => (Tone::Bad, "Timed out"),
        ScheduleRunState::Skipped => (Tone::Plain, "Skipped"),
    };
    badge(tone, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_weekday_and_offset() {
        for (given, shown) in [
            ("2026-10-25T02:30:00+02:00", "Sun 2026-10-25 02:30:00 +02:00"),
            ("2026-10-25T00:30:00Z", "Sun 2026-10-25 00:30:00 UTC"),
            ("2026-10-24T20:00:00-03:30", "Sat 2026-10-24 20:00:00 -03:30"),
            ("soon", "soon"),
        ] {
            assert_eq!(local_time(given), shown);
        }
    }
}
