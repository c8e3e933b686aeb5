use protocol::Turn;

use super::{
    At, Entry, Job, MAX_ATTEMPTS, Rule, Run, Scenario, Steps, Worker, World, handoff_of, holder, key_of,
};

impl World {
    pub(super) fn steps_of_worker(&self, scenario: &Scenario, number: usize, steps: &mut Steps) {
        let worker = self.workers[number];
        if worker.frozen {
            let mut after = *self;
            after.workers[number].frozen = false;
            steps.push(("thaw", after));
        }
        let Some(job) = worker.job else { return };
        if self.crashes > 0 {
            let mut after = *self;
            after.crashes -= 1;
            after.losses += 1;
            after.workers[number] = Worker::default();
            steps.push(("crash", after));
        }
        if worker.frozen {
            return;
        }
        if self.freezes > 0 {
            let mut after = *self;
            after.freezes -= 1;
            after.workers[number].frozen = true;
            steps.push(("freeze", after));
        }
        if self.stops > 0 {
            steps.push(("stop", self.stopped(number, job)));
        }
        self.work(scenario, number, job, steps);
    }

    /// Orderly: what is in memory is stored with the word that it is handed back, then the message is.
    fn stopped(&self, number: usize, job: Job) -> Self {
        let mut after = *self;
        after.stops -= 1;
        // One that finds out that the handoff is not its own any more leaves the message alone.
        if !job.unsure && (!job.is_claimed || after.release(job)) {
            after.losses += u8::from(after.hand_back(job));
        }
        after.workers[number] = Worker::default();
        after
    }

    fn release(&mut self, job: Job) -> bool {
        let run = &mut self.runs[handoff_of(job.message)];
        let mut end = job.end;
        let in_memory = match job.at {
            At::StoreTurn => Some(Entry::Turn(key_of(job))),
            At::StoreResult => Some(Entry::Result),
            At::Commit(Entry::Completed) if !job.has_last => Some(Entry::LastTurn),
            // The answer is stored behind what the journal knows as its end, so this is refused.
            At::Ack => return false,
            _ => None,
        };
        if let Some(entry) = in_memory {
            end += u8::from(run.append(end, entry));
        }
        run.append(end, Entry::Released)
    }

    /// The server does not ask whose delivery it was. Returns whether it was another's.
    fn hand_back(&mut self, job: Job) -> bool {
        let message = self.queue[usize::from(job.message)].as_mut();
        message
            .and_then(|message| message.pending.take())
            .is_some_and(|(_, delivery)| delivery != job.delivery)
    }

    fn with(&self, number: usize, job: Job) -> Self {
        let mut after = *self;
        after.workers[number].job = Some(job);
        after
    }

    /// Its work is dropped; the message is left alone.
    fn lost(&self, number: usize) -> Self {
        let mut after = *self;
        after.workers[number].job = None;
        after
    }

    fn work(&self, scenario: &Scenario, number: usize, job: Job, steps: &mut Steps) {
        let run = &self.runs[handoff_of(job.message)];
        let at = |at| Job { at, unheard: false, ..job };
        match job.at {
            At::Read => steps.push(("read", self.read(scenario, number, job))),
            At::LookInQueue => {
                let history = run_up_to(run, job.end).history();
                let me = holder(job.message, job.delivery);
                let copy = history.held_by_copy(me).expect("a copy holds it");
                let is_queued = self.queue[usize::try_from(copy).expect("few messages")].is_some();
                steps.push((
                    "look in the queue",
                    self.decided(number, job, history.turn(me, is_queued, MAX_ATTEMPTS)),
                ));
            }
            At::Claim => {
                self.append(number, job, Entry::Claim(job.message, job.delivery), steps, |job| Job {
                    is_claimed: true,
                    at: match (job.key, job.has_result, job.has_last) {
                        (_, _, true) => At::Commit(Entry::Completed),
                        (None, ..) => At::Ask,
                        (Some(_), false, _) => At::Call,
                        (Some(_), true, _) => At::AskLast,
                    },
                    ..job
                })
            }
            // Looked at before every question: no clock and no heartbeat tells that another has not taken over.
            At::Ask | At::AskLast if run.end != job.end => steps.push(("fenced", self.lost(number))),
            At::Ask => {
                let mut after = self.with(number, at(At::StoreTurn));
                after.paid[0] += 1;
                after.paid_again |= self.lineage(job).any(|entry| matches!(entry, Entry::Turn(_)));
                steps.push(("ask", after));
            }
            At::Call if job.unsure => steps.push(("confirm", self.confirmed(number, job, At::Call))),
            At::StoreTurn => {
                let key = key_of(job);
                self.append(number, job, Entry::Turn(key), steps, |job| Job {
                    at: At::Call,
                    key: Some(key),
                    ..job
                });
            }
            At::Call => steps.push(("begin the call", self.with(number, at(At::CallNow)))),
            At::CallNow => {
                let mut after = self.with(number, at(At::StoreResult));
                let key = job.key.expect("the turn is stored");
                if !after.effects.contains(&Some(key)) {
                    *after.effects.iter_mut().find(|it| it.is_none()).expect("room") = Some(key);
                }
                steps.push(("call", after));
            }
            At::StoreResult => {
                self.append(number, job, Entry::Result, steps, |job| Job {
                    at: At::AskLast,
                    has_result: true,
                    ..job
                });
            }
            At::AskLast => {
                let mut after = self.with(number, at(At::Commit(Entry::Completed)));
                after.paid[1] += 1;
                after.paid_again |= self.lineage(job).any(|entry| entry == Entry::LastTurn);
                steps.push(("ask for the answer", after));
                if self.model_failures > 0 {
                    let mut after = self.with(number, at(At::Letter(Entry::Failed)));
                    after.model_failures -= 1;
                    steps.push(("model fails", after));
                }
            }
            At::Letter(_) | At::Commit(_) if job.unsure => {
                steps.push(("confirm", self.confirmed(number, job, job.at)));
            }
            At::Letter(answer) => {
                let mut after = self.with(number, at(At::Commit(answer)));
                after.letters = after.letters.max(1);
                steps.push(("store a letter", after));
            }
            At::Commit(answer) => {
                self.append(number, job, answer, steps, |job| Job { at: At::Ack, ..job });
            }
            At::Ack => {
                let mut after = self.lost(number);
                after.acked_unanswered |= !run.is_answered();
                after.queue[usize::from(job.message)] = None;
                steps.push(("acknowledge", after));
            }
        }
    }

