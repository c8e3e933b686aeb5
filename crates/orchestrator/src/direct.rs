//! Models that are not the project manager: any model id but `cynodeai.pm`. Requests are passed on to the
//! model server of the configuration, without secrets, and its answer is passed back as it arrives.

mod base64;
mod choice_texts;
mod chunks;
mod redaction;
mod response_events;
mod server;
mod stream;
mod whole;

use std::{sync::Arc, time::Duration};

use axum::{body::Body, response::Response};
use futures_util::{StreamExt, stream::unfold};
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use mcp::Token;
use serde_json::{Map, Value, json};
use tokio::{select, sync::OwnedSemaphorePermit};
use tokio_util::sync::CancellationToken;

pub(crate) use self::redaction::redact;
use self::{chunks::Chunks, response_events::ResponseEvents, server::Server};
use crate::{
    config,
    error::ApiError,
    metrics::{Metrics, OpenStream},
    rate_limits::RateLimits,
};

/// The configured models for direct inference.
#[derive(Debug)]
pub(crate) struct Direct {
    models: Vec<Model>,
    metrics: Arc<Metrics>,
    /// Longest silence of a model server.
    silence: Duration,
    keep_alive: Duration,
    /// Cancelled when answers have to end, so that their clients get an error.
    closing: CancellationToken,
}

#[derive(Debug)]
struct Model {
    id: String,
    /// The name of the model at its server.
    name: String,
    server: Server,
}

/// The API by which a model server is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    ChatCompletions,
    Responses,
}

impl Api {
    /// Returns the path below the base URL of a model server.
    fn path(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/chat/completions",
            Self::Responses => "/responses",
        }
    }
}

impl Direct {
    /// Fails if the HTTP client cannot be set up.
    pub(crate) fn new(
        settings: &config::Direct,
        keep_alive: Duration,
        metrics: Arc<Metrics>,
        closing: CancellationToken,
    ) -> Result<Self, reqwest::Error> {
        let http = server::client(settings.connect_timeout)?;
        let model = |model: &config::DirectModel| Model {
            id: model.id.clone(),
            name: model.name.clone(),
            server: Server::new(http.clone(), &model.url, model.key_file.clone().map(Token::new)),
        };
        let models = settings.models.iter().map(model).collect();
        Ok(Self { models, metrics, silence: settings.silence, keep_alive, closing })
    }

    /// Returns the ids of all models, in the order of their configuration.
    pub(crate) fn models(&self) -> impl Iterator<Item = &str> {
        self.models.iter().map(|model| model.id.as_str())
    }

    /// Answers a request with a model of the configuration. The request is an object whose texts are not
    /// redacted yet. A stream takes one of the slots for streams. A client that closes its connection ends
    /// the request to the model server, and so does an orchestrator that stops.
    pub(crate) async fn complete(
        &self,
        limits: &RateLimits,
        api: Api,
        model: &str,
        mut request: Map<String, Value>,
    ) -> Result<Response, ApiError> {
        let Some(model) = self.models.iter().find(|known| known.id == model) else {
            return Err(ApiError::model_not_found(model));
        };
        redaction::redact_request(&mut request);
        request.insert("model".to_owned(), model.name.as_str().into());
        let asked = request.get("n").and_then(Value::as_u64).map_or(1, |n| usize::try_from(n).unwrap_or(1));
        let is_stream = request.get("stream").and_then(Value::as_bool).unwrap_or(false);
        let slot = is_stream.then(|| limits.begin_stream()).transpose()?;
        let wants_usage = is_stream && api == Api::ChatCompletions && asks_for_usage(&mut request);
        let answer = select! {
            answer = model.server.complete(api.path(), &request, self.silence) => answer?,
            () = self.closing.cancelled() => return Err(server::stopping()),
        };
        self.metrics.direct_requests.inc();
        let Some(slot) = slot else {
            return select! {
                response = whole::respond(answer, self.silence, &self.metrics) => response,
                () = self.closing.cancelled() => Err(server::stopping()),
            };
        };
        let (silence, keep_alive, closing) = (self.silence, self.keep_alive, self.closing.clone());
        let metrics = self.metrics.clone();
        let body = match api {
            Api::ChatCompletions => {
                let relay = Chunks::new(wants_usage, asked, metrics);
                stream::body(answer, relay, silence, keep_alive, closing)
            }
            Api::Responses => {
                let relay = ResponseEvents::new(metrics);
                stream::body(answer, relay, silence, keep_alive, closing)
            }
        };
        let mut response = Response::new(hold(body, slot, self.metrics.open_stream()));
        *response.status_mut() = StatusCode::OK;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert("cache-control", HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }
}

/// Returns a body that has the slot of its stream until it ends or is dropped.
fn hold(body: Body, slot: OwnedSemaphorePermit, open: OpenStream) -> Body {
    let held = (body.into_data_stream(), slot, open);
    Body::from_stream(unfold(held, |(mut pieces, slot, open)| async move {
        let piece = pieces.next().await?;
        Some((piece, (pieces, slot, open)))
    }))
}

/// Returns whether the client wants the chunk with the usage, and asks the server for it in any case: usage
/// is counted here.
fn asks_for_usage(request: &mut Map<String, Value>) -> bool {
    let options = request.entry("stream_options").or_insert(Value::Null);
    let wants = options.get("include_usage").and_then(Value::as_bool).unwrap_or(false);
    match options {
        Value::Object(options) => {
            options.insert("include_usage".to_owned(), true.into());
        }
        other => *other = json!({ "include_usage": true }),
    }
    wants
}
