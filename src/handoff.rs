//! The life of one handoff, from delivery to settlement.

mod owned; // from the claim to the answer

use std::{convert::Infallible, sync::Arc, time::Duration};

use broker::Chain;
use protocol::Holder;
use subjects::{ErrorCode, Event, HandoffId, InstanceId, Progress, Refusal, Stop, Subject, journal::Origin};
use time::OffsetDateTime;
use tokio::time::Instant;
use tracing::{Instrument, Span, debug, debug_span, warn};

use owned::{Ended, Owned};

use crate::{
    admission::{Admitted, Arrived, Policy, Refused},
    agent::{Account, Bench},
    cancels::{Cancels, MayNotRun, Running},
    crash_points::{Point, reach},
    dead::{self, Casualty, GivenUp, Undertaker},
    intake::{Delivery, Settlement},
    journal::{self, Claim, Claimant, Journal, Loss},
    reply,
    storage::Storage,
    telemetry::{Metrics, OfKind, Outcome, spans},
};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// A handoff that reached the queue this soon after it was issued was not published before; see `may_be_a_copy`.
const PUBLISHED_AT_ONCE: time::Duration = time::Duration::seconds(2);
/// What an older build cannot go on with is left to a newer one for so long.
const LEAVE_TO_NEWER: Duration = Duration::from_secs(5);

/// What every handoff of this instance needs.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) storage: Storage,
    pub(crate) instance: InstanceId,
    pub(crate) policy: Arc<Policy>,
    pub(crate) bench: Arc<Bench>,
    pub(crate) cancels: Cancels,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) max_attempts: u32,
    /// The longest that one handoff may be worked on.
    pub(crate) max_turn: Duration,
}

/// How a delivery ends, and what is counted for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    settlement: Settlement,
    outcome: Outcome,
}

impl Verdict {
    const fn done(outcome: Outcome) -> Self {
        Self { settlement: Settlement::Done, outcome }
    }

    /// To be delivered again after that time.
    const fn again(after: Duration) -> Self {
        Self { settlement: Settlement::Again(after), outcome: Outcome::Retried }
    }

    /// Another delivery of the message holds the handoff.
    const fn superseded() -> Self {
        Self { settlement: Settlement::LeaveAlone, outcome: Outcome::Fenced }
    }
}

/// What went wrong around a handoff and does not pass by waiting. It is delivered again, which counts as an attempt.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Reply(#[from] reply::Error),
    #[error(transparent)]
    Dead(#[from] dead::Error),
    #[error(transparent)]
    Journal(#[from] Loss),
}

/// Runs one delivery to its end. Not an `async fn`: that would hold the delivery once for itself and once for what is in it.
pub(crate) fn live(desk: Arc<Desk>, delivery: Delivery) -> impl Future<Output = ()> + Send {
    let span = debug_span!("handoff", handoff.kind = %delivery.kind, sequence = delivery.sequence, delivery = delivery.deliveries);
    let traced = spans::process(&delivery);
    let outer = traced.clone();
    let living = async move {
        let started = Instant::now();
        let metrics = desk.metrics.of(delivery.kind);
        metrics.in_flight.inc();
        let _leaving = Leaving(metrics);
        let verdict = tokio::select! {
            biased;
            verdict = desk.decide(&delivery) => verdict,
            // In the same task as the work, so that it ends with it.
            never = desk.keep(&delivery, started) => match never {},
        };
        reach(Point::BeforeAck).await;
        let settling = spans::settle(&delivery, verdict.settlement);
        let settled =
            delivery.settle(&desk.storage.broker.client, verdict.settlement).instrument(settling.clone());
        if let Err(error) = settled.await {
            metrics.ack_failures.inc();
            telemetry::failed(&settling, "not_confirmed");
            warn!(error = %Chain(&error), "Acknowledgement not confirmed; the handoff is settled at its next delivery.");
        }
        drop(settling);
        reach(Point::Acknowledged).await;
        traced.record("cynode.outcome", verdict.outcome.as_str());
        metrics.settled(verdict.outcome);
        metrics.seconds.observe(started.elapsed().as_secs_f64());
    };
    // The inner one is what messages and calls carry on.
    living.instrument(outer).instrument(span)
}

/// Counts a handoff out, also when its task is aborted.
struct Leaving<'m>(&'m OfKind);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.in_flight.dec();
    }
}