    /// Looks whether the run still ends with its own entry.
    fn confirmed(&self, number: usize, job: Job, at: At) -> Self {
        if self.runs[handoff_of(job.message)].end == job.end {
            self.with(number, Job { at, unsure: false, ..job })
        } else {
            self.lost(number)
        }
    }

    fn lineage(&self, job: Job) -> impl Iterator<Item = Entry> + '_ {
        let own = handoff_of(job.message);
        self.runs.iter().take(own + 1).flat_map(Run::iter)
    }

    fn read(&self, scenario: &Scenario, number: usize, job: Job) -> Self {
        let run = &self.runs[handoff_of(job.message)];
        let history = run.history();
        let key = self.lineage(job).find_map(|entry| match entry {
            Entry::Turn(key) => Some(key),
            _ => None,
        });
        let job = Job {
            end: run.end,
            attempt: u8::try_from(history.attempts).expect("few attempts") + 1,
            key,
            has_result: self.lineage(job).any(|entry| entry == Entry::Result),
            has_last: self.lineage(job).any(|entry| entry == Entry::LastTurn),
            ..job
        };
        if run.is_answered() {
            return self.with(number, Job { at: At::Ack, ..job });
        }
        let me = holder(job.message, job.delivery);
        match scenario.rule {
            Rule::Messages if history.held_by_copy(me).is_some() => {
                self.with(number, Job { at: At::LookInQueue, ..job })
            }
            Rule::Messages => self.decided(number, job, history.turn(me, false, MAX_ATTEMPTS)),
            Rule::AgeOfLastEntry if history.fruitless >= MAX_ATTEMPTS => {
                self.decided(number, job, Turn::Poisoned)
            }
            Rule::AgeOfLastEntry => self.decided(number, job, Turn::Take),
        }
    }

    fn decided(&self, number: usize, job: Job, turn: Turn) -> Self {
        match turn {
            Turn::Take => self.with(number, Job { at: At::Claim, ..job }),
            Turn::Poisoned => self.with(number, Job { at: At::Letter(Entry::Poisoned), ..job }),
            Turn::Superseded => self.lost(number),
            Turn::WaitForCopy => {
                let mut after = self.lost(number);
                after.hand_back(job);
                after
            }
        }
    }

    /// An append under the compare-and-set, heard or not.
    fn append(&self, number: usize, job: Job, entry: Entry, steps: &mut Steps, stored: impl Fn(Job) -> Job) {
        let run = handoff_of(job.message);
        let next = |world: &Self| {
            let job = stored(Job { end: job.end + 1, unheard: false, ..job });
            world.with(number, job)
        };
        // A claim that comes too late is made anew after another look; everything else is lost.
        let too_late = || match job.at {
            At::Claim => self.with(number, Job { at: At::Read, unheard: false, ..job }),
            _ => self.lost(number),
        };
        if job.unheard && self.runs[run].end == job.end + 1 && self.runs[run].last() == Some(entry) {
            steps.push(("find it stored", next(self)));
            return;
        }
        let mut after = *self;
        if !after.runs[run].append(job.end, entry) {
            steps.push(("too late", too_late()));
            return;
        }
        steps.push(("append", next(&after)));
        if self.restarts > 0 {
            let mut unheard = after.with(number, Job { unheard: true, ..job });
            unheard.restarts -= 1;
            steps.push(("append, unheard", unheard));
        }
    }
}

/// The run as it was when the job read it.
fn run_up_to(run: &Run, end: u8) -> Run {
    let mut earlier = *run;
    earlier.end = end;
    earlier.entries.iter_mut().skip(end.into()).for_each(|entry| *entry = None);
    earlier
}
