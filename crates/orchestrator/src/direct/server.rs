//! A model server: sends it requests and reads its refusals.

use std::time::Duration;

use broker::Chain;
use http::{
    StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER},
};
use mcp::Token;
use serde_json::{Map, Value};
use tokio::time::timeout;
use tracing::{debug, warn};

use crate::error::ApiError;

const TRACEPARENT: &str = "traceparent";
/// Maximum number of bytes that are read of an error.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Returns the HTTP client for all model servers.
pub(super) fn client(connect_timeout: Duration) -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .connect_timeout(connect_timeout)
        // A redirect could send the key to another server.
        .redirect(reqwest::redirect::Policy::none())
        // Prompts and keys must only go to the configured server.
        .no_proxy()
        .tcp_nodelay(true)
        .build()
}

#[derive(Debug)]
pub(super) struct Server {
    http: reqwest::Client,
    /// The base URL, without a slash at the end.
    url: String,
    key: Option<Token>,
}

impl Server {
    pub(super) fn new(http: reqwest::Client, base_url: &str, key: Option<Token>) -> Self {
        Self { http, url: base_url.trim_end_matches('/').to_owned(), key }
    }

    /// Sends a request to a path and returns the answer once its head has arrived.
    pub(super) async fn complete(
        &self,
        path: &str,
        request: &Map<String, Value>,
        silence: Duration,
    ) -> Result<reqwest::Response, ApiError> {
        let mut sent = self.http.post(format!("{}{path}", self.url)).header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            let header = key.header().await.map_err(|error| {
                warn!(error = %Chain(&error), "Key of a model server not readable.");
                unavailable()
            })?;
            sent = sent.header(AUTHORIZATION, header);
        }
        if let Some(traceparent) = telemetry::traceparent() {
            sent = sent.header(TRACEPARENT, traceparent);
        }
        let sent = sent.body(subjects::encode_json(request)).send();
        let answer = match timeout(silence, sent).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => {
                // Without the URL, which clients must not see.
                debug!(error = %Chain(&error.without_url()), "Model server not reachable.");
                return Err(unavailable());
            }
            Err(_) => return Err(silent()),
        };
        if answer.status().is_success() { Ok(answer) } else { Err(self.read_refusal(answer, silence).await) }
    }

    /// Reads why the server refused a request. The server's own error goes on to the client, without the key.
    async fn read_refusal(&self, mut answer: reqwest::Response, silence: Duration) -> ApiError {
        let status = answer.status();
        let retry_after =
            answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let mut body = Vec::new();
        while body.len() <= MAX_ERROR_BYTES {
            match timeout(silence, answer.chunk()).await {
                Ok(Ok(Some(piece))) => body.extend_from_slice(&piece),
                Ok(Ok(None) | Err(_)) => break,
                Err(_) => return silent(),
            }
        }
        let refused = refusal(status, &body, self.key.as_ref());
        match retry_after {
            Some(seconds) => refused.retry_in(Duration::from_secs(seconds)),
            None => refused,
        }
    }
}

/// Returns the error for a client: that of the server, without secrets and without the server's key.
fn refusal(status: StatusCode, body: &[u8], key: Option<&Token>) -> ApiError {
    let clean = |text: String| {
        let text = match key {
            Some(key) => key.mask(text),
            None => text,
        };
        mcp::sanitize(&secrets::redact(&text))
    };
    let document: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = document.get("error").unwrap_or(&document);
    let text_of = |name: &str| error.get(name).and_then(Value::as_str).map(str::to_owned);
    let message = text_of("message").or_else(|| error.as_str().map(str::to_owned));
    let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
    let message = format!("The model server answered {status}: {}", clean(message));
    let code = text_of("code").map_or_else(|| "model_server_error".to_owned(), clean);
    let refused = match status {
        // The orchestrator's own key is at fault, not the client's.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
            warn!(%status, "Model server refused a request.");
            ApiError::new(StatusCode::BAD_GATEWAY, "model_server_refused", message).not_retryable()
        }
        status if status.is_client_error() => ApiError::new(status, code, message),
        StatusCode::SERVICE_UNAVAILABLE => ApiError::new(status, code, message),
        // A redirect, or a failure.
        _ => ApiError::new(StatusCode::BAD_GATEWAY, code, message),
    };
    ApiError { param: text_of("param").map(clean), ..refused }
}

pub(super) fn unavailable() -> ApiError {
    ApiError::unavailable(
        "model_server_unavailable",
        "The model server is not available; repeat the request.",
    )
}

pub(super) fn silent() -> ApiError {
    let message = "The model server did not answer in time; repeat the request, or raise direct.silence.";
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "model_server_silent", message)
}

/// The orchestrator stops before the answer is whole.
pub(super) fn stopping() -> ApiError {
    ApiError::unavailable("stopping", "This orchestrator is stopping; repeat the request.")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// G11: in every text that a client gets of an error.
    #[tokio::test]
    async fn refusal_has_no_secret_and_no_key_in_any_member() {
        let file = std::env::temp_dir().join(format!("cynode-server-key-{}", std::process::id()));
        std::fs::write(&file, "PROVKEY-abcdef0123456789").unwrap();
        let key = Token::new(file.clone());
        key.header().await.unwrap();
        std::fs::remove_file(file).unwrap();
        let secret = format!("sk-{}", "Q7rT2mZx9LkW4vNc8BdY5hJp3GsF6aEu1Ro");
        for text in ["bad key PROVKEY-abcdef0123456789", &format!("bad key {secret}")] {
            let body = json!({ "error": { "message": text, "code": text, "param": text } }).to_string();
            for status in [StatusCode::BAD_REQUEST, StatusCode::SERVICE_UNAVAILABLE, StatusCode::FORBIDDEN] {
                let refused = refusal(status, body.as_bytes(), Some(&key));
                let all = format!("{refused:?}");
                assert!(!all.contains("abcdef0123456789") && !all.contains(&secret), "{all}");
                assert!(refused.param.is_some_and(|param| param.contains("bad key ")));
            }
        }
    }
}
