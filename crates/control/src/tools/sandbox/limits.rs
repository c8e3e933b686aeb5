//! The limits of a job: what is asked for, within what the settings allow.

use contract::sandbox::LimitsWanted;
use subjects::job::Limits;

use crate::{LimitRange, SandboxSettings, ToolError};

const MILLI: f64 = 1_000.0;
/// The least with which a sandbox starts.
const MIN_CPU: f64 = 0.01;
const MIN_MEMORY_MB: u32 = 4;

/// Returns the limits of a job. Fails if one is less than its minimum or more than its maximum.
pub(super) fn resolve(wanted: LimitsWanted, settings: &SandboxSettings) -> Result<Limits, ToolError> {
    Ok(Limits {
        cpu_milli: cpu(wanted.cpu, settings.cpu_milli)?,
        memory_mb: number("memory_mb", wanted.memory_mb, MIN_MEMORY_MB, settings.memory_mb)?,
        pids: number("pids", wanted.pids, 1, settings.pids)?,
        disk_mb: number("disk_mb", wanted.disk_mb, 1, settings.disk_mb)?,
        seconds: number("seconds", wanted.seconds, 1, settings.seconds)?,
        output_kb: number("output_kb", wanted.output_kb, 1, settings.output_kb)?,
    })
}

fn number(name: &str, wanted: Option<u64>, min: u32, range: LimitRange) -> Result<u32, ToolError> {
    let Some(wanted) = wanted else { return Ok(range.default) };
    let max = range.max;
    let fits = u32::try_from(wanted).ok().filter(|wanted| (min..=max).contains(wanted));
    fits.ok_or_else(|| out_of_range(name, &wanted.to_string(), &min.to_string(), &max.to_string()))
}

fn cpu(wanted: Option<f64>, range: LimitRange) -> Result<u32, ToolError> {
    let Some(wanted) = wanted else { return Ok(range.default) };
    let max = f64::from(range.max) / MILLI;
    if !(MIN_CPU..=max).contains(&wanted) {
        return Err(out_of_range("cpu", &wanted.to_string(), &MIN_CPU.to_string(), &max.to_string()));
    }
    // Between 10 and the maximum, which is a `u32`.
    Ok((wanted * MILLI).round() as u32)
}

fn out_of_range(name: &str, wanted: &str, min: &str, max: &str) -> ToolError {
    ToolError::Invalid(format!(
        "`limits.{name}` is {wanted}; it must be {min} to {max} (the maximum is the gateway's setting \
         sandbox.limits.{name}.max)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_has_its_default_and_what_is_too_much_is_refused_by_name() {
        let settings = SandboxSettings::default();
        let limits = resolve(LimitsWanted::default(), &settings).unwrap();
        assert_eq!((limits.cpu_milli, limits.memory_mb, limits.seconds), (1_000, 512, 600));
        let half = LimitsWanted { cpu: Some(0.5), ..LimitsWanted::default() };
        assert_eq!(resolve(half, &settings).unwrap().cpu_milli, 500);
        for (wanted, name) in [
            (LimitsWanted { cpu: Some(0.0), ..LimitsWanted::default() }, "cpu"),
            (LimitsWanted { cpu: Some(0.001), ..LimitsWanted::default() }, "cpu"),
            (LimitsWanted { cpu: Some(-1.0), ..LimitsWanted::default() }, "cpu"),
            (LimitsWanted { cpu: Some(4.5), ..LimitsWanted::default() }, "cpu"),
            (LimitsWanted { memory_mb: Some(0), ..LimitsWanted::default() }, "memory_mb"),
            (LimitsWanted { memory_mb: Some(3), ..LimitsWanted::default() }, "memory_mb"),
            (LimitsWanted { pids: Some(1 << 40), ..LimitsWanted::default() }, "pids"),
            (LimitsWanted { disk_mb: Some(8_193), ..LimitsWanted::default() }, "disk_mb"),
            (LimitsWanted { seconds: Some(u64::MAX), ..LimitsWanted::default() }, "seconds"),
            (LimitsWanted { output_kb: Some(0), ..LimitsWanted::default() }, "output_kb"),
        ] {
            let why = resolve(wanted, &settings).unwrap_err().to_string();
            assert!(why.contains(&format!("sandbox.limits.{name}.max")), "{why}");
        }
    }
}
