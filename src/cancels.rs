//! Cancel requests on `pma.cancel.<handoff_id>`.
//!
//! Every instance receives them and remembers them for a while, so that a handoff that is still queued is
//! stopped too.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_nats::{Client, Subscriber};
use broker::Chain;
use futures_util::StreamExt;
use subjects::{CancelReply, CancelState, HandoffId, InstanceId, Subject};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::telemetry::Metrics;

/// How long a cancel is remembered.
const CANCEL_LIFETIME: Duration = Duration::from_secs(24 * 3_600);
const MAX_REMEMBERED: usize = 100_000;

/// The handoffs that run on this instance, and the cancels it has received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancels(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    running: HashMap<HandoffId, CancellationToken>,
    /// Cancelled when a running handoff ends. Created only when a task waits for that.
    ended: HashMap<HandoffId, CancellationToken>,
    /// In order of arrival.
    received: VecDeque<(Instant, HandoffId)>,
    remembered: HashMap<HandoffId, Instant>,
}

impl State {
    /// Returns a token that is cancelled when the handoff ends; `None` if it does not run here.
    fn end_token(&mut self, id: HandoffId) -> Option<CancellationToken> {
        let runs = self.running.contains_key(&id);
        runs.then(|| self.ended.entry(id).or_default().clone())
    }
}

/// Registration of a running handoff; removed on drop.
#[derive(Debug)]
pub(crate) struct Running {
    id: HandoffId,
    token: CancellationToken,
    cancels: Cancels,
}

impl Running {
    /// Waits until the handoff is cancelled.
    pub(crate) async fn cancelled(&self) {
        self.token.cancelled().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.cancels.lock();
        state.running.remove(&self.id);
        if let Some(ended) = state.ended.remove(&self.id) {
            ended.cancel();
        }
    }
}

/// Why a handoff may not run here now.
#[derive(Clone, Debug)]
pub(crate) enum NotStarted {
    Cancelled,
    /// A copy of it already runs here; the token is cancelled when that one ends.
    AlreadyRunning(CancellationToken),
}

impl Cancels {
    /// Registers a handoff as running. Fails if it was cancelled or already runs here.
    pub(crate) fn start(&self, id: HandoffId) -> Result<Running, NotStarted> {
        let mut state = self.lock();
        if state.remembered.get(&id).is_some_and(|received| received.elapsed() < CANCEL_LIFETIME) {
            return Err(NotStarted::Cancelled);
        }
        if let Some(ended) = state.end_token(id) {
            return Err(NotStarted::AlreadyRunning(ended));
        }
        let token = CancellationToken::new();
        state.running.insert(id, token.clone());
        Ok(Running { id, token, cancels: self.clone() })
    }

    /// Waits until the handoff no longer runs here. Returns at once if it does not.
    pub(crate) async fn wait_until_ended(&self, id: HandoffId) {
        let ended = self.lock().end_token(id);
        if let Some(ended) = ended {
            ended.cancelled().await;
        }
    }

    fn cancel(&self, id: HandoffId) -> CancelState {
        let mut state = self.lock();
        let now = Instant::now();
        state.received.push_back((now, id));
        state.remembered.insert(id, now);
        while state.received.len() > MAX_REMEMBERED
            || state
                .received
                .front()
                .is_some_and(|(received, _)| now.duration_since(*received) >= CANCEL_LIFETIME)
        {
            let Some((received, old)) = state.received.pop_front() else { break };
            // It may have been cancelled again since.
            if state.remembered.get(&old) == Some(&received) {
                state.remembered.remove(&old);
            }
        }
        match state.running.get(&id) {
            Some(token) => {
                token.cancel();
                CancelState::Stopping
            }
            None => CancelState::Remembered,
        }
    }

    /// A panic cannot leave an entry half written.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes the messages of `cancels` until `stop`.
    pub(crate) async fn listen(
        self,
        mut cancels: Subscriber,
        client: Client,
        instance: InstanceId,
        metrics: Arc<Metrics>,
        stop: CancellationToken,
    ) {
        loop {
            let message = tokio::select! {
                biased;
                // Cancel-safe per docs on `cancelled()`.
                () = stop.cancelled() => return,
                // Cancel-safe: a message not yet yielded stays in the subscription.
                message = cancels.next() => message,
            };
            let Some(message) = message else { return };
            let Ok(Subject::Cancel(id)) = message.subject.parse() else {
                warn!(subject = %message.subject, "Cancel without a handoff id ignored.");
                continue;
            };
            metrics.cancels.inc();
            let state = self.cancel(id);
            info!(handoff.id = %id, ?state, "Cancel received.");
            if let Some(reply) = message.reply {
                let confirmation = CancelReply { instance: instance.clone(), state };
                let body = subjects::encode_json(&confirmation);
                if let Err(error) = client.publish(reply, body.into()).await {
                    warn!(error = %Chain(&error), "Cancel reply not sent.");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> HandoffId {
        format!("0193f2c0-5a00-7000-8000-0000000000{n:02x}").parse().unwrap()
    }

    #[tokio::test]
    async fn cancel_stops_a_running_handoff_and_is_remembered_for_a_queued_one() {
        let cancels = Cancels::default();
        let running = cancels.start(id(1)).unwrap();
        assert_eq!(cancels.cancel(id(1)), CancelState::Stopping);
        running.cancelled().await;
        assert_eq!(cancels.cancel(id(2)), CancelState::Remembered);
        assert!(matches!(cancels.start(id(2)), Err(NotStarted::Cancelled)));
    }

    #[tokio::test]
    async fn a_handoff_runs_once_at_a_time() {
        let cancels = Cancels::default();
        let running = cancels.start(id(1)).unwrap();
        let Err(NotStarted::AlreadyRunning(ended)) = cancels.start(id(1)) else { panic!("it ran twice") };
        drop(running);
        ended.cancelled().await;
        cancels.wait_until_ended(id(1)).await;
        assert!(cancels.start(id(1)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn cancel_is_forgotten_after_its_lifetime() {
        let cancels = Cancels::default();
        cancels.cancel(id(1));
        tokio::time::advance(CANCEL_LIFETIME).await;
        assert!(cancels.start(id(1)).is_ok());
        cancels.cancel(id(2));
        assert_eq!(cancels.lock().remembered.len(), 1, "the old one is gone");
    }
}
