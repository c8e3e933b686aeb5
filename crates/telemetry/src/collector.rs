//! Where finished spans go: an OTLP collector, over HTTP. A thread of the SDK's gathers them; when nobody takes them they are
//! dropped, which is told once.

use std::{
    fmt,
    pin::Pin,
    str::FromStr,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use opentelemetry::KeyValue;
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

use crate::Options;

/// How long a span waits for others to go with.
const GATHER: Duration = Duration::from_secs(1);
/// How long a collector may take for one batch.
const DELIVER_WITHIN: Duration = Duration::from_secs(5);
/// What is not taken by then is dropped, so that a program ends when it is told to.
const LAST_WITHIN: Duration = Duration::from_secs(3);
/// Answers are a few bytes; of one without end no more than this is read.
const MOST_ANSWER: usize = 64 * 1_024;
const PATH: &str = "/v1/traces";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("creating the trace exporter's HTTP client")]
    Client(#[from] reqwest::Error),
    #[error("creating the trace exporter")]
    Exporter(#[from] ExporterBuildError),
}

/// The address of a collector.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint(Url);

#[derive(Debug, thiserror::Error)]
#[error("not an HTTP URL of a collector, such as http://127.0.0.1:4318")]
pub struct NoEndpoint;

impl FromStr for Endpoint {
    type Err = NoEndpoint;

    /// With or without the path of traces.
    fn from_str(text: &str) -> Result<Self, NoEndpoint> {
        let mut url: Url = text.trim().parse().map_err(|_| NoEndpoint)?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() || url.query().is_some() {
            return Err(NoEndpoint);
        }
        if !url.path().ends_with(PATH) {
            let path = format!("{}{PATH}", url.path().trim_end_matches('/'));
            url.set_path(&path);
        }
        Ok(Self(url))
    }
}

/// Its path and password are nobody's business.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Endpoint").field(&self.0.host_str()).finish()
    }
}

pub(crate) fn open(
    options: &Options<'_>,
    to: &Endpoint,
    runtime: &Handle,
) -> Result<SdkTracerProvider, Error> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Courier::new(runtime)?)
        .with_endpoint(to.0.as_str())
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(DELIVER_WITHIN)
        .build()?;
    let batches = BatchConfigBuilder::default().with_scheduled_delay(GATHER).build();
    let mut about = vec![KeyValue::new("service.version", options.version)];
    about.extend(options.instance.map(|name| KeyValue::new("service.instance.id", name.to_owned())));
    let resource = Resource::builder().with_service_name(options.service).with_attributes(about);
    Ok(SdkTracerProvider::builder()
        .with_span_processor(BatchSpanProcessor::builder(exporter).with_batch_config(batches).build())
        .with_resource(resource.build())
        .build())
}

pub(crate) fn close(provider: &SdkTracerProvider) {
    if let Err(error) = provider.shutdown_with_timeout(LAST_WITHIN) {
        debug!(%error, "Last spans not exported.");
    }
}

/// Lends the SDK's thread, which has no runtime, ours.
#[derive(Debug)]
struct Courier {
    http: reqwest::Client,
    runtime: Handle,
    /// The collector did not answer when it was last tried.
    is_away: AtomicBool,
}

impl Courier {
    fn new(runtime: &Handle) -> Result<Self, reqwest::Error> {
        if CryptoProvider::get_default().is_none() {
            // Lost against another thread is fine: then there is one.
            drop(ring::default_provider().install_default());
        }
        let http = reqwest::Client::builder()
            // What is told goes where the configuration says, and nowhere else.
            .redirect(Policy::none())
            .no_proxy()
            .timeout(DELIVER_WITHIN)
            .build()?;
        Ok(Self { http, runtime: runtime.clone(), is_away: AtomicBool::new(false) })
    }

    /// A collector that stays away must not fill the log.
    fn came_to(&self, problem: Option<String>) {
        let was_away = self.is_away.swap(problem.is_some(), Ordering::Relaxed);
        match problem {
            Some(problem) if !was_away => {
                warn!(problem, "Trace collector not reachable; dropping spans.");
            }
            None if was_away => info!("Trace collector reachable again."),
            _ => {}
        }
    }
}

type Sending<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Courier {
    fn send_bytes<'us, 'sending>(&'us self, request: Request<Bytes>) -> Sending<'sending>
    where
        'us: 'sending,
        Self: 'sending,
    {
        Box::pin(async move {
            let delivered = self.runtime.spawn(deliver(self.http.clone(), request)).await;
            let delivered = delivered.map_err(HttpError::from).flatten();
            self.came_to(match &delivered {
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
        if body.len() > MOST_ANSWER {
            return Err("the answer has no end".into());
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
    fn an_endpoint_is_an_http_address_and_gets_the_path_of_traces() {
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
