//! What a program tells about itself while it runs: logs without secrets, and traces. The same for every program, and nothing
//! here decides anything.

mod collector; // where finished spans go
mod logs; // lines on standard error
mod redact; // what nobody may read
mod trace; // which trace a piece of work belongs to

use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;

pub use collector::{Endpoint, Error, NoEndpoint};
pub use logs::{Format, is_level};
pub use redact::redact;
pub use trace::{TRACES, attribute, continues, failed, is_on, list, rename, traceparent};

/// Who tells, how much, and to whom.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    pub service: &'static str,
    pub version: &'static str,
    pub instance: Option<&'a str>,
    /// As in `info,async_nats=warn`.
    pub level: &'a str,
    pub format: Format,
    /// `None`: no traces, and nothing is done for any.
    pub collector: Option<&'a Endpoint>,
}

/// Held until all else has ended.
#[must_use]
#[derive(Debug)]
pub struct Telemetry(Option<SdkTracerProvider>);

/// Opens the log, and the way to the collector if there is one. A second call in one process changes nothing.
///
/// What goes to the collector is sent on `runtime`, which must be there until [`Telemetry::stop`] has returned.
pub fn start(options: &Options<'_>, runtime: &Handle) -> Result<Telemetry, Error> {
    let provider = options.collector.map(|to| collector::open(options, to, runtime)).transpose()?;
    if logs::open(options, provider.as_ref()) {
        trace::switch(provider.is_some());
    }
    Ok(Telemetry(provider))
}

impl Telemetry {
    /// Sends what is left, and gives up soon if nobody takes it. Not to be called on the runtime itself.
    pub fn stop(self) {
        if let Some(provider) = self.0 {
            collector::close(&provider);
        }
    }
}
