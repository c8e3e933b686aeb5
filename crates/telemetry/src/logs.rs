//! Structured log lines on standard error. Bodies, prompts, arguments and tokens are never logged as fields;
//! a secret in a foreign error message is redacted when the line is written.

use std::io::{self, IsTerminal, Write};

use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt, LevelFilter, Targets},
    fmt::{self, MakeWriter},
    prelude::*,
};

use secrets::redact;

use crate::{TRACES, trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Text,
}

/// Highest levels of libraries that log whole messages above them. The configuration cannot exceed these.
const MAX_LEVELS: [(&str, LevelFilter); 7] = [
    ("async_nats", LevelFilter::DEBUG),
    ("rmcp", LevelFilter::WARN),
    ("sqlx", LevelFilter::WARN),
    ("sea_orm", LevelFilter::WARN),
    ("hyper", LevelFilter::WARN),
    ("h2", LevelFilter::WARN),
    (TRACES, LevelFilter::OFF),
];

/// Returns whether a text is a valid set of level directives, such as `debug` or `info,async_nats=warn`.
pub fn is_level(text: &str) -> bool {
    text.parse::<EnvFilter>().is_ok()
}

/// Installs the subscriber. Returns `false` if one was already installed; that one stays.
pub(crate) fn open(level: &str, format: Format, provider: Option<&SdkTracerProvider>) -> bool {
    let limits = Targets::new().with_default(LevelFilter::TRACE).with_targets(MAX_LEVELS);
    let filter = EnvFilter::new(level).and(limits);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match format {
        Format::Json => {
            let lines = fmt::layer().json().flatten_event(true).with_current_span(true).with_span_list(false);
            Box::new(lines.with_writer(RedactingWriter).with_filter(filter))
        }
        Format::Text => {
            let lines = fmt::layer().with_target(false).with_ansi(io::stderr().is_terminal());
            Box::new(lines.with_writer(RedactingWriter).with_filter(filter))
        }
    };
    let mut layers = vec![lines];
    layers.extend(provider.map(trace::layer));
    tracing_subscriber::registry().with(layers).try_init().is_ok()
}

/// Redacts each line and writes it to standard error. `tracing` passes one whole line per write.
#[derive(Clone, Copy, Debug)]
struct RedactingWriter;

impl<'a> MakeWriter<'a> for RedactingWriter {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

impl Write for RedactingWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(redact(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
