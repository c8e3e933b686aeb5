use std::time::Duration;

use async_nats::{Client, Request, RequestError, StatusCode, Subject};
use bytes::Bytes;

#[derive(Debug, thiserror::Error)]
pub enum AckError {
    #[error("the server did not answer the acknowledgement")]
    Unheard(#[from] RequestError),
    #[error("the acknowledgement was answered with status {0}")]
    Status(StatusCode),
}

/// Sends an acknowledgement and waits until the server says it has it.
///
/// The client's own `double_ack` takes any reply for a yes, a 503 too.
pub async fn confirm(client: &Client, ack: &Subject, verb: Bytes, within: Duration) -> Result<(), AckError> {
    let request = Request::new().payload(verb).timeout(Some(within));
    let reply = client.send_request(ack.clone(), request).await?;
    match reply.status {
        None | Some(StatusCode::OK) => Ok(()),
        Some(status) => Err(AckError::Status(status)),
    }
}
