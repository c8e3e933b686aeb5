//! The fields of a schedule's form: read, filled and rendered.

use std::time::Duration;

use api::{
    Concurrency, MissedRuns, NewSchedule, ScheduleChange, ScheduleDetails, SchedulePayload, ScheduleTiming,
};
use maud::{Markup, html};
use serde_json::{Map, Value};

use crate::{
    Error,
    console::{
        components::{FormState, area, document, input, options, suggest},
        form::Fields,
    },
};

const TIMINGS: [(&str, &str); 3] =
    [("cron", "By the clock (cron)"), ("interval", "At an interval"), ("once", "Once")];
const PAYLOADS: [(&str, &str); 3] =
    [("prompt", "A prompt"), ("task", "A task"), ("job_spec", "A job, without the project manager")];
const MISSED: [(&str, &str); 3] =
    [("once", "The latest fires"), ("skip", "They are skipped"), ("all", "All fire, up to a limit")];
const CONCURRENCY: [(&str, &str); 3] =
    [("allow", "Both run"), ("forbid", "The new one is skipped"), ("replace", "The old one is cancelled")];

fn invalid(field: &'static str, message: &str) -> Error {
    Error::Invalid { field, message: message.to_owned() }
}

/// Parses a duration such as `15min` to seconds.
fn seconds(field: &'static str, text: &str) -> Result<u64, Error> {
    let parsed = humantime::parse_duration(text).map(|duration| duration.as_secs());
    parsed.map_err(|_| invalid(field, "is not a duration; use for example 15min, 12h or 1day"))
}

pub(super) fn timing(fields: &Fields) -> Result<ScheduleTiming, Error> {
    Ok(match fields.text("timing") {
        "interval" => ScheduleTiming::Interval {
            every_seconds: seconds("timing", fields.text("every"))?,
            starting_at: fields.owned("starting_at"),
        },
        "once" => {
            ScheduleTiming::Once { at: fields.text("at").to_owned(), time_zone: fields.owned("time_zone") }
        }
        _ => ScheduleTiming::Cron {
            expression: fields.text("expression").to_owned(),
            time_zone: fields.owned("time_zone").unwrap_or_else(|| "UTC".to_owned()),
        },
    })
}

fn payload(fields: &Fields) -> Result<SchedulePayload, Error> {
    // Browsers send every line break as CRLF.
    let lines = |name: &str| fields.text(name).replace("\r\n", "\n");
    let id = |name: &str| fields.given(name).map(str::parse).transpose();
    Ok(match fields.text("payload") {
        "task" => SchedulePayload::Task {
            name: fields.text("task_name").to_owned(),
            description: Some(lines("description")).filter(|text| !text.is_empty()),
            acceptance_criteria: fields.lines("criteria").map(str::to_owned).collect(),
        },
        "job_spec" => {
            let given = fields.given("job_payload").map(serde_json::from_str::<Map<String, Value>>);
            let invalid_id = |_| invalid("payload", "task and node are ids, without spaces");
            SchedulePayload::JobSpec {
                kind: fields.text("job_kind").to_owned(),
                payload: given
                    .transpose()
                    .map_err(|_| invalid("payload", "is not a JSON object"))?
                    .unwrap_or_default(),
                task_id: id("task_id").map_err(invalid_id)?,
                node_id: id("node_id").map_err(invalid_id)?,
            }
        }
        _ => SchedulePayload::Prompt { prompt: lines("prompt") },
    })
}

/// The fields that a new and a changed schedule have in common.
struct Policies {
    missed: MissedRuns,
    missed_limit: Option<u32>,
    concurrency: Concurrency,
    timeout_seconds: Option<u64>,
}

fn policies(fields: &Fields) -> Result<Policies, Error> {
    let limit = fields.given("missed_limit").map(str::parse).transpose();
    Ok(Policies {
        missed: match fields.text("missed") {
            "skip" => MissedRuns::Skip,
            "all" => MissedRuns::All,
            _ => MissedRuns::Once,
        },
        missed_limit: limit.map_err(|_| invalid("missed_limit", "is not a number"))?,
        concurrency: match fields.text("concurrency") {
            "forbid" => Concurrency::Forbid,
            "replace" => Concurrency::Replace,
            _ => Concurrency::Allow,
        },
        timeout_seconds: fields.given("timeout").map(|text| seconds("timeout", text)).transpose()?,
    })
}

