//! Runs one handoff from its delivery to its settlement.
//!
//! This is the only module that knows the order of admission, claim, work, answer and acknowledgement.

mod leases;
mod owned;
mod spans;
mod workload;

use std::{convert::Infallible, sync::Arc, time::Duration};

use broker::Chain;
use crash::reach;
use intake::{Releasable, Settlement};
use protocol::Holder;
use subjects::{ErrorCode, HandoffId, InstanceId, Refusal, Stop, journal::Origin};
use time::OffsetDateTime;
use tokio::time::Instant;
use tracing::{Instrument, Span, debug, debug_span, warn};

use owned::{OwnedHandoff, Stopped};
pub(crate) use workload::{Delivery, Handoffs};

use crate::{
    admission::{Admitted, IncomingMessage, Policy, Refused},
    agent::{AgentResources, LedgerSummary, LivePublisher},
    cancels::{Cancels, NotStarted, Running},
    crash_points::Point,
    dead_letters::{self, DeadLetterOutcome, DeadLetterWriter, FailedHandoff},
    journal::{self, Claim, Claimant, Loss},
    reply,
    storage::Storage,
    telemetry::{KindMetrics, Metrics, Outcome},
};

const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(60);
/// A handoff that reached the queue within this time of being issued has not been published before; see
/// `may_be_a_copy`.
const MAX_PUBLISH_DELAY: time::Duration = time::Duration::seconds(2);
/// Redelivery delay for a handoff whose journal only a newer build can read.
const NEWER_BUILD_DELAY: Duration = Duration::from_secs(5);

/// Runs handoffs; holds what all of them share.
#[derive(Debug)]
pub(crate) struct HandoffRunner {
    pub(crate) storage: Storage,
    pub(crate) instance: InstanceId,
    pub(crate) policy: Arc<Policy>,
    pub(crate) resources: Arc<AgentResources>,
    pub(crate) cancels: Cancels,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) max_attempts: u32,
    /// Time limit for the work on one handoff.
    pub(crate) max_turn: Duration,
}

/// How a delivery is settled, and which outcome is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    settlement: Settlement,
    outcome: Outcome,
}

impl Verdict {
    const fn done(outcome: Outcome) -> Self {
        Self { settlement: Settlement::Acknowledge, outcome }
    }

    /// Hands the message back for redelivery after `delay`.
    const fn hand_back(delay: Duration) -> Self {
        Self { settlement: Settlement::HandBack(delay), outcome: Outcome::Retried }
    }

    /// Leaves the message alone: a later delivery of it holds the handoff.
    const fn superseded() -> Self {
        Self { settlement: Settlement::LeaveAlone, outcome: Outcome::Fenced }
    }
}

/// Failures that waiting does not resolve. The handoff is redelivered, which counts as an attempt.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Reply(#[from] reply::Error),
    #[error(transparent)]
    DeadLetter(#[from] dead_letters::Error),
    #[error(transparent)]
    Journal(#[from] Loss),
}

/// Runs one delivery to its settlement.
///
/// Not an `async fn`: its future would hold the delivery twice, as argument and as captured variable.
pub(crate) fn run(runner: Arc<HandoffRunner>, delivery: Delivery) -> impl Future<Output = ()> + Send {
    let span = debug_span!(
        "handoff",
        handoff.kind = %delivery.kind,
        sequence = delivery.sequence,
        delivery = delivery.deliveries
    );
    let traced = spans::process(&delivery);
    let outer = traced.clone();
    let running = async move {
        let started = Instant::now();
        let metrics = runner.metrics.of_kind(delivery.kind);
        metrics.in_flight.inc();
        let _in_flight = InFlightGuard(metrics);
        let verdict = tokio::select! {
            biased;
            verdict = runner.decide(&delivery) => verdict,
            // Polled in the same task as the work, so that heartbeats end with it.
            never = runner.keep_alive(&delivery, started) => match never {},
        };
        reach(Point::BeforeAck).await;
        let settling = spans::settle(&delivery, verdict.settlement);
        let settled = delivery
            .settle(&runner.storage.streams.broker.client, verdict.settlement)
            .instrument(settling.clone());
        // Boxed, as much below: while the agent works, a handoff should hold little.
        if let Err(error) = Box::pin(settled).await {
            metrics.ack_failures.inc();
            telemetry::mark_failed(&settling, "not_confirmed");
            warn!(
                error = %Chain(&error),
                "Acknowledgement not confirmed; the handoff is settled at its next delivery."
            );
        }
        drop(settling);
        reach(Point::Acknowledged).await;
        traced.record("cynode.outcome", verdict.outcome.as_str());
        metrics.count_settled(verdict.outcome);
        metrics.seconds.observe(started.elapsed().as_secs_f64());
    };
    // The inner span is the one that outgoing messages and calls carry as their parent.
    running.instrument(outer).instrument(span)
}

/// Decrements the in-flight gauge on drop, also when the task is aborted.
struct InFlightGuard<'m>(&'m KindMetrics);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        self.0.in_flight.dec();
    }
}

