//! Requests to the server, bounded in time.

use std::time::Duration;

use async_nats::{Client, Message, Request, RequestError, ToSubject};
use tokio::time::timeout;

/// No response came, so it is unknown whether the server received the request.
#[derive(Debug, thiserror::Error)]
pub enum NoResponse {
    #[error("the server did not respond")]
    Request(#[from] RequestError),
    #[error("the server did not respond in time")]
    TimedOut,
}

/// Sends a request and waits for the reply; `within` bounds both.
pub(crate) async fn send(
    client: &Client,
    subject: impl ToSubject,
    request: Request,
    within: Duration,
) -> Result<Message, NoResponse> {
    // The client bounds only the wait for the reply; while it is disconnected, sending may block forever as
    // well.
    let sent = client.send_request(subject, request.timeout(None));
    Ok(timeout(within, sent).await.map_err(|_| NoResponse::TimedOut)??)
}