pub(super) fn new_schedule(fields: &Fields) -> Result<NewSchedule, Error> {
    let Policies { missed, missed_limit, concurrency, timeout_seconds } = policies(fields)?;
    let project = fields.given("project_id").map(str::parse).transpose();
    Ok(NewSchedule {
        name: fields.text("name").to_owned(),
        timing: timing(fields)?,
        payload: payload(fields)?,
        project_id: project.map_err(|_| invalid("project_id", "is not an id"))?,
        enabled: None,
        missed: Some(missed),
        missed_limit,
        concurrency: Some(concurrency),
        timeout_seconds,
    })
}

/// Returns what a form changes. A timing that is the same as before is left out: a new one would drop slots
/// that were missed.
pub(super) fn change(fields: &Fields, present: &ScheduleDetails) -> Result<ScheduleChange, Error> {
    let Policies { missed, missed_limit, concurrency, timeout_seconds } = policies(fields)?;
    let as_before = fill(present);
    let names = ["timing", "expression", "time_zone", "every", "starting_at"];
    let is_same = names.iter().all(|name| fields.text(name) == as_before.text(name))
        && clock_time(fields.text("at")) == as_before.text("at");
    let timing = if is_same { None } else { Some(timing(fields)?) };
    Ok(ScheduleChange {
        name: Some(fields.text("name").to_owned()),
        timing,
        payload: Some(payload(fields)?),
        enabled: None,
        missed: Some(missed),
        missed_limit,
        concurrency: Some(concurrency),
        timeout_seconds,
        expected_version: fields.given("version").and_then(|version| version.parse().ok()),
    })
}

/// Returns the fields of a form for a schedule as it is.
pub(super) fn fill(details: &ScheduleDetails) -> Fields {
    let schedule = &details.schedule;
    let duration = |seconds: u64| humantime::format_duration(Duration::from_secs(seconds)).to_string();
    let fields = Fields::default()
        .with("name", schedule.name.as_str())
        .with("missed", schedule.missed.as_str())
        .with("missed_limit", schedule.missed_limit.to_string())
        .with("concurrency", schedule.concurrency.as_str())
        .with("timeout", duration(schedule.timeout_seconds))
        .with("payload", schedule.payload_type.as_str());
    let fields = match &schedule.timing {
        ScheduleTiming::Cron { expression, time_zone } => fields
            .with("timing", "cron")
            .with("expression", expression.as_str())
            .with("time_zone", time_zone.as_str()),
        ScheduleTiming::Interval { every_seconds, starting_at } => fields
            .with("timing", "interval")
            .with("every", duration(*every_seconds))
            .with("starting_at", starting_at.clone().unwrap_or_default()),
        ScheduleTiming::Once { at, time_zone } => fields
            .with("timing", "once")
            .with("at", clock_time(at))
            .with("time_zone", time_zone.clone().unwrap_or_default()),
    };
    match &details.payload {
        SchedulePayload::Prompt { prompt } => fields.with("prompt", prompt.as_str()),
        SchedulePayload::Task { name, description, acceptance_criteria } => fields
            .with("task_name", name.as_str())
            .with("description", description.clone().unwrap_or_default())
            .with("criteria", acceptance_criteria.join("\n")),
        SchedulePayload::JobSpec { kind, payload, task_id, node_id } => {
            let text = |id: &Option<_>| id.as_ref().map(ToString::to_string).unwrap_or_default();
            fields
                .with("job_kind", kind.as_str())
                .with("job_payload", serde_json::to_string_pretty(payload).unwrap_or_default())
                .with("task_id", text(task_id))
                .with("node_id", text(node_id))
        }
    }
}

