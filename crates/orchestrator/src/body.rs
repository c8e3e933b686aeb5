//! Reads request bodies, bounded in size and time.

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use http::StatusCode;
use tokio::time::timeout;

use crate::{error::ApiError, state::App};

/// The rest of a body over its limit is read and dropped, up to this size: a client that is still sending
/// would not see the refusal.
const MAX_DROPPED_BYTES: usize = 32 << 20;

pub(crate) async fn read(app: &App, body: Body) -> Result<Bytes, ApiError> {
    let api = &app.config.api;
    match timeout(api.read_timeout, collect(body, api.max_body_bytes)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(Unread::TooLarge)) => {
            let message = format!("The body has more than {} bytes.", api.max_body_bytes);
            Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message))
        }
        Ok(Err(Unread::Broken)) => {
            Err(ApiError::new(StatusCode::BAD_REQUEST, "incomplete_body", "The body broke off."))
        }
        Err(_) => {
            let message = format!("The body did not arrive within {:?}.", api.read_timeout);
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", message))
        }
    }
}

enum Unread {
    TooLarge,
    Broken,
}

async fn collect(body: Body, max_bytes: usize) -> Result<Bytes, Unread> {
    let mut chunks = body.into_data_stream();
    let Some(first) = chunks.next().await else { return Ok(Bytes::new()) };
    let first = first.map_err(|_| Unread::Broken)?;
    let Some(second) = chunks.next().await else {
        return if first.len() > max_bytes { Err(Unread::TooLarge) } else { Ok(first) };
    };
    let mut read = BytesMut::from(first);
    let (mut next, mut size) = (Some(second), read.len());
    while let Some(chunk) = next {
        let chunk = chunk.map_err(|_| Unread::Broken)?;
        size += chunk.len();
        if size > MAX_DROPPED_BYTES {
            break;
        }
        if size <= max_bytes {
            read.extend_from_slice(&chunk);
        } else if !read.is_empty() {
            read = BytesMut::new();
        }
        next = chunks.next().await;
    }
    if size > max_bytes { Err(Unread::TooLarge) } else { Ok(read.freeze()) }
}
