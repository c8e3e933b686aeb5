//! The life of one job: claim, fetch, start, log, collect, store, result, acknowledge. The only place that
//! knows this order.

mod chain;
mod claim;
mod execute;
mod files;
mod journal;
mod logs;
mod outputs;

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use ::chain::{Committed, Loss};
use broker::{AckError, Chain, retry::delay};
use claim::{Claim, Claimant, Unrunnable, claim};
use crash::reach;
use execute::Outcome;
use intake::{Release, Settlement};
use journal::{JobJournal, SharedJournal};
use mcp::Client;
use protocol::Holder;
use sandbox::Engine as SandboxEngine;
use serde::Deserialize;
use subjects::{
    InstanceId, JobId, NodeId,
    job::{End, Engine, Job, JobResult, MAX_ATTEMPTS, MAX_WAIT, Repeat, VERSION},
};
use time::OffsetDateTime;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, error, info, info_span, warn};

use crate::{
    Breaker, Streams,
    cancels::{RunningJobs, read_cancel_request, read_cancel_request_once},
    crash_points::Point,
    health::Health,
    metrics::Metrics,
    queue::{OtherNodes, Queue},
    tools::JobTools,
};

/// After how long a job is delivered again that this node could not run for the first time.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// After how long a job is delivered again that needs a newer build, or an engine that is not offered.
const UNREADY_DELAY: Duration = Duration::from_secs(30);

/// The jobs of the node as a workload.
#[derive(Debug)]
pub(crate) struct Jobs;

impl intake::Workload for Jobs {
    type Kind = Queue;
    type Journal = JobJournal;
    type Health = Health;
    type Metrics = Metrics;
}

pub(crate) type Delivery = intake::Delivery<Jobs>;

/// Runs jobs. Shared by all of them.
#[derive(Debug)]
pub(crate) struct JobRunner {
    pub(crate) streams: Streams,
    pub(crate) node: NodeId,
    pub(crate) instance: InstanceId,
    pub(crate) engines: BTreeMap<Engine, Arc<SandboxEngine>>,
    /// The images that this node may run.
    pub(crate) images: Vec<String>,
    pub(crate) tools: Arc<JobTools>,
    pub(crate) gateway: Client,
    /// How long a job waits for a gateway that is away.
    pub(crate) patience: Duration,
    pub(crate) running: RunningJobs,
    pub(crate) drain_by: watch::Receiver<Option<OffsetDateTime>>,
    pub(crate) others: OtherNodes,
    /// Stops pulling while sandboxes fail on this machine.
    pub(crate) machine: Breaker,
    /// Stops pulling while the gateway refuses this node's token.
    pub(crate) token: Breaker,
    pub(crate) metrics: Arc<Metrics>,
}

/// Counts a job in progress until it is dropped.
struct InProgress(Arc<Metrics>);

impl InProgress {
    fn new(metrics: &Arc<Metrics>) -> Self {
        metrics.running.inc();
        Self(Arc::clone(metrics))
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.running.dec();
    }
}

/// Runs one delivery to its settlement.
pub(crate) fn run(runner: Arc<JobRunner>, delivery: Delivery) -> impl Future<Output = ()> + Send {
    let span = info_span!("job", job.id = tracing::field::Empty, queue = %delivery.kind);
    async move {
        let _in_progress = InProgress::new(&runner.metrics);
        let settlement = tokio::select! {
            biased;
            settlement = runner.decide(&delivery) => settlement,
            // Polled in the same task as the work, so that heartbeats end with it.
            never = runner.keep_alive(&delivery) => match never {},
        };
        if let Err(error) = delivery.settle(&runner.streams.broker.client, settlement).await {
            warn!(
                error = %Chain(&error),
                "Acknowledgement not confirmed; the job is settled at its next delivery."
            );
        }
        reach(Point::Acknowledged).await;
    }
    .instrument(span)
}

