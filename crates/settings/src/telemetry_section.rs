//! Logs and traces: the same settings for every program.

use telemetry::{Endpoint, Format};

use crate::{Checker, Error, Text, checker::given};

/// Settings of the `telemetry` section, checked.
#[derive(Clone, Debug)]
pub struct CheckedTelemetry {
    pub log_format: Format,
    pub log_level: String,
    pub otlp_endpoint: Option<Endpoint>,
}

pub fn check_telemetry(
    check: &Checker<'_>,
    log_format: &Text,
    log_level: &Text,
    otlp_endpoint: Option<&Text>,
) -> Result<CheckedTelemetry, Error> {
    let formats = [("json", Format::Json), ("text", Format::Text)];
    let format = check.choice("telemetry.log_format", log_format, &formats)?;
    if !telemetry::is_level(&log_level.0) {
        let right = "a level (error, warn, info, debug, trace) or a filter such as info,async_nats=warn";
        return Err(check.wrong("telemetry.log_level", &log_level.0, right));
    }
    let endpoint = given(otlp_endpoint).map(|text| {
        let right = "the HTTP address of a collector, as in http://127.0.0.1:4318 (empty: none)";
        text.0.parse().map_err(|_| check.wrong("telemetry.otlp_endpoint", &text.0, right))
    });
    Ok(CheckedTelemetry {
        log_format: format,
        log_level: log_level.0.clone(),
        otlp_endpoint: endpoint.transpose()?,
    })
}
