//! One state, and the states that can follow.
//!
//! The handoff takes two model turns: the first calls a tool with an effect, the second is the answer.

mod server; // deliveries, expiry, restarts, and the operator
mod worker; // one handoff, step by step

use protocol::{History, Holder};

const WORKERS: usize = 2;
const MAX_ATTEMPTS: u32 = 2;
const MAX_ENTRIES: usize = 14;
/// Messages of the queue: two copies, the replay of a handoff that failed, the replay of one without an answer.
const MESSAGES: usize = 4;
const REPLAY: usize = 2;
const REPLAY_UNANSWERED: usize = 3;
const FULL: &str = "the journal of the model is full";

/// Who may take over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// As it is now: [`History::turn`].
    Messages,
    /// As it was: a copy may when the last entry is old, which any entry is in a long turn.
    AgeOfLastEntry,
}

/// What may happen, and how often.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Entry {
    Claim(u8, u8),
    Released,
    /// The first turn, and the key of the call that it makes.
    Turn(Key),
    Result,
    /// The last turn, which is stored only when it cannot be answered at once.
    LastTurn,
    Completed,
    /// The model failed for good.
    Failed,
    Poisoned,
}

impl Entry {
    fn is_answer(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Poisoned)
    }
}

/// Of a call: the handoff and the attempt that made it.
type Key = (u8, u8);

/// Journal and answer of one handoff: a chain with one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Run {
    entries: [Option<Entry>; MAX_ENTRIES],
    end: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Message {
    deliveries: u8,
    /// To which worker the server has delivered it, if it is not to be delivered again yet.
    pending: Option<(u8, u8)>,
    /// The server was killed before it wrote down the last delivery: the next one has the same number.
    forgotten: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Worker {
    frozen: bool,
    job: Option<Job>,
}

/// What a worker keeps in memory about a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Job {
    message: u8,
    delivery: u8,
    at: At,
    /// Where the run ends, as far as it knows.
    end: u8,
    attempt: u8,
    /// The key of the call, once the first turn is stored.
    key: Option<Key>,
    has_result: bool,
    has_last: bool,
    is_claimed: bool,
    /// Its time is over, by its own clock.
    unsure: bool,
    /// It sent something and did not hear what became of it.
    unheard: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Read,
    /// A copy holds it: is that message still in the queue?
    LookInQueue,
    Claim,
    Ask,
    StoreTurn,
    /// About to call; still to be made sure that it is ours.
    Call,
    CallNow,
    StoreResult,
    AskLast,
    /// About to store a dead letter, then this answer.
    Letter(Entry),
    Commit(Entry),
    Ack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// Of the handoff, and of its replay.
    runs: [Run; 2],
    queue: [Option<Message>; MESSAGES],
    workers: [Worker; WORKERS],
    /// Keys under which the gateway has run the tool.
    effects: [Option<Key>; 3],
    /// How often each turn was paid.
    paid: [u8; 2],
    /// Of a turn that was stored before it was asked for.
    paid_again: bool,
    letters: u8,
    replays: u8,
    replayed: bool,
    acked_unanswered: bool,
    /// Deliveries that ended by a death, a freeze or a restart.
    losses: u8,
    crashes: u8,
    freezes: u8,
    restarts: u8,
    stops: u8,
    model_failures: u8,
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

    /// The compare-and-set.
    fn append(&mut self, after: u8, entry: Entry) -> bool {
        if self.end != after {
            return false;
        }
        *self.entries.get_mut(usize::from(self.end)).expect(FULL) = Some(entry);
        self.end += 1;
        true
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
        }
    }

    /// The promise that this state breaks.
    pub(crate) fn broken(&self) -> Option<&'static str> {
        let answers = |run: &Run| run.iter().filter(|entry| entry.is_answer()).count();
        let poisoned = self.runs.iter().any(|run| run.last() == Some(Entry::Poisoned));
        let rules = [
            (self.runs.iter().any(|run| answers(run) > 1), "a handoff has two answers"),
            (self.effects.iter().flatten().count() > 1, "an effect happened twice"),
            (self.paid_again, "a stored turn was paid again"),
            (
                self.paid.iter().any(|paid| *paid > 1 + self.losses),
                "a turn was paid more often than it was lost",
            ),
            (poisoned && u32::from(self.losses) < MAX_ATTEMPTS, "poison without deaths"),
            (self.acked_unanswered, "a handoff was lost"),
        ];
        rules.into_iter().find(|(is_broken, _)| *is_broken).map(|(_, rule)| rule)
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

    /// Gives deliveries that no claim names the lowest numbers that keep their order. A copy that waits is delivered again and
    /// again; how often makes no difference.
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
                // Two deliveries may have one number, if the server forgot the first.
                next += u8::from(job.delivery != last);
                last = job.delivery;
                if pending.is_some_and(|(_, delivery)| delivery == last) {
                    message.pending = pending.map(|(worker, _)| (worker, next));
                }
                job.delivery = next;
            }
            message.deliveries = match message.pending {
                // Delivered to a worker that is gone.
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
