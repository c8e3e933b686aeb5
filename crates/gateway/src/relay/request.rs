//! Requests that no stream stores, such as that workers stop a handoff.

use std::time::Duration;

use broker::Broker;
use store::{clock, entity::outbox};
use tokio::time::timeout;
use tracing::debug;

use super::Failure;

const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// After this time a request is obsolete: its handoff or job, or the lease of it, has ended.
const GIVE_UP_AFTER: Duration = Duration::from_secs(60 * 60);

/// Sends a request and waits for the first answer.
pub(super) async fn send(broker: &Broker, message: &outbox::Model) -> Result<(), Failure> {
    let age = Duration::from_micros(u64::try_from(clock::now() - message.created_at).unwrap_or_default());
    if age >= GIVE_UP_AFTER {
        debug!(subject = message.subject, "Request without an answer dropped.");
        return Ok(());
    }
    let request = broker.client.request(message.subject.clone(), message.body.clone().into());
    match timeout(ANSWER_TIMEOUT, request).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) | Err(_) => Err(Failure::NoAnswer(message.subject.clone())),
    }
}
