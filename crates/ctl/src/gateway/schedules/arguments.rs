//! Timings and payloads as they are given on the command line.

use std::{io::Read, path::Path};

use api::{SchedulePayload, ScheduleTiming};

use crate::{
    cli::{PayloadArgs, TimingArgs},
    error::Error,
};

pub(super) const NO_TIMING: &str = "say when it is due: --cron, --every or --once";
pub(super) const NO_USER: &str = "an administrator's schedule needs a user, on whose behalf it runs: pass \
    --user ID; the user of a stack of `make run` is `you`";
pub(super) const NO_PAYLOAD: &str = "say what it asks for: --prompt, --prompt-file, --task or --job";

/// Returns the timing; `None` if none is given.
pub(super) fn timing(given: TimingArgs) -> Result<Option<ScheduleTiming>, Error> {
    let TimingArgs { cron, every, starting_at, once, time_zone } = given;
    Ok(match (cron, every, once) {
        (Some(expression), ..) => {
            let time_zone = time_zone.unwrap_or_else(|| "UTC".to_owned());
            Some(ScheduleTiming::Cron { expression, time_zone })
        }
        (None, Some(every), _) => {
            Some(ScheduleTiming::Interval { every_seconds: every.as_secs(), starting_at })
        }
        (None, None, Some(at)) => Some(ScheduleTiming::Once { at, time_zone }),
        (None, None, None) if time_zone.is_some() => return Err(Error::Usage(NO_TIMING)),
        (None, None, None) => None,
    })
}

/// Returns the payload; `None` if none is given.
pub(super) fn payload(given: PayloadArgs) -> Result<Option<SchedulePayload>, Error> {
    if let Some(file) = &given.prompt_file {
        return Ok(Some(SchedulePayload::Prompt { prompt: read_text(file)? }));
    }
    if let Some(prompt) = given.prompt {
        return Ok(Some(SchedulePayload::Prompt { prompt }));
    }
    if let Some(name) = given.task {
        let (description, acceptance_criteria) = (given.description, given.criteria);
        return Ok(Some(SchedulePayload::Task { name, description, acceptance_criteria }));
    }
    let Some(kind) = given.job else { return Ok(None) };
    let payload = given.job_payload.as_deref().map(serde_json::from_str).transpose();
    let payload =
        payload.map_err(|_| Error::Usage("--job-payload is not a JSON object"))?.unwrap_or_default();
    Ok(Some(SchedulePayload::JobSpec { kind, payload, task_id: given.job_task, node_id: given.job_node }))
}

/// Reads a file, or standard input for `-`.
fn read_text(file: &Path) -> Result<String, Error> {
    if file != Path::new("-") {
        return std::fs::read_to_string(file).map_err(|error| Error::File(file.to_owned(), error));
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(Error::Input)?;
    Ok(text)
}
