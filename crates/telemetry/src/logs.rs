//! Structured lines on standard error. Bodies, prompts, arguments and tokens are never fields of them; what looks like a secret
//! all the same, in the words of someone else, is taken out as the line is written.

use std::io::{self, IsTerminal, Write};

use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt, LevelFilter, Targets},
    fmt::{self, MakeWriter},
    prelude::*,
};

use crate::{Options, TRACES, redact, trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Text,
}

/// Beyond these levels libraries print whole messages, and nobody can set them to that.
const MOST: [(&str, LevelFilter); 7] = [
    ("async_nats", LevelFilter::DEBUG),
    ("rmcp", LevelFilter::WARN),
    ("sqlx", LevelFilter::WARN),
    ("sea_orm", LevelFilter::WARN),
    ("hyper", LevelFilter::WARN),
    ("h2", LevelFilter::WARN),
    (TRACES, LevelFilter::OFF),
];

/// Whether a level can be set to this, as in `debug` or `info,async_nats=warn`.
pub fn is_level(text: &str) -> bool {
    text.parse::<EnvFilter>().is_ok()
}

/// Whether this call opened it.
pub(crate) fn open(options: &Options<'_>, provider: Option<&SdkTracerProvider>) -> bool {
    let most = Targets::new().with_default(LevelFilter::TRACE).with_targets(MOST);
    let filter = EnvFilter::new(options.level).and(most);
    let lines: Box<dyn Layer<Registry> + Send + Sync> = match options.format {
        Format::Json => {
            let lines = fmt::layer().json().flatten_event(true).with_current_span(true).with_span_list(false);
            Box::new(lines.with_writer(WithoutSecrets).with_filter(filter))
        }
        Format::Text => {
            let lines = fmt::layer().with_target(false).with_ansi(io::stderr().is_terminal());
            Box::new(lines.with_writer(WithoutSecrets).with_filter(filter))
        }
    };
    let mut layers = vec![lines];
    layers.extend(provider.map(trace::layer));
    // Refused: it is open already, and whoever opened it keeps it.
    tracing_subscriber::registry().with(layers).try_init().is_ok()
}

/// Only lines that are really written come here, each of them whole.
#[derive(Clone, Copy, Debug)]
struct WithoutSecrets;

impl<'a> MakeWriter<'a> for WithoutSecrets {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        *self
    }
}

impl Write for WithoutSecrets {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        io::stderr().lock().write_all(redact(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
