//! The journal of a handoff: records what each attempt did, so that the next one resumes where it stopped.
//! One instance writes at a time.
//!
//! The rule is *write before acting, otherwise write while waiting*. Before a tool with an effect is called,
//! everything up to and including its intent is stored. While a model answers, pending records are stored.
//! The answer holds everything else.
//!
//! An instance that appends after another one has claimed the handoff is refused by the server and has
//! **lost** it: its work is dropped.

mod claim;
mod history;
mod loss;
mod prior;
mod queued;
mod run_chain;

pub(crate) use claim::{Claim, Claimant, RunState, claim, read_origin, read_records, read_run_state};
pub(crate) use loss::Loss;
pub(crate) use prior::Remembered;

use std::sync::{Mutex, MutexGuard, PoisonError};

use chain::{Ownership, Tail};
use crash::reach;
use intake::{Releasable, Release};
use subjects::{
    HandoffId,
    journal::{
        CallId, Context, Entry, ModelTurn, Question, Record, Reply, ToolIntent, ToolOutcome, ToolResult,
        Verified,
    },
};
use tokio::{sync, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use uuid::Uuid;

use crate::{crash_points::Point, storage::Storage};
use prior::{Making, PriorRecords};
use run_chain::RunChain;

/// The journal of a handoff that this instance has claimed.
#[derive(Debug)]
pub(crate) struct Journal {
    storage: Storage,
    id: HandoffId,
    /// The first of the handoffs that this one replays, or itself. Keys of calls are made of it.
    origin: HandoffId,
    attempt: u32,
    /// Identifies this claim.
    claim: Uuid,
    state: Mutex<State>,
    /// Locked while writing, so that appends are sequential.
    tail: sync::Mutex<Tail<RunChain>>,
    lost: CancellationToken,
    loss: Mutex<Option<Loss>>,
    ownership: Ownership,
}

/// Records of earlier attempts, and records that are not stored yet.
#[derive(Debug)]
struct State {
    prior: PriorRecords,
    /// Not stored yet.
    pending: Vec<Record>,
    /// At least one pending record belongs to something that cost money or had an effect.
    has_costly: bool,
}

/// A tool call that is about to be made.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    /// Idempotency key: with it the call takes effect once.
    pub(crate) key: String,
    /// Its outcome, if an earlier attempt completed it.
    pub(crate) outcome: Option<Remembered<ToolOutcome>>,
}

impl Journal {
    pub(crate) fn handoff(&self) -> HandoffId {
        self.id
    }

    /// Number of claims of this handoff, including this one.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the stored reply of the model to this question, if there is one. A reply that was given to a
    /// replayed handoff must satisfy `is_usable`, since that handoff failed.
    pub(crate) fn take_reply(
        &self,
        question: &Question,
        is_usable: impl Fn(&Reply) -> bool,
    ) -> Option<Remembered<Reply>> {
        self.state().prior.take_reply(question, is_usable)
    }

    /// Returns the next structured-output question of this form in this lane.
    pub(crate) fn next_question(&self, form: &str, lane: u32) -> Question {
        self.state().prior.next_question(form, lane)
    }

    /// Returns the tools that the model was offered by an earlier attempt.
    pub(crate) fn take_offered(&self) -> Option<Vec<String>> {
        self.state().prior.take_offered()
    }

    /// Records the tools that the model is offered.
    pub(crate) fn record_offered(&self, tools: &[String]) {
        self.add_record(Record::Context(Context { tools: tools.to_vec() }));
    }

    /// Records a reply of the model.
    pub(crate) fn record_turn(&self, turn: ModelTurn, is_costly: bool) {
        let turn = Record::ModelTurn(turn);
        if is_costly { self.add_costly_record(turn) } else { self.add_record(turn) }
    }

    /// Returns the call to make, with its stored outcome if an earlier attempt made it. Repeating a call with
    /// the same arguments returns the next stored call, or a new one. Records the intent of a call that has
    /// an effect.
    pub(crate) fn begin_call(&self, tool: &str, arguments_hash: &str, has_effect: bool) -> Call {
        let mut state = self.state();
        let making = Making { origin: self.origin, claim: self.claim, tool, arguments_hash, has_effect };
        let call = state.prior.take_call(&making);
        if has_effect && call.outcome.is_none() && !call.is_written {
            let intent = ToolIntent { call: call.id.clone(), key: call.key.clone() };
            state.pending.push(Record::ToolIntent(intent));
        }
        Call { id: call.id, key: call.key, outcome: call.outcome }
    }

