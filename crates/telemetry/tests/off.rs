//! Without a collector no spans are created, whatever the log level.

use telemetry::{Format, Options, Service, TRACES};
use tracing::level_filters::LevelFilter;

#[tokio::test]
async fn without_a_collector_no_span_is_created() {
    let service = Service { name: "test", version: "0", instance: None };
    let options = Options { level: "info".to_owned(), format: Format::Text, collector: None };
    let telemetry = telemetry::start(service, &options, &tokio::runtime::Handle::current()).unwrap();
    assert_eq!(LevelFilter::current(), LevelFilter::INFO, "events below the level are disabled");
    let mut evaluated = false;
    let span = tracing::info_span!(target: TRACES, "never", value = { evaluated = true; 1 });
    assert!(span.is_disabled() && !evaluated);
    assert!(tracing::debug_span!("below the level").is_disabled());
    assert!(!tracing::info_span!("of the log").is_disabled());
    let _entered = span.enter();
    assert!(!telemetry::is_enabled());
    assert_eq!(telemetry::traceparent(), None);
    telemetry.stop();
}
