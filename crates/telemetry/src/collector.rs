//! Exports finished spans to an OTLP collector over HTTP. A thread of the SDK batches them. Spans are dropped
//! while the collector is unreachable, which is logged once.

use std::{
    fmt,
    pin::Pin,
    str::FromStr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{ExporterBuildError, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider},
};
use reqwest::{Url, redirect::Policy};
use rustls::crypto::{CryptoProvider, ring};
use tokio::runtime::Handle;
use tracing::{debug, info, warn};

/// How long a span waits for others to be sent with it.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);
/// How long the collector may take for one batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of the final export; spans that are not accepted by then are dropped, so that the program stops in
/// time.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// Responses are a few bytes; longer ones are refused.
const MAX_RESPONSE_BYTES: usize = 64 * 1_024;
const PATH: &str = "/v1/traces";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("creating the trace exporter's HTTP client")]
    Client(#[from] reqwest::Error),
    #[error("creating the trace exporter")]
    Exporter(#[from] ExporterBuildError),
}

/// URL of a collector.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint(Url);

#[derive(Debug, thiserror::Error)]
#[error("not an HTTP URL of a collector, such as http://127.0.0.1:4318")]
pub struct InvalidEndpoint;

impl FromStr for Endpoint {
    type Err = InvalidEndpoint;

    /// Parses the URL of a collector, with or without the path `/v1/traces`.
    fn from_str(text: &str) -> Result<Self, InvalidEndpoint> {
        let mut url: Url = text.trim().parse().map_err(|_| InvalidEndpoint)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() || url.query().is_some() {
            return Err(InvalidEndpoint);
        }
        if !url.path().ends_with(PATH) {
            let path = format!("{}{PATH}", url.path().trim_end_matches('/'));
            url.set_path(&path);
        }
        Ok(Self(url))
    }
}

/// Shows the host only, since the path or the credentials may be secret.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.0.host_str()).finish()
    }
}

pub(crate) fn open(
    resource: Resource,
    endpoint: &Endpoint,
    runtime: &Handle,
) -> Result<SdkTracerProvider, Error> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(ExportClient::new(runtime)?)
        .with_endpoint(endpoint.0.as_str())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(EXPORT_TIMEOUT)
        .build()?;
    let batches = BatchConfigBuilder::default().with_scheduled_delay(BATCH_INTERVAL).build();
    Ok(SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batches).build())
        .with_resource(resource)
        .build())
}

pub(crate) fn close(provider: &SdkTracerProvider) {
    if let Err(error) = provider.shutdown_with_timeout(SHUTDOWN_TIMEOUT) {
        debug!(%error, "Last spans not exported.");
    }
}

/// Installs the crypto provider that HTTP clients need, unless there is one.
pub(crate) fn install_crypto() {
    if CryptoProvider::get_default().is_none() {
        // Losing the race against another thread is fine: a provider is installed then.
        drop(ring::default_provider().install_default());
    }
}

/// HTTP client for the SDK's thread, which has no runtime of its own: requests run on `runtime`.
#[derive(Debug)]
struct ExportClient {
    http: reqwest::Client,
    runtime: Handle,
    /// The last export failed.
    is_unreachable: AtomicBool,
}

impl ExportClient {
    fn new(runtime: &Handle) -> Result<Self, reqwest::Error> {
        install_crypto();
        let http = reqwest::Client::builder()
            // Spans go to the configured address and nowhere else.
            .redirect(Policy::none())
            .no_proxy()
            .timeout(EXPORT_TIMEOUT)
            .build()?;
        Ok(Self { http, runtime: runtime.clone(), is_unreachable: AtomicBool::new(false) })
    }

    /// Logs when the collector becomes unreachable and when it is reachable again, but not each failure
    /// between.
    fn record_outcome(&self, problem: Option<String>) {
        let was_unreachable = self.is_unreachable.swap(problem.is_some(), Ordering::Relaxed);
        match problem {
            Some(problem) if !was_unreachable => {
                warn!(problem, "Trace collector not reachable; dropping spans.");
            }
            None if was_unreachable => info!("Trace collector reachable again."),
            _ => {}
        }
    }
}

type Sending<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for ExportClient {
    fn send_bytes<'us, 'sending>(&'us self, request: Request<Bytes>) -> Sending<'sending>
    where
        'us: 'sending,
        Self: 'sending,
    {
        Box::pin(async move {
            let delivered = self.runtime.spawn(deliver(self.http.clone(), request)).await;
            let delivered = delivered.map_err(HttpError::from).flatten();
            self.record_outcome(match &delivered {
                Ok(answer) if answer.status().is_success() => None,
                Ok(answer) => Some(format!("HTTP {}", answer.status())),
                Err(error) => Some(error.to_string()),
            });
            delivered
        })
    }
}

async fn deliver(http: reqwest::Client, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let request = reqwest::Request::try_from(request)?;
    let mut answer = http.execute(request).await.map_err(reqwest::Error::without_url)?;
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(reqwest::Error::without_url)? {
        body.extend_from_slice(&piece);
        if body.len() > MAX_RESPONSE_BYTES {
            return Err("the response is too large".into());
        }
    }
    let mut response = Response::builder().status(answer.status());
    if let Some(headers) = response.headers_mut() {
        *headers = std::mem::take(answer.headers_mut());
    }
    Ok(response.body(Bytes::from(body))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_an_http_url_and_gets_the_traces_path() {
        let path = |text: &str| text.parse::<Endpoint>().map(|endpoint| endpoint.0.to_string()).ok();
        let whole = Some("http://collector:4318/v1/traces".to_owned());
        for text in ["http://collector:4318", "http://collector:4318/", "http://collector:4318/v1/traces"] {
            assert_eq!(path(text), whole, "{text}");
        }
        assert_eq!(
            path("https://otel.example/team/a").as_deref(),
            Some("https://otel.example/team/a/v1/traces")
        );
        for text in ["", "collector:4318", "grpc://collector:4317", "http://", "http://collector:4318/?a=b"] {
            assert_eq!(path(text), None, "{text}");
        }
    }
}
