//! Logs with secrets redacted, and traces; the same for every program. Nothing here affects what a program
//! does.

mod collector;
mod logs;
mod probe;
mod trace;

use opentelemetry::KeyValue;
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tokio::runtime::{Handle, Runtime};
use tracing::warn;

pub use collector::{Endpoint, Error, InvalidEndpoint};
pub use logs::{Format, is_level};
pub use probe::{ProbeError, probe};
pub use trace::{
    TRACES, is_enabled, mark_failed, rename_span, set_attribute, set_remote_parent, string_array, traceparent,
};

/// Log settings and trace collector.
#[derive(Clone, Debug)]
pub struct Options {
    /// Log level directives, such as `info,async_nats=warn`.
    pub level: String,
    pub format: Format,
    /// `None` disables traces; no span is then created.
    pub collector: Option<Endpoint>,
}

/// The program, as its traces name it.
#[derive(Clone, Copy, Debug)]
pub struct Service<'a> {
    pub name: &'static str,
    pub version: &'static str,
    pub instance: Option<&'a str>,
}

impl Service<'_> {
    fn resource(self) -> Resource {
        let mut about = vec![KeyValue::new("service.version", self.version)];
        about.extend(self.instance.map(|name| KeyValue::new("service.instance.id", name.to_owned())));
        Resource::builder().with_service_name(self.name).with_attributes(about).build()
    }
}

/// Handle to be kept until everything else has stopped, then passed to [`Telemetry::stop`].
#[must_use]
#[derive(Debug)]
pub struct Telemetry(Option<SdkTracerProvider>);

/// Installs the log and, with a collector, the trace exporter; then runs `work` to its end and sends the
/// remaining spans, so that the shutdown itself is exported.
pub fn run<T>(
    service: Service<'_>,
    options: &Options,
    runtime: &Runtime,
    work: impl Future<Output = T>,
) -> Result<T, Error> {
    let telemetry = start(service, options, runtime.handle())?;
    let result = runtime.block_on(work);
    // `stop` blocks, and the exporter needs this runtime to make progress.
    if let Err(error) = runtime.block_on(runtime.spawn_blocking(|| telemetry.stop())) {
        warn!(%error, "Last traces may not have been exported.");
    }
    Ok(result)
}

/// Installs the log and, with a collector, the trace exporter. A second call in one process changes nothing.
///
/// Spans are sent on `runtime`, which must run until [`Telemetry::stop`] has returned.
pub fn start(service: Service<'_>, options: &Options, runtime: &Handle) -> Result<Telemetry, Error> {
    let open = |endpoint| collector::open(service.resource(), endpoint, runtime);
    let provider = options.collector.as_ref().map(open).transpose()?;
    if logs::open(&options.level, options.format, provider.as_ref()) {
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
