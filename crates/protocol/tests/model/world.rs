//! One state of the model, and the states that can follow it.
//!
//! The handoff takes two model turns: the first calls a tool with an effect, the second gives the answer.

mod server;
mod worker;

use protocol::{History, Holder};

const WORKERS: usize = 2;
const MAX_ATTEMPTS: u32 = 2;
const MAX_ENTRIES: usize = 14;
/// Queue messages: two copies, the replay of a failed handoff, and the replay of a handoff without an answer.
const MESSAGES: usize = 4;
const REPLAY: usize = 2;
const REPLAY_UNANSWERED: usize = 3;
const FULL: &str = "the journal of the model is full";

/// Decides which delivery may take over a handoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The current rule: [`History::decide`].
    Messages,
    /// The previous rule: a copy takes over when the last entry is old, as every entry is in a long turn.
    AgeOfLastEntry,
}

/// How often each kind of event may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) rule: Rule,
    pub(crate) copies: usize,
    pub(crate) crashes: u8,
    pub(crate) freezes: u8,
    pub(crate) restarts: u8,
    pub(crate) stops: u8,
    pub(crate) model_failures: u8,
    pub(crate) replays: u8,
    /// How often the server loses the end of a journal, as when its stream is restored from an older backup.
    pub(crate) restores: u8,
    /// Whether a worker writes again what the server lost.
    pub(crate) writes_again: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Entry {
    Claim(u8, u8),
    Released,
    /// The first turn, with the idempotency key of its call.
    Turn(Key),
    Result,
    /// The last turn, which is stored only when the answer cannot be committed at once.
    LastTurn,
    Completed,
    /// The model failed permanently.
    Failed,
    Poisoned,
}

impl Entry {
    fn is_answer(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Poisoned)
    }
}

/// The idempotency key of a call: the handoff and the attempt that made it.
type Key = (u8, u8);

/// Journal and answer of one handoff. Appends are checked against `end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Run {
    entries: [Option<Entry>; MAX_ENTRIES],
    end: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Message {
    deliveries: u8,
    /// Worker and delivery count of the unacknowledged delivery, if there is one.
    pending: Option<(u8, u8)>,
    /// The server was killed before it stored the last delivery count, so the next delivery repeats it.
    forgotten: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Worker {
    frozen: bool,
    job: Option<Job>,
}

/// The state that a worker keeps in memory about a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Job {
    message: u8,
    delivery: u8,
    stage: Stage,
    /// The run, as far as the worker knows.
    known: Run,
    attempt: u8,
    /// The idempotency key of the call, once the first turn is stored.
    key: Option<Key>,
    has_result: bool,
    has_last: bool,
    is_claimed: bool,
    /// `ack_wait` has passed by the worker's own clock, so ownership must be confirmed.
    unsure: bool,
    /// An append was sent and its outcome is unknown.
    unconfirmed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Read,
    /// A copy holds the handoff: look up whether its message is still queued.
    LookInQueue,
    Claim,
    Ask,
    StoreTurn,
    /// About to call; ownership may have to be confirmed first.
    Call,
    CallNow,
    StoreResult,
    AskLast,
    /// About to store a dead letter, then commit this answer.
    Letter(Entry),
    Commit(Entry),
    Ack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// The runs of the handoff and of its replay.
    runs: [Run; 2],
    queue: [Option<Message>; MESSAGES],
    workers: [Worker; WORKERS],
    /// Idempotency keys under which the gateway has run the tool.
    effects: [Option<Key>; 3],
    /// How often each turn was paid for.
    paid: [u8; 2],
    /// A turn was paid for although it was already stored.
    paid_again: bool,
    letters: u8,
    replays: u8,
    replayed: bool,
    acked_unanswered: bool,
    /// Deliveries that ended by a crash, a freeze or a restart.
    losses: u8,
    crashes: u8,
    freezes: u8,
    restarts: u8,
    stops: u8,
    model_failures: u8,
    restores: u8,
    /// The server lost the end of a journal.
    is_restored: bool,
}

impl Run {
    fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        self.entries.iter().take(self.end.into()).flatten().copied()
    }

    fn last(&self) -> Option<Entry> {
        self.iter().last()
    }

    fn is_answered(&self) -> bool {
        self.last().is_some_and(Entry::is_answer)
    }

    /// Appends under compare-and-set; returns whether the entry was stored.
    fn append(&mut self, after: u8, entry: Entry) -> bool {
        if self.end != after {
            return false;
        }
        *self.entries.get_mut(usize::from(self.end)).expect(FULL) = Some(entry);
        self.end += 1;
        true
    }

    /// Returns the run with its first entries only.
    fn cut(mut self, end: u8) -> Self {
        self.end = end;
        self.entries.iter_mut().skip(end.into()).for_each(|entry| *entry = None);
        self
    }

    /// Returns whether these are the first entries of a run, and not all of them.
    fn begins(&self, other: &Self) -> bool {
        self.end < other.end && *self == other.cut(self.end)
    }

    /// Returns whether the last entry is that of another run, at the same sequence. Earlier ones are not
    /// compared.
    fn ends_like(&self, other: &Self) -> bool {
        self.end == other.end && self.last() == other.last()
    }

    fn history(&self) -> History {
        let mut history = History::default();
        for entry in self.iter() {
            match entry {
                Entry::Claim(message, delivery) => history.add_claim(holder(message, delivery)),
                Entry::Released => history.add_release(),
                Entry::Turn(_) | Entry::Result | Entry::LastTurn => history.add_progress(),
                Entry::Completed | Entry::Failed | Entry::Poisoned => {}
            }
        }
        history
    }
}

