//! A claimed handoff: works on it, commits its answer, or stops when another instance owns it.

use std::{pin::pin, sync::Arc, time::Duration};

use broker::{Chain, PublishError};
use chain::Committed;
use crash::reach;
use intake::{Releasable, Settlement};
use subjects::{Answer, ErrorCode, Failure, Refusal, Stop, Subject, Work};
use time::OffsetDateTime;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{Error, HandoffRunner, Verdict, failed_handoff, workload::Delivery};
use crate::{
    admission::Admitted,
    agent::{self, Ledger, LedgerSummary, LivePublisher},
    cancels::Running,
    crash_points::Point,
    journal::{Journal, Loss},
    reply::{self, Run},
    telemetry::Outcome,
};

/// Redelivery delay for a handoff that this instance cannot work on.
const HAND_BACK_DELAY: Duration = Duration::from_secs(2);

/// A handoff that this instance has claimed with `delivery`.
pub(super) struct OwnedHandoff<'a> {
    pub(super) runner: &'a HandoffRunner,
    pub(super) delivery: &'a Delivery,
    pub(super) admitted: &'a Admitted,
    pub(super) journal: Arc<Journal>,
}

/// Why the work was stopped before it was done.
#[derive(Debug)]
pub(super) enum Stopped {
    Cancelled,
    Deadline,
    /// The work exceeded `agent.max_turn`.
    TooLong,
}

impl Stopped {
    const fn stop(&self) -> Stop {
        match self {
            Self::Cancelled => Stop::Cancelled,
            Self::Deadline | Self::TooLong => Stop::Deadline,
        }
    }
}

