//! The errors that agents get when a call to a provider fails. They never contain its key.

use std::time::Duration;

use axum::{body::Body, response::Response};
use broker::Chain;
use futures_util::StreamExt;
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tracing::{error, warn};

use super::{
    mask::Mask,
    provider::{AskError, Provider},
    relay::{is_encoded, passed_on, reply},
};
use crate::error::ApiError;

/// Most bytes of an error that are passed on.
const MAX_ERROR_BYTES: usize = 64 << 10;
/// Most of a refusal that is quoted.
const MAX_QUOTED_CHARS: usize = 160;

/// The provider was not asked, or did not answer.
pub(super) fn not_asked(provider: &Provider, error: &AskError) -> ApiError {
    let name = provider.name();
    match error {
        AskError::Key(_) => {
            error!(provider = name, error = %Chain(error), "Key of a provider not readable.");
            let message = format!(
                "The egress cannot read the key for the provider {name}. An operator has to look at the log \
                 of the orchestrator, which names the reason."
            );
            ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "provider_key_unreadable", message).not_retryable()
        }
        AskError::Send(_) => {
            warn!(provider = name, error = %Chain(error), "Provider not reachable.");
            let message =
                format!("The provider {name} cannot be reached from the egress; repeat the request.");
            ApiError::new(StatusCode::BAD_GATEWAY, "provider_unreachable", message)
        }
    }
}

/// The provider did not begin to answer in time.
pub(super) fn silent(provider: &Provider, silence: Duration) -> ApiError {
    let name = provider.name();
    warn!(provider = name, ?silence, "Provider did not answer in time.");
    let message = format!("The provider {name} did not answer in time; repeat the request.");
    ApiError::new(StatusCode::GATEWAY_TIMEOUT, "provider_silent", message)
}

/// The provider encoded its reply, although it was asked not to.
pub(super) fn encoded(provider: &Provider) -> ApiError {
    let name = provider.name();
    warn!(provider = name, "Provider encoded its reply although it was asked not to; reply refused.");
    let message = format!(
        "The provider {name} compressed or encoded its reply, in which the egress cannot find the provider's \
         key; an operator has to turn that off at the provider or at a proxy before it."
    );
    ApiError::new(StatusCode::BAD_GATEWAY, "provider_encoded_reply", message).not_retryable()
}

/// Passes an error of the provider on, without its key. One that is not about the request itself becomes one
/// of the egress.
pub(super) async fn pass_on(
    provider: &Provider,
    response: reqwest::Response,
    mask: &Mask,
    deadline: Instant,
) -> Result<Response, ApiError> {
    let (name, status) = (provider.name(), response.status());
    if status == StatusCode::UNAUTHORIZED {
        // To a worker, 401 would mean that its own token is refused.
        let key_file = provider.key_file().map(|path| path.display().to_string());
        error!(provider = name, key_file, "Provider refuses its key; put a valid one into the file.");
        let message = format!(
            "The provider {name} refuses the key of the egress (401). An operator has to put a valid key \
             into the file that `key_file` of this provider names; no restart is needed."
        );
        return Err(ApiError::new(StatusCode::BAD_GATEWAY, "provider_refused_key", message).not_retryable());
    }
    if !status.is_client_error() && !status.is_server_error() {
        warn!(provider = name, status = status.as_u16(), "Provider answered with a redirect.");
        let message =
            format!("The provider {name} answered with {status}, which the egress does not follow.");
        return Err(ApiError::new(StatusCode::BAD_GATEWAY, "provider_redirected", message).not_retryable());
    }
    let mut headers = passed_on(response.headers(), mask);
    let mut body = Vec::new();
    let is_readable = !is_encoded(response.headers());
    let mut pieces = response.bytes_stream();
    while is_readable && let Ok(Some(Ok(piece))) = timeout_at(deadline, pieces.next()).await {
        body.extend_from_slice(&piece);
        if body.len() > MAX_ERROR_BYTES {
            // A key at the cut could be there in part.
            body.clear();
            break;
        }
    }
    let body = mask.text(&body);
    if status == StatusCode::FORBIDDEN {
        warn!(provider = name, "Provider forbids a request.");
        return Err(forbidden(name, &body));
    }
    let body = match String::from_utf8(body) {
        Ok(text) if !text.is_empty() => secrets::redact(&text).into_owned(),
        _ => {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let message = format!("The provider {name} answered with {status}.");
            String::from_utf8_lossy(&ApiError::new(status, "provider_failed", message).to_json()).into_owned()
        }
    };
    warn!(provider = name, status = status.as_u16(), "Provider refused a request.");
    Ok(reply(status, headers, Body::from(body)))
}

/// Says what the provider forbids, in its own words.
fn forbidden(name: &str, body: &[u8]) -> ApiError {
    let document: Option<Value> = serde_json::from_slice(body).ok();
    let said = document.as_ref().and_then(|document| document.pointer("/error/message")?.as_str());
    let said = said.map(|said| secrets::redact(said).chars().take(MAX_QUOTED_CHARS).collect::<String>());
    let said = said.map(|said| format!(": {}", said.trim_end_matches('.'))).unwrap_or_default();
    let message = format!(
        "The provider {name} forbids this (403){said}. If its key lacks a permission, an operator has to \
         change that at the provider, or to replace the key."
    );
    ApiError::new(StatusCode::FORBIDDEN, "provider_forbids", message)
}