impl JobRunner {
    /// Holds the delivery while its job runs.
    async fn keep_alive(&self, delivery: &Delivery) -> Infallible {
        let interval = delivery.heartbeat_interval();
        let mut pause = interval;
        loop {
            sleep(pause).await;
            let sent = Instant::now();
            let extended = delivery.extend(&self.streams.broker.client).await;
            // One that was lost is soon sent again: the server waits for it.
            let is_lost = extended.as_ref().is_err_and(|error| !matches!(error, AckError::Stale));
            pause = if is_lost { interval / 4 } else { interval };
            let Some(journal) = delivery.journal() else { continue };
            match extended {
                Ok(()) => journal.confirm_since(sent),
                Err(error) => debug!(error = %Chain(&error), "Heartbeat not confirmed."),
            }
            journal.check_ownership().await;
            // A request that this process missed.
            if read_cancel_request_once(&self.streams, journal.job()).await {
                self.running.cancel(journal.job());
            }
        }
    }

    async fn decide(&self, delivery: &Delivery) -> Settlement {
        reach(Point::Delivered).await;
        let job = match read(delivery.body()) {
            Ok(job) => job,
            Err(unreadable) => return unreadable.settlement(),
        };
        tracing::Span::current().record("job.id", tracing::field::display(job.job_id));
        // A redelivery to this node: it is settled with the one that runs.
        let Some(running) = self.running.start(job.job_id) else {
            return Settlement::HandBack(delivery.heartbeat_interval());
        };
        let claimant = Claimant {
            node: &self.node,
            instance: &self.instance,
            engine: job.spec.engine,
            holder: Holder { message: delivery.sequence, delivery: delivery.deliveries },
            ack_wait: delivery.ack_wait(),
            has_others: self.others.share(&delivery.kind),
        };
        let claimed = match claim(&self.streams, &job, claimant).await {
            Ok(claimed) => claimed,
            Err(loss) => {
                warn!(error = %Chain(&loss), "Job not claimed; handing it back.");
                return Settlement::HandBack(RETRY_DELAY);
            }
        };
        match claimed {
            Claim::Ended => Settlement::Acknowledge,
            Claim::HeldByCopy => Settlement::HandBack(delivery.heartbeat_interval()),
            Claim::Superseded => Settlement::LeaveAlone,
            Claim::LeftToOthers => {
                debug!("Job left to other nodes: this one could not run it.");
                // Never in step with the pull requests of the others.
                Settlement::HandBack(delay(1, RETRY_DELAY, RETRY_DELAY))
            }
            Claim::Unrunnable(journal, why) => {
                delivery.set_journal(&journal);
                reach(Point::Claimed).await;
                self.finish(&journal, journal.result(why.into())).await
            }
            Claim::Ours(journal) => {
                delivery.set_journal(&journal);
                reach(Point::Claimed).await;
                info!(attempt = journal.attempt(), "Job claimed.");
                // What earlier attempts recorded may have expired.
                if OffsetDateTime::now_utc() - delivery.published_at > MAX_WAIT {
                    let why = "the job waited for a node for more than six days".to_owned();
                    return self.finish(&journal, journal.result(End::EngineFailed { why })).await;
                }
                self.run_claimed(&job, &journal, delivery, &running.cancelled).await
            }
        }
    }

    async fn run_claimed(
        &self,
        job: &Job,
        journal: &SharedJournal,
        delivery: &Delivery,
        cancelled: &CancellationToken,
    ) -> Settlement {
        // A request from before the claim; later ones arrive on the subscription.
        if read_cancel_request(&self.streams, job.job_id).await {
            return self.finish(journal, journal.result(End::Cancelled)).await;
        }
        let outcome = tokio::select! {
            biased;
            () = journal.lost() => Outcome::Lost,
            () = until_others_may_start(delivery), if may_act_twice(job) => Outcome::CutOff,
            outcome = self.execute(job, journal, cancelled) => outcome,
        };
        match outcome {
            Outcome::Ended(result) => self.finish(journal, *result).await,
            Outcome::CannotRun(why) => {
                let delay = retry_delay(journal.failures() + 1);
                warn!(why, ?delay, "Job not run; handing it back.");
                settlement(journal.release(Some(why)).await, delay)
            }
            Outcome::NotOffered => {
                warn!(engine = %job.spec.engine, "Engine of the job is not offered here; the job waits.");
                settlement(journal.release(None).await, UNREADY_DELAY)
            }
            Outcome::Drained => {
                info!("Job handed back: the node is drained.");
                settlement(journal.release(None).await, RETRY_DELAY)
            }
            Outcome::CutOff => {
                warn!("Job stopped: NATS does not answer, and another node may start the job from now on.");
                let release = journal.release(None).await;
                if release != Release::HandBack {
                    self.note_fenced();
                }
                settlement(release, RETRY_DELAY)
            }
            Outcome::Lost => self.leave_fenced(),
        }
    }