    /// Records the outcome of a call.
    pub(crate) fn record_result(&self, call: Call, outcome: ToolOutcome, ms: u64, has_effect: bool) {
        let result = Record::ToolResult(ToolResult { call: call.id, key: call.key, outcome, ms });
        if has_effect { self.add_costly_record(result) } else { self.add_record(result) }
    }

    /// Returns the turns and results of earlier attempts that this one has not taken.
    pub(crate) fn take_rest(&self) -> Vec<Record> {
        self.state().prior.take_rest()
    }

    /// Returns the stored findings of the verification with one of these ids.
    pub(crate) fn take_verification(&self, ids: &[HandoffId]) -> Option<Remembered<subjects::Findings>> {
        self.state().prior.take_verification(ids)
    }

    /// Records the findings of a verification.
    pub(crate) fn record_verification(&self, verified: Verified) {
        self.add_costly_record(Record::Verified(Box::new(verified)));
    }

    fn add_record(&self, record: Record) {
        self.state().pending.push(record);
    }

    fn add_costly_record(&self, record: Record) {
        let mut state = self.state();
        state.pending.push(record);
        state.has_costly = true;
    }

    /// Stores the pending records if one of them is costly. Reads without an effect can be repeated, so they
    /// wait.
    pub(crate) async fn write_if_costly(&self) {
        if self.state().has_costly {
            self.write().await;
        }
    }

    /// Stores the pending records. Never returns if the handoff turns out to be lost: the task that awaits
    /// [`lost`](Self::lost) drops the work.
    pub(crate) async fn write(&self) {
        let mut tail = self.tail.lock().await;
        let records = self.take_pending();
        if records.is_empty() {
            return;
        }
        let mut unwritten = UnwrittenRecords { journal: self, entry: Entry::new(records) };
        reach(Point::BeforeAppend).await;
        let sent = Instant::now();
        // Boxed to keep the futures of handoffs that are not writing small.
        match Box::pin(self.append(&mut tail, &unwritten.entry)).await {
            Ok(()) => {
                unwritten.entry.records.clear();
                self.confirm_since(sent);
                self.ownership.set_tail_confirmed(sent);
                reach(Point::Appended).await;
            }
            Err(loss) => {
                drop((tail, unwritten));
                self.mark_lost(loss);
                std::future::pending().await
            }
        }
    }

    async fn append(&self, tail: &mut Tail<RunChain>, entry: &Entry) -> Result<(), Loss> {
        self.check_not_overtaken(tail).await?;
        run_chain::append(&self.storage, tail, entry).await
    }

    /// Returns when everything is stored and ownership is fresh, so that an effect may follow. A process that
    /// was suspended in between detects it here.
    pub(crate) async fn write_and_confirm(&self) {
        loop {
            self.write().await;
            if self.is_ownership_fresh() {
                return;
            }
            self.add_record(Record::Still);
        }
    }

    /// Returns when the stream has recently confirmed that the journal ends with our own entry, so that a
    /// model may be called. Never returns if another instance has taken over.
    ///
    /// A heartbeat is no proof of ownership: the server confirms one to any sender.
    pub(crate) async fn confirm_tail(&self) {
        if self.ownership.is_tail_confirmed() {
            return;
        }
        let mut tail = self.tail.lock().await;
        // A write that finished in the meantime has confirmed it.
        if self.ownership.is_tail_confirmed() {
            return;
        }
        let looked_at = Instant::now();
        // Waits as long as the server takes to answer.
        match Box::pin(tail.settle(&self.storage.streams)).await {
            Ok(()) => self.ownership.set_tail_confirmed(looked_at),
            Err(loss) => {
                drop(tail);
                self.mark_lost(loss.into());
                std::future::pending().await
            }
        }
    }

    /// Returns whether no other instance can have taken over, judging by the last confirmation.
    pub(crate) fn is_ownership_fresh(&self) -> bool {
        self.ownership.is_fresh() && !self.lost.is_cancelled()
    }

    /// Records that the server confirmed the delivery, and so the ownership of the handoff, at `at`.
    pub(crate) fn confirm_since(&self, at: Instant) {
        self.ownership.confirm_since(at);
    }

