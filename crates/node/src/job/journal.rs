//! The journal of a job that this node has claimed, and its one result.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_nats::HeaderMap;
use broker::{Chain, Expect};
use bytes::Bytes;
use chain::{Committed, Loss, Ownership, Tail};
use intake::{Releasable, Release};
use subjects::{
    JobId, NodeId, Pattern, Subject, Timestamp,
    job::{End, Engine, Entry, JobResult, JobUsage, LogExtent, Record, Repeat, VERSION},
    streams,
};
use tokio::{sync::Mutex, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::chain::JobChain;
use crate::Streams;

/// The journal of a job that this node owns.
#[derive(Debug)]
pub(crate) struct JobJournal {
    pub(super) streams: Streams,
    pub(super) job: JobId,
    pub(super) node: NodeId,
    pub(super) engine: Engine,
    pub(super) attempt: u32,
    /// Earlier attempts that failed.
    pub(super) failures: u32,
    pub(super) repeat: Repeat,
    /// Locked while writing, so that appends are sequential.
    pub(super) tail: Mutex<Tail<JobChain>>,
    pub(super) ownership: Ownership,
    /// Cancelled when another node has taken the job over.
    pub(super) lost: CancellationToken,
    pub(super) is_started: AtomicBool,
}

impl JobJournal {
    pub(super) fn engine(&self) -> Engine {
        self.engine
    }

    pub(crate) fn job(&self) -> JobId {
        self.job
    }

    /// Records that the process did not start, or has ended and had no effect.
    pub(super) fn take_back_start(&self) {
        self.is_started.store(false, Ordering::Relaxed);
    }

    /// Returns how many earlier attempts failed.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Records that the server confirmed the delivery with a request that was sent at `at`.
    pub(crate) fn confirm_since(&self, at: Instant) {
        self.ownership.confirm_since(at);
    }

    /// Waits until another node has taken the job over.
    pub(super) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// Records that the process is about to start. Returns when that is stored and this node still owns the
    /// job, so that the process may start.
    pub(super) async fn record_start(&self) -> Result<(), Loss> {
        // Before the write: if its outcome is unknown, the process counts as started.
        self.is_started.store(true, Ordering::Relaxed);
        self.append(Record::Started).await?;
        // A process that was suspended in between finds out here.
        while !self.ownership.is_fresh() {
            self.append(Record::Still).await?;
        }
        Ok(())
    }

    async fn append(&self, record: Record) -> Result<(), Loss> {
        let mut tail = self.tail.lock().await;
        let sent = Instant::now();
        let appended = tail.append(&self.streams, Bytes::from(Entry::new(record).encode())).await;
        match &appended {
            Ok(()) => self.ownership.confirm_since(sent),
            Err(Loss::Fenced) => self.lost.cancel(),
            Err(Loss::Publish(_)) => {}
        }
        appended
    }

    /// Checks whether another node has taken over, if that is possible. If so, the job is lost.
    pub(crate) async fn check_ownership(&self) {
        if self.ownership.is_fresh() {
            return;
        }
        // A concurrent write finds out by itself.
        let Ok(tail) = self.tail.try_lock() else { return };
        // A failed read proves nothing.
        if tail.check_overtaken(&self.streams).await.unwrap_or(false) {
            self.lost.cancel();
        }
    }

    /// Stores the result of the job, if this node still owns it. Waits for the stream as long as it takes.
    pub(super) async fn commit(&self, result: &JobResult) -> Result<Committed, Loss> {
        let still = || Bytes::from(Entry::new(Record::Still).encode());
        let body = Bytes::from(result.encode());
        let subject = Subject::JobResult(self.job, self.node.clone());
        let mut tail = self.tail.lock().await;
        let mut after = tail.close(&self.streams, still).await?;
        loop {
            let expect = Expect { over: Pattern::JobRun(self.job), sequence: after };
            let stored =
                self.streams.commit(streams::JOB_RUNS, &subject, HeaderMap::new, body.clone(), &expect).await;
            match stored.map_err(Loss::Publish)? {
                Committed::Ours(body) => return Ok(Committed::Ours(body)),
                Committed::Fenced => match tail.close_after_conflict(&self.streams, after).await {
                    Ok(sequence) => after = sequence,
                    Err(Loss::Fenced) => {
                        self.lost.cancel();
                        return Ok(Committed::Fenced);
                    }
                    Err(loss) => return Err(loss),
                },
            }
        }
    }

    /// Returns a result without usage, log and files.
    pub(super) fn result(&self, end: End) -> JobResult {
        JobResult {
            v: VERSION,
            job_id: self.job,
            node: Some(self.node.clone()),
            engine: Some(self.engine),
            attempt: self.attempt,
            end,
            started_at: None,
            ended_at: Timestamp::now(),
            usage: JobUsage::default(),
            log: LogExtent::default(),
            files: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Releases the job for another node. `why` says what kept this one from running it, if anything did;
    /// such an attempt counts.
    pub(super) async fn release(&self, why: Option<String>) -> Release {
        if self.is_started.load(Ordering::Relaxed) && self.repeat == Repeat::Never {
            return self.end_unrepeatable(why).await;
        }
        match self.append(Record::Released { why }).await {
            Ok(()) => Release::HandBack,
            Err(loss) => self.release_lost(&loss).await,
        }
    }

    /// Ends a job that was started here and must not be started again.
    async fn end_unrepeatable(&self, why: Option<String>) -> Release {
        let why = why.unwrap_or_else(|| "the node was stopped while the job ran".to_owned());
        match self.commit(&self.result(End::NodeLost { why: Some(why) })).await {
            Ok(Committed::Ours(_)) => Release::Acknowledge,
            Ok(Committed::Fenced) => self.release_lost(&Loss::Fenced).await,
            Err(loss) => self.release_lost(&loss).await,
        }
    }

    async fn release_lost(&self, loss: &Loss) -> Release {
        if let Loss::Publish(_) = loss {
            debug!(job.id = %self.job, error = %Chain(loss), "Job handed back without a journal entry.");
            return Release::HandBack;
        }
        match self.tail.lock().await.check_ended(&self.streams).await {
            Ok(true) => Release::Acknowledge,
            Ok(false) | Err(_) => Release::LeaveAlone,
        }
    }
}

/// What is dropped unsettled is released without a reason: the node stops.
impl Releasable for JobJournal {
    async fn release(&self) -> Release {
        Self::release(self, None).await
    }
}

/// The journal is shared by the work and by the delivery that it belongs to.
pub(crate) type SharedJournal = Arc<JobJournal>;
