//! Logs and traces: the same settings for every program.

use telemetry::{Format, Options};

use crate::{Checker, Error, Text, checker::given};

crate::section! {
    pub struct Telemetry {
        /// `json` for machines, or `text` for people.
        log_format: Text,
        /// Level, or levels by module as in `info,async_nats=warn`.
        log_level: Text,
        /// OpenTelemetry collector for traces, as in `http://127.0.0.1:4318`; see
        /// [operations](operations.md#logs-and-traces).
        otlp_endpoint: Option<Text>,
    }
}

impl Telemetry {
    /// Returns the section with a program's own defaults.
    pub fn with_defaults(log_format: &str, log_level: &str) -> Self {
        Self { log_format: log_format.into(), log_level: log_level.into(), otlp_endpoint: None }
    }

    pub fn check(&self, check: &Checker<'_>) -> Result<Options, Error> {
        let formats = [("json", Format::Json), ("text", Format::Text)];
        let format = check.choice("telemetry.log_format", &self.log_format, &formats)?;
        let level = self.log_level.0.clone();
        if !telemetry::is_level(&level) {
            let right = "a level (error, warn, info, debug, trace) or a filter such as info,async_nats=warn";
            return Err(check.wrong("telemetry.log_level", &level, right));
        }
        let collector = given(self.otlp_endpoint.as_ref()).map(|text| {
            let right = "the HTTP address of a collector, as in http://127.0.0.1:4318 (empty: none)";
            text.0.parse().map_err(|_| check.wrong("telemetry.otlp_endpoint", &text.0, right))
        });
        Ok(Options { level, format, collector: collector.transpose()? })
    }
}
