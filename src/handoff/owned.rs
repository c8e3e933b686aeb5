//! A handoff that is ours: worked on, answered, or lost to another.

use std::{pin::pin, sync::Arc, time::Duration};

use broker::{Chain, PublishError};
use subjects::{Answer, ErrorCode, Failure, Refusal, Stop, Subject, Work};
use time::OffsetDateTime;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::{Desk, Error, Verdict, casualty};
use crate::{
    admission::Admitted,
    agent::{self, Account, Ledger, Live},
    cancels::Running,
    crash_points::{Point, reach},
    intake::{Delivery, Settlement},
    journal::{Journal, Loss},
    reply::{self, Committed, Run},
    telemetry::Outcome,
};

/// How long a handoff that this instance cannot work on is left to others.
const HAND_BACK_FOR: Duration = Duration::from_secs(2);

pub(super) struct Owned<'a> {
    pub(super) desk: &'a Desk,
    pub(super) delivery: &'a Delivery,
    pub(super) admitted: &'a Admitted,
    pub(super) journal: Arc<Journal>,
}

/// Why the work ended before it was done.
#[derive(Debug)]
pub(super) enum Ended {
    Cancelled,
    Deadline,
    /// It took longer than a handoff may take.
    TooLong,
}

impl Ended {
    const fn stop(&self) -> Stop {
        match self {
            Self::Cancelled => Stop::Cancelled,
            Self::Deadline | Self::TooLong => Stop::Deadline,
        }
    }
}

