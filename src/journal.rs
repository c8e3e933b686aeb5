//! Crash anywhere, resume there: what a handoff has come to is written down as it happens, by one writer at a time.
//!
//! The rule is: *write before acting, otherwise write while waiting*. Before a tool is called that may have an effect,
//! everything up to and with the intent is stored; while a model thinks, what is not stored yet is being stored; and the
//! answer holds all that is left. Whoever appends after another has taken the handoff up is refused by the server, and
//! has **lost** it: its work is dropped where it stands.

mod claim; // taking a handoff up
mod history; // who has had it
mod known; // pure: what earlier attempts have left
mod queued; // whether its message is still in the queue
mod tail; // the last place we know of, and appending after it

pub(crate) use claim::{Claim, Claimant, Standing, claim, origin, standing};
pub(crate) use known::Remembered;
pub(crate) use tail::Loss;

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

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

use crate::{
    crash_points::{Point, reach},
    storage::Storage,
};
use known::Known;
use tail::Tail;

/// A model is asked without another look if the stream confirmed us this short a time ago. Another instance would have to
/// claim the handoff, ask and store a turn within it.
const CONFIRMED_WITHIN: Duration = Duration::from_millis(100);

/// The journal of a handoff that is ours.
#[derive(Debug)]
pub(crate) struct Journal {
    storage: Storage,
    id: HandoffId,
    attempt: u32,
    notes: Mutex<Notes>,
    /// Locked while writing: appends follow each other.
    tail: sync::Mutex<Tail>,
    lost: CancellationToken,
    loss: Mutex<Option<Loss>>,
    /// When we last knew that it was ours, in milliseconds since `since`.
    sure_at: AtomicU64,
    /// When the stream last confirmed that its end is ours, in milliseconds since `since`.
    confirmed_at: AtomicU64,
    since: Instant,
    sure_for: Duration,
}

#[derive(Debug)]
struct Notes {
    known: Known,
    /// Not stored yet.
    pending: Vec<Record>,
    /// Something among that had its price or its effect.
    did_cost: bool,
}

/// What may become of a message whose handoff is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// Another delivery may follow at once.
    HandBack,
    /// Its handoff has an answer.
    Acknowledge,
    /// Another instance has the handoff, and with it the message.
    LeaveAlone,
}

/// A call of a tool that is about to be made.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: CallId,
    /// With it, the call has its effect once.
    pub(crate) key: String,
    /// What it came to in an earlier attempt.
    pub(crate) outcome: Option<Remembered<ToolOutcome>>,
}

impl Journal {
    pub(crate) fn handoff(&self) -> HandoffId {
        self.id
    }

    /// How often the handoff was taken up, this time included.
    pub(crate) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// What the model answered to this question before. What it answered to a handoff that this one replays has to be
    /// usable: that handoff failed.
    pub(crate) fn answer_to(
        &self,
        question: &Question,
        is_usable: impl Fn(&Reply) -> bool,
    ) -> Option<Remembered<Reply>> {
        self.notes().known.answer_to(question, is_usable)
    }

    /// A typed question, by its place among those of its form.
    pub(crate) fn think(&self, form: &str, lane: u32) -> Question {
        self.notes().known.think(form, lane)
    }

    /// The tools that the model was offered before.
    pub(crate) fn offered(&self) -> Option<Vec<String>> {
        self.notes().known.offered()
    }

    pub(crate) fn offers(&self, tools: &[String]) {
        self.note(Record::Context(Context { tools: tools.to_vec() }));
    }

    pub(crate) fn replied(&self, turn: ModelTurn, has_a_price: bool) {
        let turn = Record::ModelTurn(turn);
        if has_a_price { self.note_cost(turn) } else { self.note(turn) }
    }

    /// A call that is to be made, or was made before. The same call made again is the next of its kind.
    pub(crate) fn call(&self, tool: &str, arguments_hash: String, has_effect: bool) -> Call {
        let mut notes = self.notes();
        let call = notes.known.call(self.id, self.attempt, tool, arguments_hash);
        if has_effect && call.outcome.is_none() && !call.is_written {
            let intent = ToolIntent { call: call.id.clone(), key: call.key.clone() };
            notes.pending.push(Record::ToolIntent(intent));
        }
        Call { id: call.id, key: call.key, outcome: call.outcome }
    }