impl Desk {
    async fn decide(&self, delivery: &Delivery) -> Verdict {
        let decided = self.try_decide(delivery).await;
        decided.unwrap_or_else(|error| {
            let attempt = u32::try_from(delivery.deliveries).unwrap_or(u32::MAX);
            let delay = broker::retry::delay(attempt, FIRST_RETRY, LONGEST_RETRY);
            warn!(attempt, error = %Chain(&error), "Handoff not finished; returning it to the queue.");
            telemetry::failed(&Span::current(), "handed_back");
            Verdict::again(delay)
        })
    }

    /// What happens seldom is boxed: a handoff in work should not hold room for all that could befall it.
    async fn try_decide(&self, delivery: &Delivery) -> Result<Verdict, Error> {
        // Before the body is decoded: that may be what ended other workers.
        if delivery.deliveries > u64::from(self.max_attempts)
            && let Some(verdict) = Box::pin(self.begin_probation(delivery)).await?
        {
            return Ok(verdict);
        }
        let admitted = self.policy.admit(&arrived(delivery), OffsetDateTime::now_utc());
        reach(Point::Admitted).await;
        match admitted {
            Ok(admitted) => {
                spans::admitted(&admitted);
                self.answer(delivery, &admitted).await
            }
            Err(refused) => Box::pin(self.refuse(delivery, &refused)).await,
        }
    }

