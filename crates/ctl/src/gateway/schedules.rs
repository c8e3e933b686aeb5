//! `cynodectl schedules`.

mod arguments;

use api::{
    DeletedSchedule, FiringNote, Me, NewSchedule, PreviewedSchedule, Schedule, ScheduleChange,
    ScheduleDetails, ScheduleFilter, ScheduleOwner, SchedulePreview, ScheduleRun, ScheduleRunFilter,
    ScheduleTiming, SkipReason,
};
use serde_json::json;

use super::{
    ApiRequest, Gateway, cell, cells, print_field, print_fields, print_json, print_list, print_outcome,
};
use crate::{
    cli::{self, ScheduleAt, ScheduleUpdate, Schedules},
    error::{Error, Exit},
    print,
};

/// The most schedules that one request lists.
const MAX_LISTED: u64 = 200;

pub(crate) async fn run(gateway: &Gateway, command: Schedules, json: bool) -> Result<Exit, Error> {
    match command {
        Schedules::Create(new) => create(gateway, *new, json).await,
        Schedules::Ls { user, limit, offset } => {
            let filter = ScheduleFilter { user_id: user, limit: Some(limit), offset: Some(offset) };
            let found = list(gateway, &filter).await?;
            let head = ["NAME", "USER", "DUE", "ASKS FOR", "STATE", "NEXT", "ID"];
            let exit = print_list(&found, json, "no schedules", &head, row);
            if found.len() as u64 >= limit {
                let next = u64::from(offset) + found.len() as u64;
                print::note(&format!("there may be more; --offset {next} lists them"));
            }
            Ok(exit)
        }
        Schedules::Show(at) => {
            let id = find(gateway, &at).await?;
            let details: ScheduleDetails = gateway.ask(ApiRequest::get(&["schedules", &id])).await?;
            show(gateway, &details, json).await
        }
        Schedules::Update(update) => self::update(gateway, *update, json).await,
        Schedules::Suspend(at) => switch(gateway, &at, false, json).await,
        Schedules::Resume(at) => switch(gateway, &at, true, json).await,
        Schedules::Run(at) => {
            let id = find(gateway, &at).await?;
            let run: ScheduleRun = gateway.ask(ApiRequest::post(&["schedules", &id, "run"])).await?;
            let text = match &run.job_id {
                Some(job) => format!("job {job} queued"),
                None => format!("run {} started; an orchestrator publishes it", run.run_id),
            };
            Ok(print_outcome(json, &run, &text))
        }
        Schedules::Rm { at, version, yes } => {
            if !yes && !print::confirm(&format!("delete {} with its runs?", print::sanitize(&at.schedule))) {
                return Err(Error::NotConfirmed);
            }
            let id = find(gateway, &at).await?;
            let (path, expected) = (["schedules", &id], json!({ "version": version }));
            let deleted: DeletedSchedule = gateway.ask(ApiRequest::delete(&path).query(&expected)).await?;
            Ok(print_outcome(json, &deleted, &format!("{} ({}) deleted", deleted.name, deleted.schedule_id)))
        }
        Schedules::Preview { timing, count, after } => {
            let timing = arguments::timing(timing)?.ok_or(Error::Usage(arguments::NO_TIMING))?;
            let preview = SchedulePreview { timing, count: Some(count), after };
            let previewed = preview_of(gateway, &preview).await?;
            if json {
                print_json(&previewed);
            } else {
                print_firings(&previewed);
            }
            Ok(Exit::Done)
        }
        Schedules::History { at, limit, offset } => {
            let id = find(gateway, &at).await?;
            let filter = ScheduleRunFilter { limit: Some(limit), offset: Some(offset) };
            let path = ["schedules", &id, "runs"];
            let runs: Vec<ScheduleRun> = gateway.ask(ApiRequest::get(&path).query(&filter)).await?;
            let head = ["SLOT", "STATE", "WHY", "FIRED", "ENDED", "ID"];
            Ok(print_list(&runs, json, "no runs", &head, run_row))
        }
    }
}

