//! Answers that are not streamed.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use serde_json::Value;
use tokio::time::timeout;

use super::{redaction, server};
use crate::{error::ApiError, metrics::Metrics, respond::json};

const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Passes an answer on, without secrets.
pub(super) async fn respond(
    mut answer: reqwest::Response,
    silence: Duration,
    metrics: &Metrics,
) -> Result<Response, ApiError> {
    let mut body = Vec::new();
    loop {
        match timeout(silence, answer.chunk()).await {
            Ok(Ok(Some(piece))) if body.len() + piece.len() > MAX_ANSWER_BYTES => return Err(unreadable()),
            Ok(Ok(Some(piece))) => body.extend_from_slice(&piece),
            Ok(Ok(None)) => break,
            Ok(Err(_)) => return Err(unreadable()),
            Err(_) => return Err(server::silent()),
        }
    }
    let mut document: Value = serde_json::from_slice(&body).map_err(|_| unreadable())?;
    redaction::redact_answer(&mut document);
    metrics.count_direct_usage(document.get("usage"));
    Ok(json(StatusCode::OK, &document))
}

fn unreadable() -> ApiError {
    let message = "The model server broke off its answer, or it is not JSON; repeat the request.";
    ApiError::new(StatusCode::BAD_GATEWAY, "model_server_error", message)
}
