//! Shared state for jobs: the connection to nodes, limits, and notifications of changes.

mod answers;
mod forget;
mod logs;
mod settings;
mod silent;

use std::{sync::Arc, time::Duration};

pub(crate) use answers::{StoredAnswer, Unread};
use broker::OnDemand;
pub use logs::unfinished_character;
use nkeys::KeyPair;
pub use settings::{LimitRange, SandboxSettings};
use silent::SilentJobs;
use store::Outbox;
use tokio::{select, sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;

/// How often a call that waits for a job reads its row, in case another gateway changed it.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Shared state for jobs: the connection to nodes, limits, and notifications of changes.
#[derive(Debug)]
pub struct Sandboxes {
    pub(crate) settings: SandboxSettings,
    pub(crate) outbox: Arc<Outbox>,
    /// `None`: NATS is not configured, so tools that need nodes are not offered.
    nats: Option<Arc<OnDemand>>,
    /// Signs handoffs.
    pub(crate) signing_key: Option<KeyPair>,
    /// Notified when this gateway changes the row of a job or of a workflow.
    pub(crate) changed: Notify,
    /// Jobs whose nodes are silent.
    pub(crate) silent: SilentJobs,
    /// Ends calls that wait.
    stop: CancellationToken,
}

impl Sandboxes {
    pub fn new(
        settings: SandboxSettings,
        outbox: Arc<Outbox>,
        nats: Option<Arc<OnDemand>>,
        stop: CancellationToken,
    ) -> Self {
        let (changed, silent) = (Notify::new(), SilentJobs::default());
        Self { settings, outbox, nats, signing_key: None, changed, silent, stop }
    }

    /// Signs the handoffs of workflows with a key.
    pub fn signing_with(self, key: Option<KeyPair>) -> Self {
        Self { signing_key: key, ..self }
    }

    /// Returns whether there is a way to nodes, workers and runners.
    pub fn has_nats(&self) -> bool {
        self.nats.is_some()
    }

    /// Wakes the calls that wait for what a workflow began, since the workflow was changed. Without it they
    /// notice it a little later.
    pub fn wake_waiting(&self) {
        self.changed.notify_waiters();
    }

    /// Returns a future that resolves when a job may have changed since now; to false if the gateway stops.
    pub(crate) fn change(&self) -> impl Future<Output = bool> + Send {
        // Registered before the caller reads the job, so that no later change is missed.
        let changed = self.changed.notified();
        async move {
            select! {
                () = self.stop.cancelled() => false,
                () = changed => true,
                () = sleep(LOOK_INTERVAL) => true,
            }
        }
    }
}
