//! Acknowledgements that the server has confirmed.

use std::time::Duration;

use async_nats::{Client, Request, StatusCode, Subject};
use bytes::Bytes;

use crate::request::{self, NoResponse};

#[derive(Debug, thiserror::Error)]
pub enum AckError {
    #[error("the acknowledgement was not confirmed")]
    Unconfirmed(#[from] NoResponse),
    #[error("ownership of the message is not confirmed")]
    Stale,
    #[error("the acknowledgement was rejected with status {0}")]
    Status(StatusCode),
}

/// Sends an acknowledgement and waits until the server confirms it.
///
/// The client's own `double_ack` takes any reply as a confirmation, even a 503.
pub async fn confirm(client: &Client, ack: &Subject, verb: Bytes, within: Duration) -> Result<(), AckError> {
    let reply = request::send(client, ack.clone(), Request::new().payload(verb), within).await?;
    match reply.status {
        None | Some(StatusCode::OK) => Ok(()),
        Some(status) => Err(AckError::Status(status)),
    }
}