impl OwnedHandoff<'_> {
    /// Works on the handoff and commits its answer. Stops if it is cancelled, out of time or lost.
    pub(super) async fn work(&self, running: Running) -> Result<Verdict, Error> {
        let handoff = &self.admitted.handoff;
        let deadline = handoff.deadline.as_ref().map(|deadline| deadline.at() - OffsetDateTime::now_utc());
        let ledger = Ledger::default();
        let live = self.live_publisher();
        let context = agent::WorkContext {
            resources: &self.runner.resources,
            handoff,
            lease: self.admitted.lease.as_deref(),
            trace_id: &self.admitted.trace_id,
            ledger: &ledger,
            live: &live,
            journal: &self.journal,
        };
        let ended = {
            let work = pin!(agent::work(context));
            tokio::select! {
                biased;
                // Cancel-safe per docs on `cancelled()`.
                () = running.cancelled() => Ok(Err(Stopped::Cancelled)),
                // Cancel-safe: sleeping only.
                () = wait_for_deadline(deadline) => Ok(Err(Stopped::Deadline)),
                // Cancel-safe: sleeping only.
                () = tokio::time::sleep(self.runner.max_turn) => Ok(Err(Stopped::TooLong)),
                loss = self.journal.lost() => Err(loss),
                // The losing future is dropped, which cancels the work.
                outcome = work => Ok(Ok(outcome)),
            }
            // Here the pending model or tool call is dropped, before anything else is done. One that is
            // neither polled nor dropped would keep others waiting for what it holds.
        };
        let ended = match ended {
            Ok(ended) => ended,
            Err(loss) => return Box::pin(self.settle_lost(loss)).await,
        };
        // Another instance may own the handoff if this one was suspended. Then nothing is published for it,
        // not even a cancellation.
        if let Err(loss) = self.journal.confirm_ownership().await {
            return Box::pin(self.settle_lost(loss)).await;
        }
        // The journal is stored for a later replay. An answer needs no journal: it is complete by itself.
        if ended.as_ref().map_or(true, |outcome| outcome.dead_letter) {
            tokio::select! {
                biased;
                loss = self.journal.lost() => return Box::pin(self.settle_lost(loss)).await,
                // Cancel-safe: records that were not stored stay pending.
                () = self.journal.write_if_costly() => {}
            }
        }
        let summary = |stop| {
            let own = ledger.close(&self.admitted.trace_id, self.delivery.kind.role(), stop);
            own.with_earlier(&self.journal.take_rest())
        };
        match ended {
            Err(ended) => {
                // These verifications are no longer needed. They are kept only if the handoff is handed back,
                // since the next attempt waits for them.
                for id in ledger.open_verifications() {
                    self.cancel(id).await;
                }
                let stop = ended.stop();
                Box::pin(self.end(ended, summary(stop))).await
            }
            Ok(outcome) => {
                let counted = if outcome.dead_letter { Outcome::GivenUp } else { Outcome::Answered };
                if let Some(failure) = outcome.failure.as_ref().filter(|_| outcome.dead_letter) {
                    // A new attempt could succeed, so the handoff is kept as a dead letter for a replay.
                    let why = Refusal::new(failure.code, &*failure.message);
                    if let Some(verdict) = Box::pin(self.dead_letter_unless_answered(&why)).await? {
                        return Ok(verdict);
                    }
                }
                let stop = outcome.stop;
                let answer = self.run().answer(outcome, summary(stop));
                Box::pin(self.commit(&answer, counted)).await
            }
        }
    }

    fn live_publisher(&self) -> LivePublisher<'_> {
        let streams = match &self.admitted.handoff.work {
            Work::Chat(chat) => chat.stream,
            Work::Continue(continued) => continued.stream,
            Work::Schedule(_) | Work::Plan(_) | Work::Review(_) | Work::Verify(_) => false,
        };
        LivePublisher {
            client: &self.runner.storage.streams.broker.client,
            instance: &self.runner.instance,
            kind: self.delivery.kind,
            journal: &self.journal,
            since: Instant::now(),
            streams,
        }
    }

    /// Cancels a verification. Best effort: an analyst that misses it finishes for nothing.
    async fn cancel(&self, verification: subjects::HandoffId) {
        let subject = Subject::Cancel(verification).to_string();
        if let Err(error) =
            self.runner.storage.streams.broker.client.publish(subject, bytes::Bytes::new()).await
        {
            debug!(error = %Chain(&error), "Verification not cancelled.");
        }
    }

    /// Answers a handoff whose work was stopped.
    pub(super) async fn end(&self, ended: Stopped, summary: LedgerSummary) -> Result<Verdict, Error> {
        let stop = ended.stop();
        let (why, outcome) = match ended {
            Stopped::Cancelled => {
                (Refusal::new(ErrorCode::Cancelled, "cancelled by request"), Outcome::Answered)
            }
            Stopped::Deadline => {
                let why = "the deadline passed while this was worked on".to_owned();
                return self.end_out_of_time(why, stop, summary).await;
            }
            Stopped::TooLong => {
                let max = humantime::format_duration(self.runner.max_turn);
                let why = format!(
                    "it took longer than {max}, the longest that a handoff may take (agent.max_turn)"
                );
                return self.end_out_of_time(why, stop, summary).await;
            }
        };
        let answer = self.run().failure(Failure::new(why.code, why.message), stop, summary);
        self.commit(&answer, outcome).await
    }

    /// Dead-letters and answers a handoff that ran out of time: with more time it could succeed.
    async fn end_out_of_time(
        &self,
        why: String,
        stop: Stop,
        summary: LedgerSummary,
    ) -> Result<Verdict, Error> {
        let why = Refusal::new(ErrorCode::DeadlineExceeded, why);
        if let Some(verdict) = self.dead_letter_unless_answered(&why).await? {
            return Ok(verdict);
        }
        let answer = self.run().failure(Failure::new(why.code, why.message), stop, summary);
        self.commit(&answer, Outcome::GivenUp).await
    }

    /// Writes a dead letter, unless the handoff is already answered; then returns the verdict for that.
    async fn dead_letter_unless_answered(&self, why: &Refusal) -> Result<Option<Verdict>, Error> {
        if reply::check_answered(&self.runner.storage, self.delivery.kind, self.admitted.handoff.id).await {
            self.runner.resend_copy(self.admitted).await;
            return Ok(Some(Verdict::done(Outcome::AlreadyAnswered)));
        }
        self.runner.dead_letter_writer().write_dead_letter(&failed_handoff(self.delivery), why).await?;
        Ok(None)
    }

    /// Stores the answer and sends its copy. An answer that exceeds the server's payload limit is replaced by
    /// a failure, which says as much of what was done as fits.
    async fn commit(&self, answer: &Answer, outcome: Outcome) -> Result<Verdict, Error> {
        let mut after = match self.journal.close().await {
            Ok(after) => after,
            Err(loss) => return Box::pin(self.settle_lost(loss)).await,
        };
        reach(Point::BeforeAnswer).await;
        let (storage, kind, encoding) = (&self.runner.storage, self.delivery.kind, self.admitted.encoding);
        let mut short = None;
        let mut summaries: Option<std::vec::IntoIter<LedgerSummary>> = None;
        let stored = loop {
            match reply::commit(storage, kind, short.as_ref().unwrap_or(answer), encoding, after).await {
                Ok(Committed::Ours(stored)) => break stored,
                Ok(Committed::Fenced) => match Box::pin(self.journal.close_after_conflict(after)).await {
                    Ok(now) => after = now,
                    Err(loss) => return Box::pin(self.settle_lost(loss)).await,
                },
                Err(error @ reply::Error::Publish(PublishError::TooLarge)) => {
                    // Another attempt would produce an answer of the same size at the same cost.
                    let summaries =
                        summaries.get_or_insert_with(|| LedgerSummary::shorten(answer).into_iter());
                    let Some(summary) = summaries.next() else { return Err(error.into()) };
                    let why = "the answer is larger than the server takes (max_payload)";
                    let failure = Failure::new(ErrorCode::Internal, why);
                    short = Some(self.run().failure(failure, Stop::Budget, summary));
                }
                Err(error) => return Err(error.into()),
            }
        };
        reach(Point::Answered).await;
        if let Some(reply_to) = &self.admitted.handoff.reply_to {
            reply::send_copy(
                &storage.streams.broker,
                short.as_ref().unwrap_or(answer),
                encoding,
                stored,
                reply_to,
            )
            .await;
        }
        debug!(
            handoff.id = %self.admitted.handoff.id,
            trace.id = self.admitted.trace_id,
            "Handoff answered."
        );
        if outcome == Outcome::Answered {
            self.runner.give_back_lease(self.admitted).await;
        }
        Ok(Verdict::done(outcome))
    }

    /// Settles a handoff that this instance no longer owns. It is acknowledged if it is answered and the
    /// delivery is certainly still ours; if another instance works on it, it is left alone.
    async fn settle_lost(&self, loss: Loss) -> Result<Verdict, Error> {
        match loss {
            Loss::Fenced => {}
            Loss::HandedBack(why) => {
                warn!(handoff.id = %self.admitted.handoff.id, why, "Handing the handoff back.");
                self.journal.release().await;
                return Ok(Verdict::hand_back(HAND_BACK_DELAY));
            }
            Loss::Publish(_) => return Err(loss.into()),
        }
        debug!(handoff.id = %self.admitted.handoff.id, "Fenced: the handoff has another answer or owner.");
        let id = self.admitted.handoff.id;
        let answered = Box::pin(reply::check_answered(&self.runner.storage, self.delivery.kind, id)).await;
        let settlement = if answered { Settlement::AcknowledgeIfFresh } else { Settlement::LeaveAlone };
        Ok(Verdict { settlement, outcome: Outcome::Fenced })
    }

    fn run(&self) -> Run<'_> {
        Run {
            kind: self.delivery.kind,
            id: self.admitted.handoff.id,
            instance: &self.runner.instance,
            attempts: self.journal.attempt(),
            trace_id: self.admitted.trace_id.clone(),
            task: self.admitted.handoff.work.verify().map(|verify| verify.task_id.clone()),
        }
    }
}

/// Waits until `left` has passed; forever if there is no deadline.
async fn wait_for_deadline(left: Option<time::Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left.try_into().unwrap_or(Duration::ZERO)).await,
        None => std::future::pending().await,
    }
}
