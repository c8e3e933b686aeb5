//! What nobody wants any more: `pma.cancel.<handoff_id>`, heard by every instance and remembered for a while,
//! so that a handoff that is still queued is stopped too.

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

/// A cancel is remembered this long, and only so many of them.
const REMEMBER: Duration = Duration::from_secs(24 * 3_600);
const REMEMBER_AT_MOST: usize = 100_000;

/// The handoffs that run here and the cancels that were heard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cancels(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    running: HashMap<HandoffId, CancellationToken>,
    /// Who waits for a running handoff to end. Made only when someone does.
    awaited: HashMap<HandoffId, CancellationToken>,
    /// In the order in which they were heard.
    heard: VecDeque<(Instant, HandoffId)>,
    remembered: HashMap<HandoffId, Instant>,
}

impl State {
    /// Tells when a handoff that runs here has ended; `None` when it does not run.
    fn end_of(&mut self, id: HandoffId) -> Option<CancellationToken> {
        let runs = self.running.contains_key(&id);
        runs.then(|| self.awaited.entry(id).or_default().clone())
    }
}

/// A handoff's entry for as long as it runs here.
#[derive(Debug)]
pub(crate) struct Running {
    id: HandoffId,
    token: CancellationToken,
    cancels: Cancels,
}

impl Running {
    /// Ends when the handoff is cancelled.
    pub(crate) async fn cancelled(&self) {
        self.token.cancelled().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.cancels.lock();
        state.running.remove(&self.id);
        if let Some(awaited) = state.awaited.remove(&self.id) {
            awaited.cancel();
        }
    }
}

/// Why a handoff must not run here now.
#[derive(Clone, Debug)]
pub(crate) enum MayNotRun {
    Cancelled,
    /// A copy of it runs here already; the token tells when that has ended.
    RunsAlready(CancellationToken),
}

impl Cancels {
    pub(crate) fn start(&self, id: HandoffId) -> Result<Running, MayNotRun> {
        let mut state = self.lock();
        if state.remembered.get(&id).is_some_and(|heard| heard.elapsed() < REMEMBER) {
            return Err(MayNotRun::Cancelled);
        }
        if let Some(ended) = state.end_of(id) {
            return Err(MayNotRun::RunsAlready(ended));
        }
        let token = CancellationToken::new();
        state.running.insert(id, token.clone());
        Ok(Running { id, token, cancels: self.clone() })
    }

    /// Waits until the handoff does not run here, if it does.
    pub(crate) async fn ended(&self, id: HandoffId) {
        let ended = self.lock().end_of(id);
        if let Some(ended) = ended {
            ended.cancelled().await;
        }
    }

    fn cancel(&self, id: HandoffId) -> CancelState {
        let mut state = self.lock();
        let now = Instant::now();
        state.heard.push_back((now, id));
        state.remembered.insert(id, now);
        while state.heard.len() > REMEMBER_AT_MOST
            || state.heard.front().is_some_and(|(heard, _)| now.duration_since(*heard) >= REMEMBER)
        {
            let Some((heard, old)) = state.heard.pop_front() else { break };
            // It may have been cancelled again since.
            if state.remembered.get(&old) == Some(&heard) {
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

    /// No entry is ever left half written, so a panic elsewhere does not matter.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hears cancels from `cancels` until `stop`.
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
                let said = CancelReply { instance: instance.clone(), state };
                let body = serde_json::to_vec(&said).unwrap_or_default();
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
    async fn a_running_handoff_is_told_and_a_queued_one_is_remembered() {
        let cancels = Cancels::default();
        let running = cancels.start(id(1)).unwrap();
        assert_eq!(cancels.cancel(id(1)), CancelState::Stopping);
        running.cancelled().await;
        assert_eq!(cancels.cancel(id(2)), CancelState::Remembered);
        assert!(matches!(cancels.start(id(2)), Err(MayNotRun::Cancelled)));
    }

    #[tokio::test]
    async fn a_handoff_runs_once_at_a_time() {
        let cancels = Cancels::default();
        let running = cancels.start(id(1)).unwrap();
        let Err(MayNotRun::RunsAlready(ended)) = cancels.start(id(1)) else { panic!("it ran twice") };
        drop(running);
        ended.cancelled().await;
        cancels.ended(id(1)).await;
        assert!(cancels.start(id(1)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cancel_is_forgotten_after_its_time() {
        let cancels = Cancels::default();
        cancels.cancel(id(1));
        tokio::time::advance(REMEMBER).await;
        assert!(cancels.start(id(1)).is_ok());
        cancels.cancel(id(2));
        assert_eq!(cancels.lock().remembered.len(), 1, "the old one is gone");
    }
}