    /// Checks whether another instance has taken over, if that is possible. If so, the handoff is lost.
    pub(crate) async fn check_ownership(&self) {
        // A concurrent write checks ownership itself.
        let Ok(mut tail) = self.tail.try_lock() else { return };
        if let Err(loss) = self.check_not_overtaken(&mut tail).await {
            drop(tail);
            self.mark_lost(loss);
        }
    }

    /// Checks that this instance still owns the handoff. Fails with [`Loss::Fenced`] if it does not; if the
    /// server does not answer, ownership is assumed.
    pub(crate) async fn confirm_ownership(&self) -> Result<(), Loss> {
        self.check_not_overtaken(&mut *self.tail.lock().await).await
    }

    /// Fails with [`Loss::Fenced`] if another instance has taken over. Call it before anything is published:
    /// the server does not store a fenced message, but plain subscribers of the subject still receive it.
    /// Does not ask the server while ownership is fresh.
    async fn check_not_overtaken(&self, tail: &mut Tail<RunChain>) -> Result<(), Loss> {
        if self.is_ownership_fresh() {
            return Ok(());
        }
        // Boxed like all rare paths. A failed read proves nothing.
        match Box::pin(tail.check_overtaken(&self.storage.streams)).await {
            Ok(true) => Err(Loss::Fenced),
            Ok(false) | Err(_) => Ok(()),
        }
    }

    /// Waits until the handoff is lost and returns why.
    pub(crate) async fn lost(&self) -> Loss {
        self.lost.cancelled().await;
        self.loss.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(Loss::Fenced)
    }

    /// Releases the handoff to another instance because this one cannot work on any. Never returns: the work
    /// is dropped.
    pub(crate) async fn hand_back<T>(&self, why: String) -> T {
        self.mark_lost(Loss::HandedBack(why));
        std::future::pending().await
    }

    fn mark_lost(&self, loss: Loss) {
        *self.loss.lock().unwrap_or_else(PoisonError::into_inner) = Some(loss);
        self.lost.cancel();
    }

    /// Closes the journal and returns the sequence that the answer must follow. Pending records are
    /// discarded: the answer contains what matters.
    pub(crate) async fn close(&self) -> Result<u64, Loss> {
        let mut tail = self.tail.lock().await;
        self.take_pending();
        self.check_not_overtaken(&mut tail).await?;
        let still = || Entry::new(vec![Record::Still]).encode().into();
        Ok(tail.close(&self.storage.streams, still).await?)
    }

    /// Returns the sequence that the answer must follow after it was refused at `refused`. Rewrites the
    /// journal if the stream has lost it. Fails with [`Loss::Fenced`] if another instance owns the handoff.
    pub(crate) async fn close_after_conflict(&self, refused: u64) -> Result<u64, Loss> {
        let mut tail = self.tail.lock().await;
        Ok(tail.close_after_conflict(&self.storage.streams, refused).await?)
    }

    fn take_pending(&self) -> Vec<Record> {
        let mut state = self.state();
        state.has_costly = false;
        std::mem::take(&mut state.pending)
    }

    /// A panic cannot leave it half written.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Releasable for Journal {
    /// Stores the pending records and releases the handoff for its next owner. Best effort: without it the
    /// next owner finds less. Returns how to settle the message.
    async fn release(&self) -> Release {
        let mut tail = self.tail.lock().await;
        let mut records = self.take_pending();
        records.push(Record::Released);
        let entry = Entry::new(records);
        match self.append(&mut tail, &entry).await {
            Ok(()) => Release::HandBack,
            Err(Loss::Fenced) => match Box::pin(tail.check_ended(&self.storage.streams)).await {
                Ok(true) => Release::Acknowledge,
                Ok(false) | Err(_) => Release::LeaveAlone,
            },
            Err(loss) => {
                debug!(
                    handoff.id = %self.id,
                    error = %broker::Chain(&loss),
                    "Handoff returned without a final journal entry."
                );
                Release::HandBack
            }
        }
    }
}

/// Records that are being written. If the write is dropped halfway, as when a structured output times out,
/// they become pending again, since other tasks wait for them to be stored.
struct UnwrittenRecords<'j> {
    journal: &'j Journal,
    entry: Entry,
}

impl Drop for UnwrittenRecords<'_> {
    fn drop(&mut self) {
        let mut records = std::mem::take(&mut self.entry.records);
        if !records.is_empty() {
            let mut state = self.journal.state();
            records.append(&mut state.pending);
            state.pending = records;
            state.has_costly = true;
        }
    }
}

#[cfg(test)]
mod tests;