    pub(crate) fn returned(&self, call: Call, outcome: ToolOutcome, ms: u64, has_effect: bool) {
        let result = Record::ToolResult(ToolResult { call: call.id, key: call.key, outcome, ms });
        if has_effect { self.note_cost(result) } else { self.note(result) }
    }

    /// The findings of the verification with one of these ids, if an earlier attempt has them.
    pub(crate) fn verification(&self, ids: &[HandoffId]) -> Option<Remembered<subjects::Findings>> {
        self.notes().known.verification(ids)
    }

    pub(crate) fn verified(&self, verified: Verified) {
        self.note_cost(Record::Verified(Box::new(verified)));
    }

    fn note(&self, record: Record) {
        self.notes().pending.push(record);
    }

    fn note_cost(&self, record: Record) {
        let mut notes = self.notes();
        notes.pending.push(record);
        notes.did_cost = true;
    }

    /// Stores what is not stored yet if any of it cost something. What was only read can be read again, and waits.
    pub(crate) async fn write_what_cost(&self) {
        if self.notes().did_cost {
            self.write().await;
        }
    }

    /// Stores what is not stored yet. When the handoff turns out to be lost this never ends: whoever listens to
    /// [`lost`](Self::lost) drops the work.
    pub(crate) async fn write(&self) {
        let mut tail = self.tail.lock().await;
        let records = self.take();
        if records.is_empty() {
            return;
        }
        let mut taken = Taken { journal: self, entry: Entry::new(records) };
        reach(Point::BeforeAppend).await;
        let sent = Instant::now();
        // Boxed: few are writing, and none should hold room for it while doing something else.
        match Box::pin(self.append(&mut tail, &taken.entry)).await {
            Ok(()) => {
                taken.entry.records.clear();
                self.is_sure_since(sent);
                self.set_confirmed(sent);
                reach(Point::Appended).await;
            }
            Err(loss) => {
                drop((tail, taken));
                self.lose(loss);
                std::future::pending().await
            }
        }
    }

    async fn append(&self, tail: &mut Tail, entry: &Entry) -> Result<(), Loss> {
        self.is_not_overtaken(tail).await?;
        tail.append(&self.storage, entry).await
    }

    /// Returns when everything is stored and nobody can have taken over since: an effect may follow. A process that was
    /// stopped for a while in between finds out here.
    pub(crate) async fn secure(&self) {
        loop {
            self.write().await;
            if self.is_sure() {
                return;
            }
            self.note(Record::Still);
        }
    }

    /// Returns when the journal ends with our own entry, as of a moment ago: what costs may follow. When another instance has
    /// taken over, this never ends. A heartbeat is no proof: the server confirms one to any sender.
    pub(crate) async fn confirm(&self) {
        if self.is_confirmed() {
            return;
        }
        let mut tail = self.tail.lock().await;
        // A write that ended meanwhile has found out.
        if self.is_confirmed() {
            return;
        }
        let looked_at = Instant::now();
        // However long that takes: without an answer nothing is known.
        match Box::pin(tail.settle(&self.storage)).await {
            Ok(()) => self.set_confirmed(looked_at),
            Err(loss) => {
                drop(tail);
                self.lose(loss);
                std::future::pending().await
            }
        }
    }

