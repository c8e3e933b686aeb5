//! What agents are told when a provider does not answer as asked. Its key is never part of that.

use std::time::Duration;

use axum::{body::Body, response::Response};
use broker::Chain;
use futures_util::StreamExt;
use http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
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

/// The provider was not asked, or did not answer.
pub(super) fn not_asked(provider: &Provider, error: &AskError) -> ApiError {
    let name = provider.name();
    match error {
        AskError::Key(_) => {
            error!(provider = name, error = %Chain(error), "Key of a provider not readable.");
            let message =
                format!("The egress cannot read the key for {name}; an operator has to look at its log.");
            ApiError::unavailable("provider_key_unreadable", message)
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
    warn!(provider = name, ?silence, "Provider silent.");
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
    ApiError::new(StatusCode::BAD_GATEWAY, "provider_encoded_reply", message)
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
        error!(provider = name, "Provider refuses the key of the egress; replace the file that holds it.");
        let message =
            format!("The provider {name} refuses the key of the egress; an operator has to replace it.");
        return Err(ApiError::new(StatusCode::BAD_GATEWAY, "provider_refused_key", message));
    }
    if !status.is_client_error() && !status.is_server_error() {
        warn!(provider = name, status = status.as_u16(), "Provider answered with a redirect.");
        let message =
            format!("The provider {name} answered with {status}, which the egress does not follow.");
        return Err(ApiError::new(StatusCode::BAD_GATEWAY, "provider_redirected", message));
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
