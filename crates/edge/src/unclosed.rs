//! Audits whose last line could not be written when their jobs ended, for example because the disk was full.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use broker::{Chain, retry::RetryDelays};
use tokio::{select, sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use crate::Session;

const MIN_PAUSE: Duration = Duration::from_millis(500);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Sessions that have ended and whose audit is open. They are kept, so that nothing else uses their files.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unclosed(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sessions: Mutex<Vec<Arc<Session>>>,
    added: Notify,
}

impl Unclosed {
    /// Closes the audit of a session, or keeps the session for the next try.
    pub(crate) fn close(&self, session: &Arc<Session>) {
        if let Err(error) = session.close() {
            error!(
                lease.id = session.lease_id(),
                error = %Chain(&error),
                "Audit of a lease not closed; retrying."
            );
            self.lock().push(session.clone());
            self.0.added.notify_one();
        }
    }

    /// Tries once more to close what is open. Returns how many audits still are.
    pub(crate) fn retry(&self) -> usize {
        let mut sessions = self.lock();
        sessions.retain(|session| match session.close() {
            Ok(()) => {
                info!(lease.id = session.lease_id(), "Audit of a lease closed by a retry.");
                false
            }
            Err(error) => {
                debug!(
                    lease.id = session.lease_id(),
                    error = %Chain(&error),
                    "Audit of a lease still not closed."
                );
                true
            }
        });
        sessions.len()
    }

    /// Closes what is added, as soon as it can be closed, until `stop`.
    pub(crate) async fn keep_closing(&self, stop: CancellationToken) {
        let mut pauses = RetryDelays::forever(MIN_PAUSE, MAX_PAUSE);
        loop {
            if self.retry() == 0 {
                pauses.reset();
                select! {
                    biased;
                    () = stop.cancelled() => return,
                    // Cancel-safe: what was added is in the list.
                    () = self.0.added.notified() => {}
                }
            }
            select! {
                biased;
                () = stop.cancelled() => return,
                () = sleep(pauses.next_delay().unwrap_or(MAX_PAUSE)) => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