async fn list(gateway: &Gateway, filter: &ScheduleFilter) -> Result<Vec<Schedule>, Error> {
    gateway.ask(ApiRequest::get(&["schedules"]).query(filter)).await
}

async fn preview_of(gateway: &Gateway, preview: &SchedulePreview) -> Result<PreviewedSchedule, Error> {
    gateway.ask(ApiRequest::post(&["schedules", "preview"]).body(preview)).await
}

/// Returns the id of a schedule. The gateway also knows names: with a user token those of the user's
/// schedules, for an administrator those that only one user has. With `--user` it is looked up among the
/// schedules of that user.
async fn find(gateway: &Gateway, at: &ScheduleAt) -> Result<String, Error> {
    let Some(user) = &at.user else { return Ok(at.schedule.clone()) };
    let mut offset = 0;
    loop {
        let filter =
            ScheduleFilter { user_id: Some(user.clone()), limit: Some(MAX_LISTED), offset: Some(offset) };
        let page = list(gateway, &filter).await?;
        let is_last = (page.len() as u64) < MAX_LISTED;
        offset += u32::try_from(page.len()).unwrap_or(u32::MAX);
        let is_meant = |it: &Schedule| it.name == at.schedule || it.schedule_id == at.schedule;
        match page.into_iter().find(is_meant) {
            Some(found) => return Ok(found.schedule_id),
            None if is_last => {
                return Err(Error::NoSchedule { user: user.clone(), schedule: at.schedule.clone() });
            }
            None => {}
        }
    }
}

async fn create(gateway: &Gateway, new: cli::NewSchedule, json: bool) -> Result<Exit, Error> {
    let timing = arguments::timing(new.timing)?.ok_or(Error::Usage(arguments::NO_TIMING))?;
    let payload = arguments::payload(new.payload)?.ok_or(Error::Usage(arguments::NO_PAYLOAD))?;
    if new.user.is_none() {
        let me: Me = gateway.ask(ApiRequest::get(&["me"])).await?;
        if me.user_id.is_none() {
            return Err(Error::Usage(arguments::NO_USER));
        }
    }
    confirm(gateway, &timing, new.yes, json, "create this schedule?").await?;
    let body = NewSchedule {
        name: new.name,
        timing,
        payload,
        project_id: new.project,
        enabled: new.suspended.then_some(false),
        missed: new.policies.missed,
        missed_limit: new.policies.missed_limit,
        concurrency: new.policies.concurrency,
        timeout_seconds: new.policies.timeout.map(|timeout| timeout.as_secs()),
    };
    let owner = ScheduleOwner { user_id: new.user };
    let request = ApiRequest::post(&["schedules"]).query(&owner).body(&body);
    let created: ScheduleDetails = gateway.ask(request).await?;
    let text = format!("{} ({}) created", created.schedule.name, created.schedule.schedule_id);
    Ok(print_outcome(json, &created, &text))
}

async fn update(gateway: &Gateway, update: ScheduleUpdate, json: bool) -> Result<Exit, Error> {
    let timing = arguments::timing(update.timing)?;
    let payload = arguments::payload(update.payload)?;
    let id = find(gateway, &update.at).await?;
    if let Some(timing) = &timing {
        confirm(gateway, timing, update.yes, json, "save this timing?").await?;
    }
    let change = ScheduleChange {
        name: update.name,
        timing,
        payload,
        enabled: None,
        missed: update.policies.missed,
        missed_limit: update.policies.missed_limit,
        concurrency: update.policies.concurrency,
        timeout_seconds: update.policies.timeout.map(|timeout| timeout.as_secs()),
        expected_version: update.version,
    };
    let changed: ScheduleDetails = gateway.ask(ApiRequest::patch(&["schedules", &id]).body(&change)).await?;
    let schedule = &changed.schedule;
    let text = format!("{} changed; it has version {} now", schedule.name, schedule.version);
    Ok(print_outcome(json, &changed, &text))
}