    /// Stores the result.
    async fn finish(&self, journal: &JobJournal, result: JobResult) -> Settlement {
        match journal.commit(&result).await {
            Ok(Committed::Ours(_)) => {
                reach(Point::ResultStored).await;
                self.metrics.count_ended(&result.end);
                info!(end = %result.end.kind(), attempt = result.attempt, "Job ended.");
                Settlement::Acknowledge
            }
            Ok(Committed::Fenced) | Err(Loss::Fenced) => self.leave_fenced(),
            Err(loss) => {
                warn!(error = %Chain(&loss), "Result not stored; handing the job back.");
                Settlement::HandBack(RETRY_DELAY)
            }
        }
    }

    fn leave_fenced(&self) -> Settlement {
        self.note_fenced();
        Settlement::LeaveAlone
    }

    fn note_fenced(&self) {
        self.metrics.fenced.inc();
        warn!("Job fenced: another node has claimed or ended it.");
    }
}

/// Waits until the server may soon give the job to another node, since it got no heartbeat. A sixth
/// of the time is left to end what runs.
async fn until_others_may_start(delivery: &Delivery) {
    loop {
        match delivery.time_left().saturating_sub(delivery.ack_wait() / 6) {
            Duration::ZERO => return,
            left => sleep(left).await,
        }
    }
}

/// Returns whether a job could have an effect on two nodes at once. One that reaches nothing has none but its
/// files, and one that must not be repeated is not started by another node.
fn may_act_twice(job: &Job) -> bool {
    let reaches_out = !job.spec.network.is_empty() || !job.spec.tools.is_empty();
    reaches_out && job.spec.repeat == Repeat::Safe
}

/// Returns after how long a job is delivered again that could not be run so often: the longer, the more
/// often. After the last time the next node only ends it.
fn retry_delay(failures: u32) -> Duration {
    if failures >= MAX_ATTEMPTS { RETRY_DELAY } else { delay(failures, RETRY_DELAY, UNREADY_DELAY) }
}

fn settlement(release: Release, delay: Duration) -> Settlement {
    match release {
        Release::HandBack => Settlement::HandBack(delay),
        Release::Acknowledge => Settlement::Acknowledge,
        Release::LeaveAlone => Settlement::LeaveAlone,
    }
}

impl From<Unrunnable> for End {
    fn from(why: Unrunnable) -> Self {
        match why {
            Unrunnable::MayHaveRun { node } => Self::NodeLost {
                why: Some(format!("node {node} was lost while the job ran, and the job must not run twice")),
            },
            Unrunnable::TooManyAttempts { why: Some(why) } => Self::EngineFailed { why },
            Unrunnable::TooManyAttempts { why: None } => {
                Self::NodeLost { why: Some("every node that ran the job was lost".to_owned()) }
            }
        }
    }
}

/// Why a queue message is not a job.
#[derive(Debug)]
enum Unreadable {
    Newer(u32),
    Malformed(String),
}

impl Unreadable {
    fn settlement(self) -> Settlement {
        match self {
            Self::Newer(version) => {
                warn!(version, "Job of a newer build; leaving it to a newer node.");
                Settlement::HandBack(UNREADY_DELAY)
            }
            Self::Malformed(why) => {
                error!(why, "Message is not a job; removing it.");
                Settlement::Acknowledge
            }
        }
    }
}

fn read(body: &[u8]) -> Result<Job, Unreadable> {
    /// The only fields that may be read before the version is known.
    #[derive(Deserialize)]
    struct Versioned {
        v: u32,
    }
    let malformed = |error: &dyn std::fmt::Display| Unreadable::Malformed(error.to_string());
    let Versioned { v } = serde_json::from_slice(body).map_err(|error| malformed(&error))?;
    if v > VERSION {
        return Err(Unreadable::Newer(v));
    }
    Job::decode(body).map_err(|error| malformed(&error.describe()))
}

/// Returns the name of a job's sandbox on this machine.
fn sandbox_name(job: JobId, attempt: u32) -> String {
    format!("{job}-{attempt}")
}
