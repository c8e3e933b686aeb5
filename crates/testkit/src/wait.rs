use std::time::Duration;

use tokio::time::{Instant, sleep};

const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Waits until `condition` gives a value, and panics with `what` when it takes too long.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, condition: impl FnMut() -> F) -> T {
    eventually_within(PATIENCE, what, condition).await
}

pub async fn eventually_within<T, F: Future<Output = Option<T>>>(
    patience: Duration,
    what: &str,
    mut condition: impl FnMut() -> F,
) -> T {
    let until = Instant::now() + patience;
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < until, "still not after {patience:?}: {what}");
        sleep(LOOK_EVERY).await;
    }
}