impl HandoffRunner {
    /// Returns how to settle the delivery. An error hands it back, with a delay that grows with each
    /// delivery.
    async fn decide(&self, delivery: &Delivery) -> Verdict {
        let decided = self.try_decide(delivery).await;
        decided.unwrap_or_else(|error| {
            let attempt = u32::try_from(delivery.deliveries).unwrap_or(u32::MAX);
            let delay = broker::retry::delay(attempt, FIRST_RETRY_DELAY, MAX_RETRY_DELAY);
            warn!(attempt, error = %Chain(&error), "Handoff not finished; handing it back.");
            telemetry::mark_failed(&Span::current(), "handed_back");
            Verdict::hand_back(delay)
        })
    }

    /// Admits the message and runs its handoff. Rare paths are boxed to keep the future of a running handoff
    /// small.
    async fn try_decide(&self, delivery: &Delivery) -> Result<Verdict, Error> {
        // Before the body is decoded, since decoding may be what killed earlier workers.
        if delivery.deliveries > u64::from(self.max_attempts)
            && let Some(verdict) = Box::pin(self.begin_probation(delivery)).await?
        {
            return Ok(verdict);
        }
        let admitted = self.policy.admit(&incoming(delivery), OffsetDateTime::now_utc());
        reach(Point::Admitted).await;
        match admitted {
            Ok(admitted) => {
                spans::record_handoff(&admitted);
                self.run_admitted(delivery, &admitted).await
            }
            Err(refused) => Box::pin(self.refuse(delivery, &refused)).await,
        }
    }

    /// Starts counting the deliveries of a message that was delivered more than `max_attempts` times.
    ///
    /// The count is kept in a separate journal, from before the body is decoded until the handoff is claimed.
    /// The server's delivery count does not suffice: it includes deliveries that ended because an instance
    /// was stopped or waited for a stream.
    async fn begin_probation(&self, delivery: &Delivery) -> Result<Option<Verdict>, Error> {
        let queue = self.storage.streams.broker.layout.handoffs(delivery.kind.role());
        let published = delivery.published_at.unix_timestamp_nanos();
        let id = HandoffId::for_queue_message(queue, delivery.sequence, published);
        let claimant = self.claimant(delivery, id);
        match Box::pin(journal::claim(&self.storage, claimant, true)).await? {
            Claim::Ours(journal) => {
                delivery.set_probation(Some(journal));
                Ok(None)
            }
            Claim::Superseded => Ok(Some(Verdict::superseded())),
            Claim::Poisoned { .. } => {
                let (tried, max) = (delivery.deliveries - 1, self.max_attempts);
                let why = format!(
                    "delivered {tried} times, and the last {max} instances died before they claimed it"
                );
                self.dead_letter_poisoned(delivery, why).await.map(Some)
            }
            // A probation journal has no answer, no copy and no earlier records, so none of these occurs.
            Claim::Answered
            | Claim::HeldByCopy
            | Claim::NewerBuild { .. }
            | Claim::Unreadable { .. }
            | Claim::ScopeMismatch
            | Claim::ReplayStillRunning { .. }
            | Claim::ReplayScopeMismatch { .. } => Ok(None),
        }
    }

    /// Ends the probation: this delivery does not count as a failed one.
    async fn end_probation(&self, delivery: &Delivery) {
        if let Some(journal) = delivery.probation() {
            Box::pin(journal.release()).await;
            delivery.set_probation(None);
        }
    }