async fn switch(gateway: &Gateway, at: &ScheduleAt, on: bool, json: bool) -> Result<Exit, Error> {
    let id = find(gateway, at).await?;
    let change = ScheduleChange { enabled: Some(on), ..ScheduleChange::default() };
    let changed: ScheduleDetails = gateway.ask(ApiRequest::patch(&["schedules", &id]).body(&change)).await?;
    let text = format!("{} {}", changed.schedule.name, if on { "resumed" } else { "suspended" });
    Ok(print_outcome(json, &changed, &text))
}

/// Shows the next ten firings of a timing and asks whether it shall be saved.
async fn confirm(
    gateway: &Gateway,
    timing: &ScheduleTiming,
    yes: bool,
    json: bool,
    question: &str,
) -> Result<(), Error> {
    let preview = SchedulePreview { timing: timing.clone(), count: Some(10), after: None };
    let previewed = preview_of(gateway, &preview).await?;
    if !json {
        print_firings(&previewed);
    }
    if yes || print::confirm(question) { Ok(()) } else { Err(Error::NotSaved) }
}

async fn show(gateway: &Gateway, details: &ScheduleDetails, json: bool) -> Result<Exit, Error> {
    if json {
        print_json(details);
        return Ok(Exit::Done);
    }
    let schedule = &details.schedule;
    print_fields!(schedule, schedule_id, name, user_id, project_id);
    print_field("due", &due(&schedule.timing));
    print_field("state", &state(schedule));
    print_fields!(schedule, missed, missed_limit, concurrency, timeout_seconds, next_at, last_slot, version);
    print_fields!(schedule, created_at, updated_at, updated_by);
    print_field("payload", &details.payload);
    if schedule.next_at.is_some() {
        let preview = SchedulePreview { timing: schedule.timing.clone(), count: Some(10), after: None };
        print::line("");
        print_firings(&preview_of(gateway, &preview).await?);
    }
    Ok(Exit::Done)
}

fn print_firings(previewed: &PreviewedSchedule) {
    print::line(&print::sanitize(&previewed.description));
    let rows = previewed.firings.iter().map(|firing| {
        let note = match firing.note {
            Some(FiringNote::Moved) => "the clock skips the time that is named",
            Some(FiringNote::First) => "the first of two: the clock is put back",
            Some(FiringNote::Second) => "the second of two: the clock was put back",
            None => "",
        };
        vec![cell(&firing.local), cell(&firing.at), note.to_owned()]
    });
    print::table(&["BY THE CLOCK", "UTC", "NOTE"], rows.collect());
}

fn row(schedule: &Schedule) -> Vec<String> {
    let mut row = cells!(schedule, name, user_id);
    row.push(print::sanitize(&due(&schedule.timing)));
    row.extend(cells!(schedule, payload_type));
    row.push(state(schedule).to_owned());
    row.extend(cells!(schedule, next_at, schedule_id));
    row
}

fn run_row(run: &ScheduleRun) -> Vec<String> {
    let why = match &run.skipped {
        Some(skipped) => {
            let reason = match skipped.reason {
                SkipReason::Missed => "missed",
                SkipReason::Busy => "busy",
                SkipReason::Replaced => "replaced",
            };
            format!("{reason}, {} since {}", skipped.slots, print::sanitize(&skipped.first_slot))
        }
        None => cell(&run.error_code),
    };
    let mut row = cells!(run, slot, state);
    row.push(why);
    row.extend(cells!(run, fired_at, ended_at, run_id));
    row
}

fn state(schedule: &Schedule) -> &'static str {
    match (schedule.enabled, &schedule.next_at) {
        (false, _) => "suspended",
        (true, Some(_)) => "active",
        (true, None) => "ended",
    }
}

fn due(timing: &ScheduleTiming) -> String {
    match timing {
        ScheduleTiming::Cron { expression, time_zone } => format!("{expression} ({time_zone})"),
        ScheduleTiming::Interval { every_seconds, .. } => {
            let every = std::time::Duration::from_secs(*every_seconds);
            format!("every {}", humantime::format_duration(every))
        }
        ScheduleTiming::Once { at, .. } => format!("once, at {at}"),
    }
}