/// Returns a time as browsers have it in a field: without an offset, and without seconds that are zero.
fn clock_time(text: &str) -> &str {
    let clock = text.get(..19).unwrap_or(text);
    match clock.len() {
        19 => clock.strip_suffix(":00").unwrap_or(clock),
        _ => clock,
    }
}

pub(super) fn timing_fields(filled: FormState<'_>) -> Markup {
    let chosen = filled.fields.given("timing").unwrap_or("cron");
    // Only the field that was used is to blame.
    let blame = |kind: &str| if kind == chosen { "timing" } else { "" };
    html! {
        fieldset {
            legend { "When" }
            (options(filled, "timing", "Due", "", &TIMINGS))
            div .when-cron {
                (input(
                    filled,
                    ("expression", blame("cron")),
                    "text",
                    "Cron expression",
                    "Minute, hour, day of month, month, day of week; with six fields the second comes first. \
                     For example 0 9 * * MON-FRI.",
                ))
            }
            div .when-interval {
                div .grid {
                    (input(
                        filled,
                        ("every", blame("interval")),
                        "text",
                        "Every",
                        "For example 15min, 12h or 1day; at least 1s.",
                    ))
                    (input(
                        filled,
                        ("starting_at", ""),
                        "text",
                        "Starting at",
                        "For example 2026-10-25T08:00:00Z. By default one interval from now.",
                    ))
                }
            }
            div .when-once {
                @let hint = "By the clock of the time zone.";
                (input(filled, ("at", blame("once")), "datetime-local", "At", hint))
            }
            div .by-clock {
                (suggest(
                    filled,
                    ("time_zone", ""),
                    "zones",
                    "Time zone",
                    "For example Europe/Berlin; UTC by default.",
                ))
                datalist #zones { @for zone in control::time_zones() { option value=(zone) {} } }
            }
        }
    }
}

pub(super) fn payload_fields(filled: FormState<'_>) -> Markup {
    let chosen = filled.fields.given("payload").unwrap_or("prompt");
    let blame = |kind: &str| if kind == chosen { "payload" } else { "" };
    html! {
        fieldset {
            legend { "What" }
            (options(filled, "payload", "Asks for", "", &PAYLOADS))
            div .when-prompt {
                (area(
                    filled,
                    ("prompt", blame("prompt")),
                    "Prompt",
                    "The project manager makes a task of it and starts it.",
                ))
            }
            div .when-task {
                (input(filled, ("task_name", blame("task")), "text", "Task", ""))
                (area(filled, ("description", ""), "Description", "Optional."))
                (area(filled, ("criteria", ""), "Acceptance criteria", "One per line. Optional."))
            }
            div .when-job {
                (input(filled, ("job_kind", blame("job_spec")), "text", "Kind", "In a word, such as build."))
                (document(filled, ("job_payload", ""), "Payload", "A JSON object. Optional."))
                div .grid {
                    (input(
                        filled,
                        ("task_id", ""),
                        "text",
                        "Task",
                        "Id of an open task. By default one task for all jobs of the schedule.",
                    ))
                    (input(filled, ("node_id", ""), "text", "Node", "Id of the node that runs it. Optional."))
                }
            }
        }
    }
}

pub(super) fn policy_fields(filled: FormState<'_>) -> Markup {
    html! {
        fieldset {
            legend { "Missed and overlapping runs" }
            div .grid {
                (options(
                    filled,
                    "missed",
                    "Missed slots",
                    "What was due while no orchestrator ran, or while the schedule was suspended.",
                    &MISSED,
                ))
                (input(
                    filled,
                    ("missed_limit", "missed_limit"),
                    "number",
                    "Limit of missed slots",
                    "How many fire with “All fire, up to a limit”: 1 to 100. Default 10.",
                ))
                (options(
                    filled,
                    "concurrency",
                    "If the last run is open",
                    "",
                    &CONCURRENCY,
                ))
                (input(
                    filled,
                    ("timeout", "timeout"),
                    "text",
                    "A run may take",
                    "After this time it is cancelled. For example 30min; default 1day, at most 7days.",
                ))
            }
        }
    }
}