impl Owned<'_> {
    pub(super) async fn work(&self, running: Running) -> Result<Verdict, Error> {
        let handoff = &self.admitted.handoff;
        let deadline = handoff.deadline.as_ref().map(|deadline| deadline.at() - OffsetDateTime::now_utc());
        let ledger = Ledger::new(handoff.id);
        let live = self.live();
        let around = agent::Around {
            bench: &self.desk.bench,
            handoff,
            trace_id: &self.admitted.trace_id,
            ledger: &ledger,
            live: &live,
            journal: &self.journal,
        };
        let ended = {
            let work = pin!(agent::work(around));
            tokio::select! {
                biased;
                // Cancel-safe per docs on `cancelled()`.
                () = running.cancelled() => Err(Ended::Cancelled),
                // Cancel-safe: sleeping only.
                () = after(deadline) => Err(Ended::Deadline),
                // Cancel-safe: sleeping only.
                () = tokio::time::sleep(self.desk.max_turn) => Err(Ended::TooLong),
                // Before anything else is done: what was begun (a model's answer, a call) is dropped.
                loss = self.journal.lost() => return self.lost(loss).await,
                // Losing this race drops the work, which is what was asked for.
                outcome = work => Ok(outcome),
            }
        };
        // Another may have it by now if this was held up for long. Then nothing is said of it any more, also not that nobody
        // waits for it.
        if let Err(loss) = self.journal.is_ours().await {
            return self.lost(loss).await;
        }
        // What is finished is stored, for a replay to go on from. An answer holds all that is needed itself.
        if ended.as_ref().map_or(true, |outcome| outcome.keep) {
            tokio::select! {
                biased;
                loss = self.journal.lost() => return self.lost(loss).await,
                // Dropped halfway, nothing is lost: it is still noted.
                () = self.journal.write_what_cost() => {}
            }
        }
        let account = |stop| ledger.close(&self.admitted.trace_id, self.delivery.kind.role(), stop);
        match ended {
            Err(ended) => {
                // Nobody waits for these any more. Were the handoff only handed on, the next one would wait for them.
                for id in ledger.open_verifications() {
                    self.cancel(id).await;
                }
                let stop = ended.stop();
                Box::pin(self.end(ended, account(stop))).await
            }
            Ok(outcome) => {
                let counted = if outcome.keep { Outcome::GivenUp } else { Outcome::Answered };
                if let Some(failure) = outcome.failure.as_ref().filter(|_| outcome.keep) {
                    // Handed off anew it could succeed, so it is kept.
                    let why = Refusal::new(failure.code, &*failure.message);
                    if let Some(otherwise) = Box::pin(self.bury(&why)).await? {
                        return Ok(otherwise);
                    }
                }
                let stop = outcome.stop;
                let answer = self.run().answer(outcome, account(stop));
                Box::pin(self.commit(&answer, counted)).await
            }
        }
    }

    fn live(&self) -> Live<'_> {
        let streams = matches!(&self.admitted.handoff.work, Work::Chat(chat) if chat.stream);
        Live {
            client: &self.desk.storage.broker.client,
            instance: &self.desk.instance,
            kind: self.delivery.kind,
            journal: &self.journal,
            since: Instant::now(),
            streams,
        }
    }

    /// Best effort: an analyst that does not hear of it works in vain.
    async fn cancel(&self, verification: subjects::HandoffId) {
        let subject = Subject::Cancel(verification).to_string();
        if let Err(error) = self.desk.storage.broker.client.publish(subject, bytes::Bytes::new()).await {
            debug!(error = %Chain(&error), "Verification not cancelled.");
        }
    }

    /// Ends a handoff that nobody waits for any more.
    pub(super) async fn end(&self, ended: Ended, account: Account) -> Result<Verdict, Error> {
        let stop = ended.stop();
        let (why, outcome) = match ended {
            Ended::Cancelled => {
                (Refusal::new(ErrorCode::Cancelled, "cancelled by request"), Outcome::Answered)
            }
            Ended::Deadline => {
                let why = "the deadline passed while this was worked on".to_owned();
                return self.end_late(why, stop, account).await;
            }
            Ended::TooLong => {
                let max = humantime::format_duration(self.desk.max_turn);
                let why = format!(
                    "it took longer than {max}, the longest that a handoff may take (agent.max_turn)"
                );
                return self.end_late(why, stop, account).await;
            }
        };
        let answer = self.run().failure(Failure::new(why.code, why.message), stop, account);
        self.commit(&answer, outcome).await
    }

    /// With more time it could succeed, so it is kept as a dead letter.
    async fn end_late(&self, why: String, stop: Stop, account: Account) -> Result<Verdict, Error> {
        let why = Refusal::new(ErrorCode::DeadlineExceeded, why);
        if let Some(otherwise) = self.bury(&why).await? {
            return Ok(otherwise);
        }
        let answer = self.run().failure(Failure::new(why.code, why.message), stop, account);
        self.commit(&answer, Outcome::GivenUp).await
    }

    /// Keeps it as a dead letter. Should it have its answer, this is what becomes of it instead.
    async fn bury(&self, why: &Refusal) -> Result<Option<Verdict>, Error> {
        if reply::is_answered(&self.desk.storage, self.delivery.kind, self.admitted.handoff.id).await {
            self.desk.send_copy_again(self.admitted).await;
            return Ok(Some(Verdict::done(Outcome::AlreadyAnswered)));
        }
        self.desk.undertaker().bury(&casualty(self.delivery), why).await?;
        Ok(None)
    }

    async fn commit(&self, answer: &Answer, outcome: Outcome) -> Result<Verdict, Error> {
        let mut after = match self.journal.end().await {
            Ok(after) => after,
            Err(loss) => return self.lost(loss).await,
        };
        reach(Point::BeforeAnswer).await;
        let (storage, kind, encoding) = (&self.desk.storage, self.delivery.kind, self.admitted.encoding);
        let mut short = None;
        let stored = loop {
            match reply::commit(storage, kind, short.as_ref().unwrap_or(answer), encoding, after).await {
                Ok(Committed::Ours(stored)) => break stored,
                Ok(Committed::Fenced) => match Box::pin(self.journal.end_again(after)).await {
                    Ok(now) => after = now,
                    Err(loss) => return self.lost(loss).await,
                },
                Err(reply::Error::Publish(PublishError::TooLarge)) if short.is_none() => {
                    // Worked on again it would be as large again, and paid for again.
                    let why = "the answer is larger than the server takes (max_payload)";
                    let failure = Failure::new(ErrorCode::Internal, why);
                    short = Some(self.run().failure(failure, Stop::Budget, Account::default()));
                }
                Err(error) => return Err(error.into()),
            }
        };
        reach(Point::Answered).await;
        if let Some(reply_to) = &self.admitted.handoff.reply_to {
            reply::copy(&storage.broker, short.as_ref().unwrap_or(answer), encoding, stored, reply_to).await;
        }
        debug!(handoff.id = %self.admitted.handoff.id, trace.id = self.admitted.trace_id, "Handoff answered.");
        Ok(Verdict::done(outcome))
    }

    /// Another has it, or nobody can be reached. A handoff that has its answer is settled if it is certainly still ours to
    /// settle; one that another works on is left alone.
    async fn lost(&self, loss: Loss) -> Result<Verdict, Error> {
        match loss {
            Loss::Fenced => {}
            Loss::HandedBack(why) => {
                warn!(handoff.id = %self.admitted.handoff.id, why, "Returning the handoff to the queue.");
                self.journal.release().await;
                return Ok(Verdict::again(HAND_BACK_FOR));
            }
            Loss::Publish(_) => return Err(loss.into()),
        }
        debug!(handoff.id = %self.admitted.handoff.id, "Fenced: the handoff has another answer or owner.");
        let id = self.admitted.handoff.id;
        let answered = Box::pin(reply::is_answered(&self.desk.storage, self.delivery.kind, id)).await;
        let settlement = if answered { Settlement::DoneElsewhere } else { Settlement::LeaveAlone };
        Ok(Verdict { settlement, outcome: Outcome::Fenced })
    }

    fn run(&self) -> Run<'_> {
        Run {
            kind: self.delivery.kind,
            id: self.admitted.handoff.id,
            instance: &self.desk.instance,
            attempts: self.journal.attempt(),
            trace_id: self.admitted.trace_id.clone(),
            task: self.admitted.handoff.work.verify().map(|verify| verify.task_id.clone()),
        }
    }
}

async fn after(time: Option<time::Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time.try_into().unwrap_or(Duration::ZERO)).await,
        None => std::future::pending().await,
    }
}
