//! Listens for API keys that are revoked, so that they are refused at once and their requests end.

use std::time::Duration;

use async_nats::Subscriber;
use broker::{OnDemand, retry::RetryDelays};
use futures_util::StreamExt;
use subjects::key::{REVOKED_SUBJECT, Revoked};
use tokio::{
    select,
    sync::watch,
    time::{interval, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::keys::Keys;

/// How often the keys of open requests are checked: they may expire, and a gateway without NATS does not tell
/// that it revoked one.
const CHECK_EVERY: Duration = Duration::from_secs(20);

/// Revokes keys as the gateway does, until `stop` is cancelled.
pub(crate) async fn follow(nats: &OnDemand, keys: &Keys, stop: &CancellationToken) {
    let mut delays = RetryDelays::forever(Duration::from_millis(100), Duration::from_secs(2));
    loop {
        if let Some((mut revoked, mut connections)) = subscribe(nats).await {
            delays.reset();
            let mut checks = interval(CHECK_EVERY);
            // The first one comes at once.
            checks.tick().await;
            loop {
                select! {
                    () = stop.cancelled() => return,
                    // Revocations during the lost connection were missed.
                    changed = connections.changed() => match changed {
                        Ok(()) => keys.check_all().await,
                        Err(_) => break,
                    },
                    message = revoked.next() => match message {
                        Some(message) => revoke(keys, &message.payload).await,
                        None => break,
                    },
                    _ = checks.tick() => keys.check_in_use().await,
                }
            }
        }
        select! {
            () = stop.cancelled() => return,
            () = sleep(delays.next_delay().unwrap_or_default()) => {}
        }
    }
}

async fn subscribe(nats: &OnDemand) -> Option<(Subscriber, watch::Receiver<u64>)> {
    let broker = nats.broker().await.ok()?;
    let mut connections = broker.connections.clone();
    connections.mark_unchanged();
    match broker.client.subscribe(REVOKED_SUBJECT).await {
        Ok(revoked) => Some((revoked, connections)),
        Err(error) => {
            debug!(%error, "Revocations not followed; retrying.");
            None
        }
    }
}

async fn revoke(keys: &Keys, message: &[u8]) {
    match serde_json::from_slice::<Revoked>(message) {
        Ok(revoked) => keys.revoke(&revoked.key_id),
        // Rather ask once more than trust a key too long.
        Err(_) => keys.check_all().await,
    }
}