    fn is_confirmed(&self) -> bool {
        let at = Duration::from_millis(self.confirmed_at.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(at) < CONFIRMED_WITHIN
    }

    fn set_confirmed(&self, at: Instant) {
        let at = u64::try_from(at.saturating_duration_since(self.since).as_millis()).unwrap_or(u64::MAX);
        self.confirmed_at.fetch_max(at, Ordering::Relaxed);
    }

    /// Whether nobody can have taken over, by what we heard last. Two thirds of the time that the server gives us leave
    /// the last third for what was begun.
    pub(crate) fn is_sure(&self) -> bool {
        let age = self.now().saturating_sub(self.sure_at.load(Ordering::Relaxed));
        Duration::from_millis(age) < self.sure_for && !self.lost.is_cancelled()
    }

    /// The delivery was confirmed to be ours at that moment, and so the journal is.
    pub(crate) fn is_sure_since(&self, at: Instant) {
        let at = u64::try_from(at.saturating_duration_since(self.since).as_millis()).unwrap_or(u64::MAX);
        self.sure_at.fetch_max(at, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Looks whether somebody else has taken the handoff up, if that can be.
    pub(crate) async fn look(&self) {
        // Being written to, it is being found out.
        let Ok(mut tail) = self.tail.try_lock() else { return };
        if let Err(loss) = self.is_not_overtaken(&mut tail).await {
            drop(tail);
            self.lose(loss);
        }
    }

    /// Whether it is still ours, as far as can be found out.
    pub(crate) async fn is_ours(&self) -> Result<(), Loss> {
        self.is_not_overtaken(&mut *self.tail.lock().await).await
    }

    /// To be asked before anything is published. The server refuses what one publishes who was overtaken, but whoever
    /// listens on the subject itself would hear it. Nothing is asked of the server while nobody can have taken over.
    async fn is_not_overtaken(&self, tail: &mut Tail) -> Result<(), Loss> {
        if self.is_sure() {
            return Ok(());
        }
        // Boxed, like all that happens seldom. A look that fails tells nothing.
        match Box::pin(tail.is_followed(&self.storage)).await {
            Ok(true) => Err(Loss::Fenced),
            Ok(false) | Err(_) => Ok(()),
        }
    }

    /// Ends when the handoff is lost, and tells why.
    pub(crate) async fn lost(&self) -> Loss {
        self.lost.cancelled().await;
        self.loss.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or(Loss::Fenced)
    }

    /// Gives the handoff to another instance, because this one cannot work on any. Never ends: the work is dropped.
    pub(crate) async fn hand_back<T>(&self, why: String) -> T {
        self.lose(Loss::HandedBack(why));
        std::future::pending().await
    }

    fn lose(&self, loss: Loss) {
        *self.loss.lock().unwrap_or_else(PoisonError::into_inner) = Some(loss);
        self.lost.cancel();
    }

    /// Gives the handoff back to the next owner, with all that was done. Best effort: without it the next one finds a little
    /// less. Returns what may become of the message.
    pub(crate) async fn release(&self) -> Release {
        let mut tail = self.tail.lock().await;
        let mut records = self.take();
        records.push(Record::Released);
        let entry = Entry::new(records);
        match self.append(&mut tail, &entry).await {
            Ok(()) => Release::HandBack,
            Err(Loss::Fenced) => match Box::pin(tail.ends_with_answer(&self.storage)).await {
                Ok(true) => Release::Acknowledge,
                Ok(false) | Err(_) => Release::LeaveAlone,
            },
            Err(loss) => {
                debug!(handoff.id = %self.id, error = %broker::Chain(&loss), "Handoff returned without a final journal entry.");
                Release::HandBack
            }
        }
    }

    /// The sequence after which the answer is to stand. What is not stored is not needed any more: the answer has it.
    pub(crate) async fn end(&self) -> Result<u64, Loss> {
        let mut tail = self.tail.lock().await;
        self.take();
        self.is_not_overtaken(&mut tail).await?;
        if !tail.is_certain() {
            // What was cut off in the middle may come after a look; it cannot come after this.
            let still = Entry::new(vec![Record::Still]);
            Box::pin(tail.append(&self.storage, &still)).await?;
        }
        Ok(tail.sequence())
    }

    /// The sequence after which the answer is to stand when it was refused after `refused`. Fails if another instance has
    /// the handoff; the journal may also have been lost by the stream, and is then written again.
    pub(crate) async fn end_again(&self, refused: u64) -> Result<u64, Loss> {
        let mut tail = self.tail.lock().await;
        tail.settle(&self.storage).await?;
        if tail.sequence() == refused { Err(Loss::Fenced) } else { Ok(tail.sequence()) }
    }

    fn take(&self) -> Vec<Record> {
        let mut notes = self.notes();
        notes.did_cost = false;
        std::mem::take(&mut notes.pending)
    }

    /// Never left half written.
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is being written. Given up halfway, as when a question beside the work takes too long, it is still to be written:
/// others wait for it to be stored.
struct Taken<'j> {
    journal: &'j Journal,
    entry: Entry,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut records = std::mem::take(&mut self.entry.records);
        if !records.is_empty() {
            let mut notes = self.journal.notes();
            records.append(&mut notes.pending);
            notes.pending = records;
            notes.did_cost = true;
        }
    }
}

#[cfg(test)]
mod tests;