fn holder(message: u8, delivery: u8) -> Holder {
    Holder { message: message.into(), delivery: delivery.into() }
}

fn handoff_of(message: u8) -> usize {
    usize::from(usize::from(message) == REPLAY)
}

fn key_of(job: Job) -> Key {
    (u8::from(usize::from(job.message) == REPLAY), job.attempt)
}

type Steps = Vec<(&'static str, World)>;

impl World {
    pub(crate) fn begin(scenario: &Scenario) -> Self {
        let mut queue = [None; MESSAGES];
        queue.iter_mut().take(scenario.copies).for_each(|message| *message = Some(FRESH));
        Self {
            runs: Default::default(),
            queue,
            workers: Default::default(),
            effects: [None; 3],
            paid: [0; 2],
            paid_again: false,
            letters: 0,
            replays: scenario.replays,
            replayed: false,
            acked_unanswered: false,
            losses: 0,
            crashes: scenario.crashes,
            freezes: scenario.freezes,
            restarts: scenario.restarts,
            stops: scenario.stops,
            model_failures: scenario.model_failures,
            restores: scenario.restores,
            is_restored: false,
        }
    }

    /// Returns the rule that this state violates.
    pub(crate) fn violated_rule(&self) -> Option<&'static str> {
        let answers = |run: &Run| run.iter().filter(|entry| entry.is_answer()).count();
        let poisoned = self.runs.iter().any(|run| run.last() == Some(Entry::Poisoned));
        let always = [
            (self.runs.iter().any(|run| answers(run) > 1), "a handoff has two answers"),
            (self.acked_unanswered, "a handoff was lost"),
        ];
        // What the server lost is gone if its writer is gone as well: then the handoff starts over.
        let is_gone = self.is_restored && self.losses > 0;
        let unless_gone = [
            (self.effects.iter().flatten().count() > 1, "an effect happened twice"),
            (self.paid_again, "a stored turn was paid again"),
            (
                self.paid.iter().any(|paid| *paid > 1 + self.losses),
                "a turn was paid more often than it was lost",
            ),
            (poisoned && u32::from(self.losses) < MAX_ATTEMPTS, "poisoned without enough losses"),
        ];
        let mut rules = always.into_iter().chain(unless_gone.into_iter().filter(|_| !is_gone));
        rules.find(|(is_violated, _)| *is_violated).map(|(_, rule)| rule)
    }

    pub(crate) fn is_finished(&self) -> bool {
        let replay = self.queue[REPLAY].is_none() && (!self.replayed || self.runs[1].is_answered());
        self.queue.iter().all(Option::is_none)
            && self.runs[0].is_answered()
            && replay
            && self.workers.iter().all(|worker| worker.job.is_none())
    }

    pub(crate) fn steps(&self, scenario: &Scenario) -> Steps {
        let mut steps = Steps::new();
        for number in 0..WORKERS {
            self.steps_of_worker(scenario, number, &mut steps);
        }
        self.steps_of_server(&mut steps);
        if self.replays > 0 {
            self.steps_of_operator(&mut steps);
        }
        steps.iter_mut().for_each(|(_, after)| after.renumber());
        steps
    }

    /// Gives deliveries that no claim refers to the lowest delivery counts that keep their order. A waiting
    /// copy is delivered again and again; how often makes no difference, so this keeps the state space
    /// finite.
    fn renumber(&mut self) {
        for number in 0..MESSAGES {
            let Some(mut message) = self.queue[number] else { continue };
            let claimed = self.runs.iter().flat_map(Run::iter).filter_map(|entry| match entry {
                Entry::Claim(message, delivery) if usize::from(message) == number => Some(delivery),
                _ => None,
            });
            let highest = claimed.max().unwrap_or(0);
            let is_about = |job: &&mut Job| usize::from(job.message) == number && job.delivery > highest;
            let mut open: Vec<&mut Job> =
                self.workers.iter_mut().filter_map(|worker| worker.job.as_mut()).filter(is_about).collect();
            open.sort_by_key(|job| job.delivery);
            let pending = message.pending;
            let (mut next, mut last) = (highest, highest);
            for job in open {
                // Two deliveries have the same count if the server forgot the first.
                next += u8::from(job.delivery != last);
                last = job.delivery;
                if pending.is_some_and(|(_, delivery)| delivery == last) {
                    message.pending = pending.map(|(worker, _)| (worker, next));
                }
                job.delivery = next;
            }
            message.deliveries = match message.pending {
                // Delivered to a worker that crashed.
                Some((worker, delivery)) if delivery > next => {
                    message.pending = Some((worker, next + 1));
                    next + 1
                }
                _ => next,
            };
            self.queue[number] = Some(message);
        }
    }
}

/// A message that was just published.
const FRESH: Message = Message { deliveries: 0, pending: None, forgotten: false };
