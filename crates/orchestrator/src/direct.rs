//! Models that are not the project manager: any model id but `cynodeai.pm`. Requests are passed on to the
//! model server of the configuration, without secrets, and its answer is passed back as it arrives.

mod redaction;
mod server;
mod stream;
mod whole;

use std::{sync::Arc, time::Duration};

use axum::response::Response;
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use mcp::Token;
use serde_json::{Map, Value, json};

use self::server::Server;
use crate::{config, error::ApiError, metrics::Metrics};

/// The configured models for direct inference.
#[derive(Debug)]
pub(crate) struct Direct {
    models: Vec<Model>,
    metrics: Arc<Metrics>,
    /// Longest silence of a model server.
    silence: Duration,
    keep_alive: Duration,
}

#[derive(Debug)]
struct Model {
    id: String,
    /// What the server calls it.
    name: String,
    server: Server,
}

impl Direct {
    /// Fails if the HTTP client cannot be set up.
    pub(crate) fn new(
        settings: &config::Direct,
        keep_alive: Duration,
        metrics: Arc<Metrics>,
    ) -> Result<Self, reqwest::Error> {
        let http = server::client(settings.connect_timeout)?;
        let model = |model: &config::DirectModel| Model {
            id: model.id.clone(),
            name: model.name.clone(),
            server: Server::new(http.clone(), &model.url, model.key_file.clone().map(Token::new)),
        };
        let models = settings.models.iter().map(model).collect();
        Ok(Self { models, metrics, silence: settings.silence, keep_alive })
    }

    /// Returns the ids of all models, in the order of their configuration.
    pub(crate) fn models(&self) -> impl Iterator<Item = &str> {
        self.models.iter().map(|model| model.id.as_str())
    }

    /// Answers a chat completion with a model of the configuration. The request is an object whose texts are
    /// not redacted yet. A client that closes its connection ends the request to the model server.
    pub(crate) async fn complete(
        &self,
        model: &str,
        mut request: Map<String, Value>,
    ) -> Result<Response, ApiError> {
        let Some(model) = self.models.iter().find(|known| known.id == model) else {
            return Err(ApiError::model_not_found(model));
        };
        request.values_mut().for_each(redaction::redact);
        request.insert("model".to_owned(), model.name.as_str().into());
        let is_stream = request.get("stream").and_then(Value::as_bool).unwrap_or(false);
        let wants_usage = is_stream && asks_for_usage(&mut request);
        let answer = model.server.complete(&request, self.silence).await?;
        self.metrics.direct_requests.inc();
        if !is_stream {
            return whole::respond(answer, self.silence, &self.metrics).await;
        }
        let body = stream::body(answer, wants_usage, self.silence, self.keep_alive, self.metrics.clone());
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::OK;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert("cache-control", HeaderValue::from_static("no-cache"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        Ok(response)
    }
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
