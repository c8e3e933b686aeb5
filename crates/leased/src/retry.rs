//! Repeats calls while the gateway is away.

use std::time::Duration;

use broker::{Chain, retry::RetryDelays};
use tracing::debug;

const FIRST_RETRY_WAIT: Duration = Duration::from_millis(250);
const MAX_RETRY_WAIT: Duration = Duration::from_secs(4);
/// A call that timed out is tried only so often.
const MAX_TIMED_OUT_TRIES: u32 = 2;

/// Makes a call until it succeeds, fails permanently, or `patience` has passed since the first failure.
/// Returns the number of tries, too. The call must carry an idempotency key, unless it changes nothing.
///
/// `on_failed_try` is called at once when a try fails, with the number of tries, and returns whether another
/// one may follow. `before_retry` is awaited before each further one.
pub async fn retry<T, F, B>(
    tool: &str,
    patience: Duration,
    make: impl Fn() -> F,
    mut on_failed_try: impl FnMut(u32, &mcp::Error) -> bool,
    before_retry: impl Fn() -> B,
) -> (Result<T, mcp::Error>, u32)
where
    F: Future<Output = Result<T, mcp::Error>>,
    B: Future<Output = ()>,
{
    // Set when the first try fails.
    let mut waits = None;
    let mut tries = 0;
    loop {
        tries += 1;
        let error = match make().await {
            Ok(value) => return (Ok(value), tries),
            Err(error) => error,
        };
        if !on_failed_try(tries, &error) || !error.is_transient() {
            return (Err(error), tries);
        }
        let is_exhausted = matches!(error, mcp::Error::TimedOut) && tries >= MAX_TIMED_OUT_TRIES;
        let waits: &mut RetryDelays =
            waits.get_or_insert_with(|| RetryDelays::within(FIRST_RETRY_WAIT, MAX_RETRY_WAIT, patience));
        let Some(wait) = waits.next_delay().filter(|_| !is_exhausted) else { return (Err(error), tries) };
        debug!(tool, why = %Chain(&error), tries, "Call failed; retrying with the same key.");
        tokio::time::sleep(wait).await;
        before_retry().await;
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::ready};

    use super::*;

    async fn tries(patience: Duration, fail: impl Fn() -> mcp::Error, may_follow: bool) -> u32 {
        let make = || ready(Err::<(), _>(fail()));
        let (failed, tries) = retry("x", patience, make, |_, _| may_follow, || ready(())).await;
        assert!(failed.is_err());
        tries
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_may_pass_is_tried_again() {
        let patience = Duration::from_secs(3600);
        let away = || mcp::Error::Unavailable("503".into());
        assert!(tries(Duration::from_secs(20), away, true).await > 4);
        assert_eq!(tries(Duration::ZERO, away, true).await, 1, "there is no patience");
        assert_eq!(tries(patience, away, false).await, 1, "the caller does not want another try");
        assert_eq!(tries(patience, || mcp::Error::TimedOut, true).await, MAX_TIMED_OUT_TRIES);
        assert_eq!(tries(patience, || mcp::Error::Protocol("?".into()), true).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn call_succeeds_when_the_gateway_is_back() {
        let made = Cell::new(0);
        let make = || {
            made.set(made.get() + 1);
            ready(if made.get() < 3 { Err(mcp::Error::Unavailable("503".into())) } else { Ok("done") })
        };
        let waited = Cell::new(0);
        let before = || {
            waited.set(waited.get() + 1);
            ready(())
        };
        let (done, tries) = retry("x", Duration::from_secs(60), make, |_, _| true, before).await;
        assert_eq!((done.unwrap(), tries, waited.get()), ("done", 3, 2));
    }
}
