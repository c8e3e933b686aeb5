use std::time::Duration;

use async_nats::{Client, Request, RequestError, StatusCode, Subject};
use bytes::Bytes;
use tokio::time::timeout;

#[derive(Debug, thiserror::Error)]
pub enum AckError {
    #[error("the server did not answer the acknowledgement")]
    Unheard(#[from] RequestError),
    #[error("the acknowledgement was not answered in time")]
    TimedOut,
    #[error("the message is not known to be ours any more")]
    Stale,
    #[error("the acknowledgement was answered with status {0}")]
    Status(StatusCode),
}

/// Sends an acknowledgement and waits until the server says it has it.
///
/// The client's own `double_ack` takes any reply for a yes, a 503 too.
pub async fn confirm(client: &Client, ack: &Subject, verb: Bytes, within: Duration) -> Result<(), AckError> {
    // The client bounds only the wait for the reply; while it is disconnected the sending may take for ever, too.
    let request = Request::new().payload(verb).timeout(None);
    let reply = timeout(within, client.send_request(ack.clone(), request))
        .await
        .map_err(|_| AckError::TimedOut)??;
    match reply.status {
        None | Some(StatusCode::OK) => Ok(()),
        Some(status) => Err(AckError::Status(status)),
    }
}
