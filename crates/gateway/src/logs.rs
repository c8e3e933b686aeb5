//! Structured logs on standard error. Arguments, results and tokens are never fields of a log line.

use tracing_subscriber::{EnvFilter, fmt, prelude::*};

use crate::config::Log;

pub fn start(config: &Log) {
    // rmcp and the database clients print whole messages when they are asked to tell more.
    let quiet = "rmcp=warn,sqlx=warn,sea_orm=warn,hyper=warn,h2=warn";
    let registry = tracing_subscriber::registry().with(EnvFilter::new(format!("{},{quiet}", config.level)));
    let started = if config.json {
        let layer = fmt::layer().json().flatten_event(true).with_current_span(true).with_span_list(false);
        registry.with(layer.with_writer(std::io::stderr)).try_init()
    } else {
        registry.with(fmt::layer().with_target(false).with_writer(std::io::stderr)).try_init()
    };
    // Already open: whoever opened it keeps it.
    drop(started);
}
