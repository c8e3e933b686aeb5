//! The life of one handoff, from delivery to settlement.

use std::{convert::Infallible, sync::Arc, time::Duration};

use broker::{Broker, Chain, PublishError};
use subjects::{ErrorCode, Event, Failure, HandoffId, InstanceId, Progress, Refusal, Stop, Subject, Work};
use time::OffsetDateTime;
use tokio::time::Instant;
use tracing::{Instrument, debug, debug_span, warn};

use crate::{
    admission::{Admitted, Arrived, Policy, Refused},
    agent::{self, Account, Bench, Ledger, Live},
    cancels::{Cancels, MayNotRun, Running},
    dead::{self, Casualty, Undertaker},
    intake::{Delivery, Settlement},
    reply::{self, Committed, Run},
    telemetry::{Metrics, OfKind, Outcome},
};

const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(60);
/// A handoff that reached the queue this soon after it was issued was not published before; see `may_be_a_copy`.
const PUBLISHED_AT_ONCE: time::Duration = time::Duration::seconds(2);

/// What every handoff of this instance needs.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) broker: Broker,
    pub(crate) instance: InstanceId,
    pub(crate) policy: Arc<Policy>,
    pub(crate) bench: Arc<Bench>,
    pub(crate) cancels: Cancels,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) max_attempts: u32,
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
}

/// What went wrong around a handoff, not with it. All of it may pass, so all of it means: again, later.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Reply(#[from] reply::Error),
    #[error(transparent)]
    Dead(#[from] dead::Error),
}