    fn claimant<'a>(&'a self, delivery: &Delivery, id: HandoffId) -> Claimant<'a> {
        Claimant {
            kind: delivery.kind,
            id,
            instance: &self.instance,
            holder: Holder { message: delivery.sequence, delivery: delivery.deliveries },
            origin: None,
            work: None,
            replays: &[],
            ack_wait: delivery.ack_wait(),
            max_attempts: self.max_attempts,
        }
    }

    /// Dead-letters and answers a message that was not admitted.
    async fn refuse(&self, delivery: &Delivery, refused: &Refused) -> Result<Verdict, Error> {
        let Refused { refusal, identity } = refused;
        let written = self
            .dead_letter_writer()
            .dead_letter(&failed_handoff(delivery), refusal, identity, Stop::Refused)
            .await?;
        if written == DeadLetterOutcome::Written {
            self.metrics.count_refused(delivery.kind, refusal.code);
            telemetry::mark_failed(&Span::current(), refusal.code.as_str());
        }
        self.after_dead_letter(delivery, written, Outcome::Refused).await
    }

    async fn dead_letter_poisoned(&self, delivery: &Delivery, why: String) -> Result<Verdict, Error> {
        let id = self.policy.identity(&incoming(delivery)).answer_to;
        if let Some(id) = id {
            // It may be slow rather than poisoned: it is not dead-lettered while it still runs here.
            self.cancels.wait_until_ended(id).await;
        }
        self.dead_letter(delivery, &Refusal::new(ErrorCode::Poisoned, why)).await
    }

    async fn dead_letter(&self, delivery: &Delivery, why: &Refusal) -> Result<Verdict, Error> {
        let identity = self.policy.identity(&incoming(delivery));
        let written = self
            .dead_letter_writer()
            .dead_letter(&failed_handoff(delivery), why, &identity, Stop::GivenUp)
            .await?;
        self.after_dead_letter(delivery, written, Outcome::GivenUp).await
    }

    async fn after_dead_letter(
        &self,
        delivery: &Delivery,
        written: DeadLetterOutcome,
        outcome: Outcome,
    ) -> Result<Verdict, Error> {
        self.end_probation(delivery).await;
        Ok(match written {
            DeadLetterOutcome::Written => Verdict::done(outcome),
            DeadLetterOutcome::AlreadyAnswered => Verdict::done(Outcome::AlreadyAnswered),
            // A copy of a running handoff says nothing about that handoff, so it waits.
            DeadLetterOutcome::HeldByCopy => Verdict::hand_back(delivery.heartbeat_interval()),
            DeadLetterOutcome::Superseded => Verdict::superseded(),
        })
    }

    /// Runs an admitted handoff, after any copy of it that runs here has ended.
    async fn run_admitted(&self, delivery: &Delivery, admitted: &Admitted) -> Result<Verdict, Error> {
        let mut read_first = may_be_a_copy(delivery, admitted);
        loop {
            match self.cancels.start(admitted.handoff.id) {
                Ok(running) => {
                    return self.claim_and_run(delivery, admitted, Some(running), read_first).await;
                }
                Err(NotStarted::Cancelled) => {
                    return Box::pin(self.claim_and_run(delivery, admitted, None, read_first)).await;
                }
                // A redelivery to this instance, or a copy. It is held until the running one ends, and then
                // finds its answer.
                Err(NotStarted::AlreadyRunning(ended)) => {
                    self.end_probation(delivery).await;
                    ended.cancelled().await;
                }
            }
            read_first = true;
        }
    }

    /// Claims the handoff and runs it. `running` is `None` if it was cancelled before it started.
    async fn claim_and_run(
        &self,
        delivery: &Delivery,
        admitted: &Admitted,
        running: Option<Running>,
        read_first: bool,
    ) -> Result<Verdict, Error> {
        let handoff = &admitted.handoff;
        let origin = Origin::new(&handoff.scope, admitted.lease.is_some());
        let claimant = Claimant {
            origin: Some(&origin),
            work: Some(&handoff.work),
            replays: &handoff.replays,
            ..self.claimant(delivery, handoff.id)
        };
        let claim = Box::pin(journal::claim(&self.storage, claimant, read_first)).await?;
        if let Claim::Ours(journal) = &claim {
            delivery.set_journal(journal);
        }
        self.end_probation(delivery).await;
        let journal = match claim {
            Claim::Ours(journal) => journal,
            Claim::Answered => {
                Box::pin(self.resend_copy(admitted)).await;
                Box::pin(self.give_back_lease_of_answered(admitted)).await;
                return Ok(Verdict::done(Outcome::AlreadyAnswered));
            }
            Claim::HeldByCopy => {
                debug!(handoff.id = %handoff.id, "Copy of a running handoff; waiting for it.");
                return Ok(Verdict::hand_back(delivery.heartbeat_interval()));
            }
            Claim::Superseded => {
                debug!(handoff.id = %handoff.id, "Delivery superseded by a later one.");
                return Ok(Verdict::superseded());
            }
            Claim::NewerBuild { version } => {
                warn!(
                    handoff.id = %handoff.id,
                    version,
                    "Journal was written by a newer build; handing the handoff back."
                );
                return Ok(Verdict::hand_back(NEWER_BUILD_DELAY));
            }
            Claim::ScopeMismatch => {
                // Not answered: the answer under this id belongs to the other handoff.
                let why = "its id belongs to a handoff of another user or project, or only one of the two \
                           has a lease; publish it under a new id";
                let why = Refusal::new(ErrorCode::ScopeMismatch, why);
                Box::pin(self.dead_letter_writer().write_dead_letter(&failed_handoff(delivery), &why))
                    .await?;
                self.metrics.count_refused(delivery.kind, why.code);
                return Ok(Verdict::done(Outcome::Refused));
            }
            Claim::ReplayStillRunning { of } => {
                let why = format!("it replays handoff {of}, which is still being worked on");
                return Box::pin(self.dead_letter(delivery, &Refusal::invalid(why))).await;
            }
            Claim::ReplayScopeMismatch { of } => {
                let why = format!(
                    "it replays handoff {of}, which belongs to another user or project; publish a new handoff"
                );
                return Box::pin(self.dead_letter(delivery, &Refusal::new(ErrorCode::ScopeMismatch, why)))
                    .await;
            }
            Claim::Poisoned { attempts } => {
                drop(running);
                let why = format!(
                    "claimed {attempts} times; the last {} attempts made no progress",
                    self.max_attempts
                );
                return Box::pin(self.dead_letter_poisoned(delivery, why)).await;
            }
            Claim::Unreadable { why } => {
                let why = format!("the journal cannot be read, so the handoff is not run again: {why}");
                return Box::pin(self.dead_letter(delivery, &Refusal::new(ErrorCode::Internal, why))).await;
            }
        };
        spans::record_attempt(journal.attempt());
        let owned = OwnedHandoff { runner: self, delivery, admitted, journal };
        match running {
            Some(running) => owned.work(running).await,
            None => {
                let summary = LedgerSummary::default().with_earlier(&owned.journal.take_rest());
                Box::pin(owned.end(Stopped::Cancelled, summary)).await
            }
        }
    }

    /// Sends the requested copy of the answer again, since the first may not have been sent.
    async fn resend_copy(&self, admitted: &Admitted) {
        let (kind, id) = (admitted.handoff.kind(), admitted.handoff.id);
        if let Some(reply_to) = &admitted.handoff.reply_to {
            reply::resend_copy(&self.storage, kind, id, reply_to).await;
        }
    }

    fn dead_letter_writer(&self) -> DeadLetterWriter<'_> {
        DeadLetterWriter { storage: &self.storage, instance: &self.instance, metrics: &self.metrics }
    }

    /// Sends heartbeats while it is polled, so that the server does not redeliver the message. Never returns.
    async fn keep_alive(&self, delivery: &Delivery, started: Instant) -> Infallible {
        let every = delivery.heartbeat_interval();
        let mut due = started + every;
        loop {
            tokio::time::sleep_until(due).await;
            due = Instant::now() + every;
            // Boxed like all rare paths.
            Box::pin(self.send_heartbeat(delivery, started)).await;
        }
    }

    /// Sends one heartbeat and a progress event. Checks ownership if the heartbeat is not confirmed.
    async fn send_heartbeat(&self, delivery: &Delivery, started: Instant) {
        let sent = Instant::now();
        let extended = delivery.extend(&self.storage.streams.broker.client).await;
        if let Err(error) = &extended {
            self.metrics.of_kind(delivery.kind).heartbeat_failures.inc();
            debug!(sequence = delivery.sequence, error = %Chain(error), "Heartbeat not confirmed.");
        }
        let Some(journal) = delivery.journal() else { return };
        match extended {
            Ok(()) => journal.confirm_since(sent),
            // The server has not confirmed a heartbeat for too long: another instance may own the handoff.
            Err(_) => journal.check_ownership().await,
        }
        let live = LivePublisher {
            client: &self.storage.streams.broker.client,
            instance: &self.instance,
            kind: delivery.kind,
            journal,
            since: started,
            streams: false,
        };
        live.working();
    }
}

/// Returns whether the journal must be read before the handoff runs.
///
/// A first delivery that was published under its own message id right after it was issued cannot be a copy:
/// the server drops copies whose id it remembers, and it forgets ids only in a restart, which takes longer
/// than [`MAX_PUBLISH_DELAY`].
fn may_be_a_copy(delivery: &Delivery, admitted: &Admitted) -> bool {
    let waited = delivery.published_at - admitted.handoff.issued_at.at();
    let at_once = (time::Duration::ZERO..=MAX_PUBLISH_DELAY).contains(&waited);
    delivery.deliveries > 1 || !admitted.deduplicated || !at_once
}

fn incoming(delivery: &Delivery) -> IncomingMessage<'_> {
    IncomingMessage {
        kind: delivery.kind,
        subject: delivery.subject(),
        headers: delivery.headers(),
        body: delivery.body(),
    }
}

fn failed_handoff(delivery: &Delivery) -> FailedHandoff<'_> {
    FailedHandoff {
        kind: delivery.kind,
        sequence: delivery.sequence,
        deliveries: delivery.deliveries,
        is_exhausted: false,
        published_at: delivery.published_at,
        headers: delivery.headers(),
        body: delivery.body(),
    }
}
