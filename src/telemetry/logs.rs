//! Structured logs on standard error. Bodies, prompts and secrets are never fields of a log line.

use tracing_subscriber::{EnvFilter, fmt, prelude::*};

use crate::config::{LogFormat, Telemetry};

/// Opens the log. A second call in one process changes nothing.
pub fn start(config: &Telemetry) {
    let filter = EnvFilter::new(&config.log_level);
    let registry = tracing_subscriber::registry().with(filter);
    let started = match config.log_format {
        LogFormat::Json => {
            let layer = fmt::layer().json().flatten_event(true).with_current_span(true).with_span_list(false);
            registry.with(layer.with_writer(std::io::stderr)).try_init()
        }
        LogFormat::Text => {
            registry.with(fmt::layer().with_target(false).with_writer(std::io::stderr)).try_init()
        }
    };
    // Already open: whoever opened it keeps it.
    drop(started);
}
