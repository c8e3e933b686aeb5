//! Waiting for conditions with a timeout.

use std::time::Duration;

use tokio::time::{Instant, sleep};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `condition` returns a value. Panics with `what` after 30 seconds.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, condition: impl FnMut() -> F) -> T {
    eventually_within(DEFAULT_TIMEOUT, what, condition).await
}

/// Waits until `condition` returns a value. Panics with `what` after `timeout`.
pub async fn eventually_within<T, F: Future<Output = Option<T>>>(
    timeout: Duration,
    what: &str,
    mut condition: impl FnMut() -> F,
) -> T {
    let until = Instant::now() + timeout;
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < until, "still not after {timeout:?}: {what}");
        sleep(POLL_INTERVAL).await;
    }
}