    /// Counts the deliveries of a message that is delivered often, in a journal of its own, from before its body is
    /// decoded until its handoff is claimed. The server counts deliveries too, but not why they ended: an instance that was
    /// stopped, or that waited for a stream, did not die of the handoff.
    async fn begin_probation(&self, delivery: &Delivery) -> Result<Option<Verdict>, Error> {
        let queue = self.storage.broker.layout.handoffs(delivery.kind.role());
        let published = delivery.published_at.unix_timestamp_nanos();
        let id = HandoffId::of_queue_message(queue, delivery.sequence, published);
        let claimant = self.claimant(delivery, id, None, &[]);
        match journal::claim(&self.storage, claimant, true).await? {
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
                self.give_up_poisoned(delivery, why).await.map(Some)
            }
            // A journal that counts has no answer, no copy, nothing to be torn.
            Claim::Answered
            | Claim::Held
            | Claim::Newer { .. }
            | Claim::Torn { .. }
            | Claim::Impostor
            | Claim::StillRunning { .. }
            | Claim::Foreign { .. } => Ok(None),
        }
    }

    /// The dangerous part is over: this delivery does not count.
    async fn end_probation(&self, delivery: &Delivery) {
        if let Some(journal) = delivery.probation() {
            Box::pin(journal.release()).await;
            delivery.set_probation(None);
        }
    }

    fn claimant<'a>(
        &'a self,
        delivery: &Delivery,
        id: HandoffId,
        origin: Option<&'a Origin>,
        replays: &'a [HandoffId],
    ) -> Claimant<'a> {
        Claimant {
            kind: delivery.kind,
            id,
            instance: &self.instance,
            holder: Holder { message: delivery.sequence, delivery: delivery.deliveries },
            origin,
            replays,
            ack_wait: delivery.ack_wait(),
            max_attempts: self.max_attempts,
        }
    }

    async fn refuse(&self, delivery: &Delivery, refused: &Refused) -> Result<Verdict, Error> {
        let Refused { refusal, identity } = refused;
        let given_up =
            self.undertaker().give_up(&casualty(delivery), refusal, identity, Stop::Refused).await?;
        if given_up == GivenUp::Yes {
            self.metrics.refused(delivery.kind, refusal.code);
            telemetry::failed(&Span::current(), refusal.code.as_str());
        }
        self.after_giving_up(delivery, given_up, Outcome::Refused).await
    }

    async fn give_up_poisoned(&self, delivery: &Delivery, why: String) -> Result<Verdict, Error> {
        let id = self.policy.identity(&arrived(delivery)).answer_to;
        if let Some(id) = id {
            // It may be slow rather than poison: as long as it runs here, nobody gives it up.
            self.cancels.ended(id).await;
        }
        self.give_up(delivery, &Refusal::new(ErrorCode::Poisoned, why)).await
    }

    async fn give_up(&self, delivery: &Delivery, why: &Refusal) -> Result<Verdict, Error> {
        let identity = self.policy.identity(&arrived(delivery));
        let given_up = self.undertaker().give_up(&casualty(delivery), why, &identity, Stop::GivenUp).await?;
        self.after_giving_up(delivery, given_up, Outcome::GivenUp).await
    }

    async fn after_giving_up(
        &self,
        delivery: &Delivery,
        given_up: GivenUp,
        outcome: Outcome,
    ) -> Result<Verdict, Error> {
        self.end_probation(delivery).await;
        Ok(match given_up {
            GivenUp::Yes => Verdict::done(outcome),
            GivenUp::AlreadyAnswered => Verdict::done(Outcome::AlreadyAnswered),
            // A copy of a handoff that is being worked on says nothing about it.
            GivenUp::Held => Verdict::again(delivery.beat_every()),
            GivenUp::Superseded => Verdict::superseded(),
        })
    }

    async fn answer(&self, delivery: &Delivery, admitted: &Admitted) -> Result<Verdict, Error> {
        let mut look = may_be_a_copy(delivery, admitted);
        loop {
            match self.cancels.start(admitted.handoff.id) {
                Ok(running) => return self.take_up(delivery, admitted, Some(running), look).await,
                Err(MayNotRun::Cancelled) => {
                    return Box::pin(self.take_up(delivery, admitted, None, look)).await;
                }
                // A redelivery to ourselves, or a copy: held, not handed back. When the first has ended, its answer is
                // looked for.
                Err(MayNotRun::RunsAlready(ended)) => {
                    Box::pin(self.end_probation(delivery)).await;
                    ended.cancelled().await;
                }
            }
            look = true;
        }
    }

    /// Makes the handoff ours and works on it; without `running` it was cancelled before.
    async fn take_up(
        &self,
        delivery: &Delivery,
        admitted: &Admitted,
        running: Option<Running>,
        look: bool,
    ) -> Result<Verdict, Error> {
        let handoff = &admitted.handoff;
        let origin = Origin::from(&handoff.scope);
        let claimant = self.claimant(delivery, handoff.id, Some(&origin), &handoff.replays);
        let claim = journal::claim(&self.storage, claimant, look).await?;
        if let Claim::Ours(journal) = &claim {
            delivery.set_journal(journal);
        }
        self.end_probation(delivery).await;
        let journal = match claim {
            Claim::Ours(journal) => journal,
            Claim::Answered => {
                Box::pin(self.send_copy_again(admitted)).await;
                return Ok(Verdict::done(Outcome::AlreadyAnswered));
            }
            Claim::Held => {
                debug!(handoff.id = %handoff.id, "Copy of a running handoff; waiting for it.");
                return Ok(Verdict::again(delivery.beat_every()));
            }
            Claim::Superseded => {
                debug!(handoff.id = %handoff.id, "Delivery superseded by a later one.");
                return Ok(Verdict::superseded());
            }
            Claim::Newer { version } => {
                warn!(handoff.id = %handoff.id, version, "Journal was written by a newer build; returning the handoff to the queue.");
                return Ok(Verdict::again(LEAVE_TO_NEWER));
            }
            Claim::Impostor => {
                // Not answered: the answer under this id is the other's.
                let why =
                    "its id is that of a handoff of another user or project; hand off under an id of its own";
                let why = Refusal::new(ErrorCode::ScopeMismatch, why);
                self.undertaker().bury(&casualty(delivery), &why).await?;
                self.metrics.refused(delivery.kind, why.code);
                return Ok(Verdict::done(Outcome::Refused));
            }
            Claim::StillRunning { of } => {
                let why = format!("it replays handoff {of}, which is still being worked on");
                return Box::pin(self.give_up(delivery, &Refusal::invalid(why))).await;
            }
            Claim::Foreign { of } => {
                let why = format!(
                    "it replays handoff {of}, which belongs to another user or project; publish a new handoff"
                );
                return Box::pin(self.give_up(delivery, &Refusal::new(ErrorCode::ScopeMismatch, why))).await;
            }
            Claim::Poisoned { attempts } => {
                drop(running);
                let why = format!(
                    "claimed {attempts} times; the last {} attempts made no progress",
                    self.max_attempts
                );
                return Box::pin(self.give_up_poisoned(delivery, why)).await;
            }
            Claim::Torn { why } => {
                let why = format!("what was done before cannot be read, so nothing is done again: {why}");
                return Box::pin(self.give_up(delivery, &Refusal::new(ErrorCode::Internal, why))).await;
            }
        };
        spans::taken_up(journal.attempt());
        let owned = Owned { desk: self, delivery, admitted, journal };
        match running {
            Some(running) => owned.work(running).await,
            None => Box::pin(owned.end(Ended::Cancelled, Account::default())).await,
        }
    }

    /// Whoever asked for a copy of the answer gets one more: nobody knows whether the first was sent.
    async fn send_copy_again(&self, admitted: &Admitted) {
        let (kind, id) = (admitted.handoff.kind(), admitted.handoff.id);
        if let Some(reply_to) = &admitted.handoff.reply_to {
            reply::copy_stored(&self.storage, kind, id, reply_to).await;
        }
    }

    fn undertaker(&self) -> Undertaker<'_> {
        Undertaker { storage: &self.storage, instance: &self.instance, metrics: &self.metrics }
    }

    /// Keeps the delivery ours for as long as it is polled, and lets whoever watches know that work goes on.
    async fn keep(&self, delivery: &Delivery, started: Instant) -> Infallible {
        let every = delivery.beat_every();
        let mut due = started + every;
        loop {
            tokio::time::sleep_until(due).await;
            due = Instant::now() + every;
            // Boxed, like all that happens seldom.
            Box::pin(self.beat(delivery, started)).await;
        }
    }

    async fn beat(&self, delivery: &Delivery, started: Instant) {
        let sent = Instant::now();
        let extended = delivery.extend(&self.storage.broker.client).await;
        if let Err(error) = &extended {
            self.metrics.of(delivery.kind).heartbeat_failures.inc();
            debug!(sequence = delivery.sequence, error = %Chain(error), "Heartbeat not confirmed.");
        }
        let Some(journal) = delivery.journal() else { return };
        match extended {
            Ok(()) => journal.is_sure_since(sent),
            // Nothing was heard for too long: another may have it by now.
            Err(_) => journal.look().await,
        }
        if journal.is_sure() {
            self.tell(journal, delivery, started).await;
        }
    }

    /// Best effort: the answer does not depend on it.
    async fn tell(&self, journal: &Journal, delivery: &Delivery, started: Instant) {
        let id = journal.handoff();
        let event = Event {
            handoff_id: id,
            kind: delivery.kind,
            instance: self.instance.clone(),
            attempt: journal.attempt(),
            progress: Progress::Working,
            name: None,
            elapsed_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        let body = serde_json::to_vec(&event).unwrap_or_default();
        if let Err(error) =
            self.storage.broker.client.publish(Subject::Event(id).to_string(), body.into()).await
        {
            debug!(error = %Chain(&error), "Event not sent.");
        }
    }
}

/// A first delivery that reached the queue just after it was issued, under its own id, cannot be a copy: the server
/// drops copies that it remembers, and it can forget one only by a restart, which takes longer than that. Everything
/// else is looked up before it is run.
fn may_be_a_copy(delivery: &Delivery, admitted: &Admitted) -> bool {
    let waited = delivery.published_at - admitted.handoff.issued_at.at();
    let at_once = (time::Duration::ZERO..=PUBLISHED_AT_ONCE).contains(&waited);
    delivery.deliveries > 1 || !admitted.deduplicated || !at_once
}

fn arrived(delivery: &Delivery) -> Arrived<'_> {
    Arrived {
        kind: delivery.kind,
        subject: delivery.subject(),
        headers: delivery.headers(),
        body: delivery.body(),
    }
}

fn casualty(delivery: &Delivery) -> Casualty<'_> {
    Casualty {
        kind: delivery.kind,
        sequence: delivery.sequence,
        deliveries: delivery.deliveries,
        is_exhausted: false,
        published_at: delivery.published_at,
        headers: delivery.headers(),
        body: delivery.body(),
    }
}