/// Runs one delivery to its end.
pub(crate) async fn live(desk: Arc<Desk>, delivery: Delivery) {
    let kind = delivery.kind;
    let metrics = desk.metrics.of(kind);
    let started = Instant::now();
    metrics.in_flight.inc();
    let _leaving = Leaving(metrics);
    let span = debug_span!("handoff", handoff.kind = %kind, sequence = delivery.sequence, delivery = delivery.deliveries);
    async {
        let verdict = tokio::select! {
            biased;
            verdict = desk.decide(&delivery) => verdict,
            // In the same task as the work, so that it ends with it.
            never = desk.keep(&delivery, started) => match never {},
        };
        if let Err(error) = delivery.settle(&desk.broker.client, verdict.settlement).await {
            metrics.ack_failures.inc();
            warn!(error = %Chain(&error), "Settlement not confirmed; the handoff comes back and is then settled.");
        }
        metrics.settled(verdict.outcome);
        metrics.seconds.observe(started.elapsed().as_secs_f64());
    }
    .instrument(span)
    .await;
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
            let attempt = attempt(delivery);
            let delay = broker::retry::delay(attempt, FIRST_RETRY, LONGEST_RETRY);
            warn!(attempt, error = %Chain(&error), "Handoff could not be finished; handing back.");
            Verdict { settlement: Settlement::Again(delay), outcome: Outcome::Retried }
        })
    }

    /// What happens seldom is boxed: a handoff in work should not hold room for all that could befall it.
    async fn try_decide(&self, delivery: &Delivery) -> Result<Verdict, Error> {
        let arrived = arrived(delivery);
        // Before the body is decoded: that may be what ended the others.
        if delivery.deliveries > u64::from(self.max_attempts) {
            return Box::pin(self.give_up_poisoned(delivery, &arrived)).await;
        }
        match self.policy.admit(&arrived, OffsetDateTime::now_utc()) {
            Ok(admitted) => self.answer(delivery, &admitted).await,
            Err(refused) => Box::pin(self.refuse(delivery, &refused)).await,
        }
    }

    async fn refuse(&self, delivery: &Delivery, refused: &Refused) -> Result<Verdict, Error> {
        let Refused { refusal, identity } = refused;
        if !self.undertaker().give_up(&casualty(delivery), refusal, identity, Stop::Refused).await? {
            return Ok(Verdict::done(Outcome::AlreadyAnswered));
        }
        self.metrics.refused(delivery.kind, refusal.code);
        Ok(Verdict::done(Outcome::Refused))
    }

    async fn give_up_poisoned(&self, delivery: &Delivery, arrived: &Arrived<'_>) -> Result<Verdict, Error> {
        let identity = self.policy.identity(arrived);
        if let Some(id) = identity.answer_to {
            // It may be slow rather than poison: as long as it runs here, nobody gives it up.
            self.cancels.ended(id).await;
        }
        let tried = delivery.deliveries - 1;
        let why = Refusal::new(ErrorCode::Poisoned, format!("taken up {tried} times and never finished"));
        let given_up = self.undertaker().give_up(&casualty(delivery), &why, &identity, Stop::GivenUp).await?;
        Ok(Verdict::done(if given_up { Outcome::GivenUp } else { Outcome::AlreadyAnswered }))
    }

    async fn answer(&self, delivery: &Delivery, admitted: &Admitted) -> Result<Verdict, Error> {
        let id = admitted.handoff.id;
        let mut look = may_be_a_copy(delivery, admitted);
        loop {
            if look && Box::pin(self.was_answered(admitted)).await? {
                return Ok(Verdict::done(Outcome::AlreadyAnswered));
            }
            match self.cancels.start(id) {
                Ok(running) => return self.work(delivery, admitted, running).await,
                Err(MayNotRun::Cancelled) => {
                    let nothing = Account::default();
                    return Box::pin(self.end(delivery, admitted, Ended::Cancelled, nothing)).await;
                }
                // A redelivery to ourselves, or a copy: held, not handed back, since each return would count as an
                // attempt. When the first has ended, its answer is looked for.
                Err(MayNotRun::RunsAlready(ended)) => ended.cancelled().await,
            }
            look = true;
        }
    }

    /// Whether the handoff has its answer. Whoever asked for a copy of it gets one more: nobody knows whether
    /// the first was sent.
    async fn was_answered(&self, admitted: &Admitted) -> Result<bool, Error> {
        let (kind, id) = (admitted.handoff.kind(), admitted.handoff.id);
        let answered = reply::is_answered(&self.broker, kind, id).await?;
        if answered && let Some(reply_to) = &admitted.handoff.reply_to {
            reply::copy_stored(&self.broker, kind, id, reply_to).await?;
        }
        Ok(answered)
    }

    async fn work(
        &self,
        delivery: &Delivery,
        admitted: &Admitted,
        running: Running,
    ) -> Result<Verdict, Error> {
        let deadline =
            admitted.handoff.deadline.as_ref().map(|deadline| deadline.at() - OffsetDateTime::now_utc());
        let ledger = Ledger::new(admitted.handoff.id);
        let live = self.live(delivery, admitted);
        let ended = tokio::select! {
            biased;
            // Cancel-safe per docs on `cancelled()`.
            () = running.cancelled() => Err(Ended::Cancelled),
            // Cancel-safe: sleeping only.
            () = after(deadline) => Err(Ended::Deadline),
            // Losing this race drops the work, which is what was asked for.
            outcome = agent::work(&self.bench, &admitted.handoff, &admitted.trace_id, &ledger, &live) => Ok(outcome),
        };
        let account = |stop| ledger.close(&admitted.trace_id, delivery.kind.role(), stop);
        match ended {
            Err(ended) => {
                let stop = ended.stop();
                Box::pin(self.end(delivery, admitted, ended, account(stop))).await
            }
            Ok(outcome) => {
                let counted = if outcome.keep { Outcome::GivenUp } else { Outcome::Answered };
                if let Some(failure) = outcome.failure.as_ref().filter(|_| outcome.keep) {
                    if Box::pin(self.was_answered(admitted)).await? {
                        return Ok(Verdict::done(Outcome::AlreadyAnswered));
                    }
                    // Handed off anew it could succeed, so it is kept.
                    let why = Refusal::new(failure.code, &*failure.message);
                    Box::pin(self.undertaker().bury(&casualty(delivery), &why)).await?;
                }
                let stop = outcome.stop;
                let answer = self.run(delivery, admitted).answer(outcome, account(stop));
                Box::pin(self.commit(delivery, admitted, &answer, counted)).await
            }
        }
    }

    fn live(&self, delivery: &Delivery, admitted: &Admitted) -> Live {
        let streams = matches!(&admitted.handoff.work, Work::Chat(chat) if chat.stream);
        Live {
            client: self.broker.client.clone(),
            instance: self.instance.clone(),
            id: admitted.handoff.id,
            kind: delivery.kind,
            attempt: attempt(delivery),
            since: Instant::now(),
            streams,
        }
    }

    /// Ends a handoff that nobody waits for any more.
    async fn end(
        &self,
        delivery: &Delivery,
        admitted: &Admitted,
        ended: Ended,
        account: Account,
    ) -> Result<Verdict, Error> {
        let stop = ended.stop();
        let (why, outcome) = match ended {
            Ended::Cancelled => {
                (Refusal::new(ErrorCode::Cancelled, "cancelled by request"), Outcome::Answered)
            }
            Ended::Deadline => {
                let why =
                    Refusal::new(ErrorCode::DeadlineExceeded, "the deadline passed while this was worked on");
                // Someone else may have finished it while we were held up.
                if self.was_answered(admitted).await? {
                    return Ok(Verdict::done(Outcome::AlreadyAnswered));
                }
                // With another deadline it could succeed, so it is kept.
                self.undertaker().bury(&casualty(delivery), &why).await?;
                (why, Outcome::GivenUp)
            }
        };
        let answer = self.run(delivery, admitted).failure(Failure::new(why.code, why.message), stop, account);
        self.commit(delivery, admitted, &answer, outcome).await
    }

    async fn commit(
        &self,
        delivery: &Delivery,
        admitted: &Admitted,
        answer: &subjects::Answer,
        outcome: Outcome,
    ) -> Result<Verdict, Error> {
        let committed = match reply::commit(&self.broker, delivery.kind, answer, admitted.encoding).await {
            Err(reply::Error::Publish(PublishError::TooLarge)) => {
                // Worked on again it would be as large again, and paid for again.
                let why = "the answer is larger than the server takes";
                let failure = Failure::new(ErrorCode::Internal, why);
                let short = self.run(delivery, admitted).failure(failure, Stop::Budget, Account::default());
                reply::commit(&self.broker, delivery.kind, &short, admitted.encoding).await?
            }
            other => other?,
        };
        match committed {
            Committed::Ours => {
                if let Some(reply_to) = &admitted.handoff.reply_to {
                    reply::copy(&self.broker, answer, admitted.encoding, reply_to).await;
                }
                debug!(handoff.id = %admitted.handoff.id, trace.id = admitted.trace_id, "Answered.");
                Ok(Verdict::done(outcome))
            }
            Committed::Fenced => {
                debug!(handoff.id = %admitted.handoff.id, "Fenced: the handoff has another answer or owner.");
                let answered =
                    Box::pin(reply::is_answered(&self.broker, delivery.kind, admitted.handoff.id)).await?;
                let settlement = if answered { Settlement::DoneElsewhere } else { Settlement::LeaveAlone };
                Ok(Verdict { settlement, outcome: Outcome::Fenced })
            }
        }
    }

    fn run(&self, delivery: &Delivery, admitted: &Admitted) -> Run<'_> {
        Run {
            kind: delivery.kind,
            id: admitted.handoff.id,
            instance: &self.instance,
            attempts: attempt(delivery),
            trace_id: admitted.trace_id.clone(),
            task: admitted.handoff.work.verify().map(|verify| verify.task_id.clone()),
        }
    }

    fn undertaker(&self) -> Undertaker<'_> {
        Undertaker { broker: &self.broker, instance: &self.instance, metrics: &self.metrics }
    }

    /// Keeps the delivery ours for as long as it is polled, and lets whoever watches know that work goes on.
    async fn keep(&self, delivery: &Delivery, started: Instant) -> Infallible {
        let every = delivery.beat_every();
        let mut due = started + every;
        let mut told = None;
        loop {
            tokio::time::sleep_until(due).await;
            due = Instant::now() + every;
            // Boxed, like all that happens seldom.
            if let Err(error) = Box::pin(delivery.extend(&self.broker.client)).await {
                self.metrics.of(delivery.kind).heartbeat_failures.inc();
                debug!(sequence = delivery.sequence, error = %Chain(&error), "Heartbeat not confirmed.");
            }
            let id = *told.get_or_insert_with(|| self.policy.identity(&arrived(delivery)).answer_to);
            if let Some(id) = id {
                Box::pin(self.tell(id, delivery, started)).await;
            }
        }
    }

    /// Best effort: the answer does not depend on it.
    async fn tell(&self, id: HandoffId, delivery: &Delivery, started: Instant) {
        let event = Event {
            handoff_id: id,
            kind: delivery.kind,
            instance: self.instance.clone(),
            attempt: attempt(delivery),
            progress: Progress::Working,
            name: None,
            elapsed_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        let body = serde_json::to_vec(&event).unwrap_or_default();
        if let Err(error) = self.broker.client.publish(Subject::Event(id).to_string(), body.into()).await {
            debug!(error = %Chain(&error), "An event could not be sent.");
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Ended {
    Cancelled,
    Deadline,
}

impl Ended {
    const fn stop(self) -> Stop {
        match self {
            Self::Cancelled => Stop::Cancelled,
            Self::Deadline => Stop::Deadline,
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

fn attempt(delivery: &Delivery) -> u32 {
    u32::try_from(delivery.deliveries).unwrap_or(u32::MAX)
}

fn casualty(delivery: &Delivery) -> Casualty<'_> {
    Casualty {
        kind: delivery.kind,
        sequence: delivery.sequence,
        deliveries: delivery.deliveries,
        published_at: delivery.published_at,
        headers: delivery.headers(),
        body: delivery.body(),
    }
}

async fn after(time: Option<time::Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time.try_into().unwrap_or(Duration::ZERO)).await,
        None => std::future::pending().await,
    }
}
