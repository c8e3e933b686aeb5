use std::time::Duration;

use async_nats::{Client, Message, Request, RequestError, ToSubject};
use tokio::time::timeout;

/// Nobody knows whether the server heard.
#[derive(Debug, thiserror::Error)]
pub enum Silence {
    #[error("the server did not respond")]
    Broken(#[from] RequestError),
    #[error("the server did not respond in time")]
    TimedOut,
}

/// Sends a request and waits for the answer, `within` this time for both.
pub(crate) async fn send(
    client: &Client,
    subject: impl ToSubject,
    request: Request,
    within: Duration,
) -> Result<Message, Silence> {
    // The client bounds only the wait for the reply; while it is disconnected the sending may take for ever, too.
    let sent = client.send_request(subject, request.timeout(None));
    Ok(timeout(within, sent).await.map_err(|_| Silence::TimedOut)??)
}
