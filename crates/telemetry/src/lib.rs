//! Logs with secrets redacted, and traces; the same for every program. Nothing here affects what a program
//! does.

mod collector;
mod logs;
mod probe;
mod trace;

use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;

pub use collector::{Endpoint, Error, InvalidEndpoint};
pub use logs::{Format, is_level};
pub use probe::{ProbeError, probe};
pub use trace::{
    TRACES, is_enabled, mark_failed, rename_span, set_attribute, set_remote_parent, string_array, traceparent,
};

/// Identity of the program, its log settings and its trace collector.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    pub service: &'static str,
    pub version: &'static str,
    pub instance: Option<&'a str>,
    /// Log level directives, such as `info,async_nats=warn`.
    pub level: &'a str,
    pub format: Format,
    /// `None` disables traces; no span is then created.
    pub collector: Option<&'a Endpoint>,
}

/// Handle to be kept until everything else has stopped, then passed to [`Telemetry::stop`].
#[must_use]
#[derive(Debug)]
pub struct Telemetry(Option<SdkTracerProvider>);

/// Installs the log and, with a collector, the trace exporter. A second call in one process changes nothing.
///
/// Spans are sent on `runtime`, which must run until [`Telemetry::stop`] has returned.
pub fn start(options: &Options<'_>, runtime: &Handle) -> Result<Telemetry, Error> {
    let provider =
        options.collector.map(|endpoint| collector::open(options, endpoint, runtime)).transpose()?;
    if logs::open(options, provider.as_ref()) {
        trace::set_enabled(provider.is_some());
    }
    Ok(Telemetry(provider))
}

impl Telemetry {
    /// Sends the remaining spans and drops them if the collector does not accept them in time. Blocks, so it
    /// must not be called on the runtime itself.
    pub fn stop(self) {
        if let Some(provider) = self.0 {
            collector::close(&provider);
        }
    }
}
