//! Requests that jobs end, as the gateway publishes them on `jobs.cancel.<job>`.
//!
//! A request is stored, so that a node that takes the job later finds it. What runs here is ended as soon as
//! the request arrives; after a reconnect the stored requests are read, since some may have been missed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_nats::Subscriber;
use broker::Broker;
use futures_util::StreamExt;
use subjects::{JobId, Subject, streams};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::Streams;

/// The jobs that run on this node.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunningJobs(Arc<Mutex<HashMap<JobId, CancellationToken>>>);

/// The registration of a running job; removed on drop.
#[derive(Debug)]
pub(crate) struct Running {
    job: JobId,
    pub(crate) cancelled: CancellationToken,
    jobs: RunningJobs,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.jobs.lock().remove(&self.job);
    }
}

impl RunningJobs {
    /// Registers a job. `None` if it already runs here.
    pub(crate) fn start(&self, job: JobId) -> Option<Running> {
        let mut jobs = self.lock();
        if jobs.contains_key(&job) {
            return None;
        }
        let cancelled = CancellationToken::new();
        jobs.insert(job, cancelled.clone());
        Some(Running { job, cancelled, jobs: self.clone() })
    }

    pub(crate) fn ids(&self) -> Vec<JobId> {
        let mut ids: Vec<JobId> = self.lock().keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// Ends a job if it runs here.
    pub(crate) fn cancel(&self, job: JobId) {
        if let Some(cancelled) = self.lock().get(&job).filter(|cancelled| !cancelled.is_cancelled()) {
            info!(job.id = %job, "Job cancelled.");
            cancelled.cancel();
        }
    }

    /// Ends jobs as their requests arrive, until `stop`.
    pub(crate) async fn follow(
        self,
        mut requests: Subscriber,
        streams: Streams,
        broker: Arc<Broker>,
        stop: CancellationToken,
    ) {
        let mut connections = broker.connections.clone();
        connections.mark_unchanged();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                message = requests.next() => {
                    let Some(message) = message else { return };
                    if let Ok(Subject::JobCancel(job)) = message.subject.parse() {
                        self.cancel(job);
                    }
                }
                changed = connections.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    for job in self.ids() {
                        if read_cancel_request(&streams, job).await {
                            self.cancel(job);
                        }
                    }
                }
            }
        }
    }

    /// The map is never left half changed, so a poisoned lock is safe to use.
    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads whether there is a request that a job end. Goes on reading while NATS is away.
pub(crate) async fn read_cancel_request(streams: &Streams, job: JobId) -> bool {
    streams.last_on(streams::JOB_RUNS, &Subject::JobCancel(job)).await.is_some()
}

/// Reads once whether there is a request that a job end. A failed read says nothing.
pub(crate) async fn read_cancel_request_once(streams: &Streams, job: JobId) -> bool {
    let (jetstream, request) = (&streams.broker.jetstream, Subject::JobCancel(job));
    broker::last_on(jetstream, streams::JOB_RUNS, &request).await.is_ok_and(|found| found.is_some())
}
