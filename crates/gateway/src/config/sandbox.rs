//! Checks the limits of jobs.

use control::{LimitRange, SandboxSettings};
use settings::{Checker, Error, Text};

use super::raw::{Limit, Sandbox};

const MAX_CORES: u32 = 1024;
const MAX_MEMORY_MB: u32 = 16 * 1024 * 1024;
const MAX_PIDS: u32 = 4_194_304;
const MAX_SECONDS: u32 = 7 * 24 * 60 * 60;
/// All logs share a stream of 1 GiB (`CYNODE_JOB_LOGS`).
const MAX_OUTPUT_KB: u32 = 1024 * 1024;
const MAX_FILES: u32 = 1_000;
/// A file is a value in a row.
const MAX_FILE_MB: u32 = 256;
const MAX_TOTAL_MB: u32 = 4_096;

pub(super) fn check(check: &Checker<'_>, raw: &Sandbox) -> Result<SandboxSettings, Error> {
    let (limits, files) = (&raw.limits, &raw.files);
    Ok(SandboxSettings {
        cpu_milli: cores(check, &limits.cpu)?,
        memory_mb: range(check, "memory_mb", &limits.memory_mb, MAX_MEMORY_MB)?,
        pids: range(check, "pids", &limits.pids, MAX_PIDS)?,
        disk_mb: range(check, "disk_mb", &limits.disk_mb, MAX_MEMORY_MB)?,
        seconds: range(check, "seconds", &limits.seconds, MAX_SECONDS)?,
        output_kb: range(check, "output_kb", &limits.output_kb, MAX_OUTPUT_KB)?,
        max_file_mb: check.number("sandbox.files.max_mb", &files.max_mb, 1..=MAX_FILE_MB)?,
        max_files: check.number("sandbox.files.max", &files.max, 0..=MAX_FILES)?,
        max_total_mb: check.number("sandbox.files.max_total_mb", &files.max_total_mb, 1..=MAX_TOTAL_MB)?,
    })
}

fn range(check: &Checker<'_>, name: &str, raw: &Limit, most: u32) -> Result<LimitRange, Error> {
    let max = check.number(&format!("sandbox.limits.{name}.max"), &raw.max, 1..=most)?;
    let default = check.number(&format!("sandbox.limits.{name}.default"), &raw.default, 1..=max)?;
    Ok(LimitRange { default, max })
}

/// Returns cores in thousandths.
fn cores(check: &Checker<'_>, raw: &Limit) -> Result<LimitRange, Error> {
    let read = |key: &str, text: &Text, most: u32| {
        let right = format!("a number of cores from 0.001 to {}", f64::from(most) / 1_000.0);
        let cores: f64 = text.as_str().trim().parse().map_err(|_| check.wrong(key, text.as_str(), &right))?;
        let milli = (cores * 1_000.0).round();
        if (1.0..=f64::from(most)).contains(&milli) {
            // Within a `u32`, as just checked.
            Ok(milli as u32)
        } else {
            Err(check.wrong(key, text.as_str(), &right))
        }
    };
    let max = read("sandbox.limits.cpu.max", &raw.max, MAX_CORES * 1_000)?;
    Ok(LimitRange { default: read("sandbox.limits.cpu.default", &raw.default, max)?, max })
}
