//! Steps of a worker: one handoff from the delivery to its acknowledgement.

use protocol::ClaimDecision;

use super::{
    Entry, Job, MAX_ATTEMPTS, Rule, Run, Scenario, Stage, Steps, Worker, World, handoff_of, holder, key_of,
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
            steps.push(("stop", self.stop(scenario, number, job)));
        }
        self.work(scenario, number, job, steps);
    }

    /// Stops in order: stores what is in memory with a `Released` entry, then hands the message back.
    fn stop(&self, scenario: &Scenario, number: usize, job: Job) -> Self {
        let mut after = *self;
        after.stops -= 1;
        while let Some(written) = after.write_again(scenario, job) {
            after = written;
        }
        // A worker that finds it is no longer the owner leaves the message alone.
        if !job.unsure && (!job.is_claimed || after.release(job)) {
            after.losses += u8::from(after.hand_back(job));
        }
        after.workers[number] = Worker::default();
        after
    }

    fn release(&mut self, job: Job) -> bool {
        let run = &mut self.runs[handoff_of(job.message)];
        if !run.ends_like(&job.known) {
            return false;
        }
        let mut end = job.known.end;
        let in_memory = match job.stage {
            Stage::StoreTurn => Some(Entry::Turn(key_of(job))),
            Stage::StoreResult => Some(Entry::Result),
            Stage::Commit(Entry::Completed) if !job.has_last => Some(Entry::LastTurn),
            // The answer is stored after the end that the journal knows of, so the append would be refused.
            Stage::Ack => return false,
            _ => None,
        };
        if let Some(entry) = in_memory {
            end += u8::from(run.append(end, entry));
        }
        run.append(end, Entry::Released)
    }

    /// Hands the message back; the server does not check whose delivery it was. Returns whether it was
    /// another worker's.
    fn hand_back(&mut self, job: Job) -> bool {
        let message = self.queue[usize::from(job.message)].as_mut();
        message
            .and_then(|message| message.pending.take())
            .is_some_and(|(_, delivery)| delivery != job.delivery)
    }

    /// Writes the next entry again that the server lost of what the worker knows. `None` if it lost none, if
    /// another worker has written since, or if another one has settled the message.
    fn write_again(&self, scenario: &Scenario, job: Job) -> Option<Self> {
        let number = handoff_of(job.message);
        let run = self.runs[number];
        let is_queued = self.queue[usize::from(job.message)].is_some();
        if !scenario.writes_again || !is_queued || !run.begins(&job.known) {
            return None;
        }
        let mut after = *self;
        after.runs[number] = job.known.cut(run.end + 1);
        Some(after)
    }

    fn with_job(&self, number: usize, job: Job) -> Self {
        let mut after = *self;
        after.workers[number].job = Some(job);
        after
    }

    /// Drops the job and leaves the message alone.
    fn drop_job(&self, number: usize) -> Self {
        let mut after = *self;
        after.workers[number].job = None;
        after
    }

    fn work(&self, scenario: &Scenario, number: usize, job: Job, steps: &mut Steps) {
        let run = &self.runs[handoff_of(job.message)];
        let at = |stage| Job { stage, unconfirmed: false, ..job };
        match job.stage {
            Stage::Read => steps.push(("read", self.read(scenario, number, job))),
            Stage::LookInQueue => {
                let history = job.known.history();
                let me = holder(job.message, job.delivery);
                let copy = history.held_by_copy(me).expect("a copy holds it");
                let is_queued = self.queue[usize::try_from(copy).expect("few messages")].is_some();
                steps.push((
                    "look in the queue",
                    self.apply(number, job, history.decide(me, is_queued, MAX_ATTEMPTS)),
                ));
            }
            Stage::Claim => {
                let claim = Entry::Claim(job.message, job.delivery);
                self.append(scenario, number, job, claim, steps, |job| Job {
                    is_claimed: true,
                    stage: match (job.key, job.has_result, job.has_last) {
                        (_, _, true) => Stage::Commit(Entry::Completed),
                        (None, ..) => Stage::Ask,
                        (Some(_), false, _) => Stage::Call,
                        (Some(_), true, _) => Stage::AskLast,
                    },
                    ..job
                })
            }
            // Checked before every model call: neither a clock nor a heartbeat proves that no other worker
            // has taken over.
            Stage::Ask | Stage::AskLast if !run.ends_like(&job.known) => {
                steps.push(match self.write_again(scenario, job) {
                    Some(after) => ("write again", after),
                    None => ("fenced", self.drop_job(number)),
                })
            }
            Stage::Ask => {
                let mut after = self.with_job(number, at(Stage::StoreTurn));
                after.paid[0] += 1;
                after.paid_again |= self.lineage(job).any(|entry| matches!(entry, Entry::Turn(_)));
                steps.push(("ask", after));
            }
            Stage::Call if job.unsure => {
                steps.push(("confirm", self.confirm_ownership(scenario, number, job, Stage::Call)))
            }
            Stage::StoreTurn => {
                let key = key_of(job);
                self.append(scenario, number, job, Entry::Turn(key), steps, |job| Job {
                    stage: Stage::Call,
                    key: Some(key),
                    ..job
                });
            }
            Stage::Call => steps.push(("begin the call", self.with_job(number, at(Stage::CallNow)))),
            Stage::CallNow => {
                let mut after = self.with_job(number, at(Stage::StoreResult));
                let key = job.key.expect("the turn is stored");
                if !after.effects.contains(&Some(key)) {
                    *after.effects.iter_mut().find(|it| it.is_none()).expect("room") = Some(key);
                }
                steps.push(("call", after));
            }
            Stage::StoreResult => {
                self.append(scenario, number, job, Entry::Result, steps, |job| Job {
                    stage: Stage::AskLast,
                    has_result: true,
                    ..job
                });
            }
            Stage::AskLast => {
                let mut after = self.with_job(number, at(Stage::Commit(Entry::Completed)));
                after.paid[1] += 1;
                after.paid_again |= self.lineage(job).any(|entry| entry == Entry::LastTurn);
                steps.push(("ask for the answer", after));
                if self.model_failures > 0 {
                    let mut after = self.with_job(number, at(Stage::Letter(Entry::Failed)));
                    after.model_failures -= 1;
                    steps.push(("model fails", after));
                }
            }
            Stage::Letter(_) | Stage::Commit(_) if job.unsure => {
                steps.push(("confirm", self.confirm_ownership(scenario, number, job, job.stage)));
            }
            Stage::Letter(answer) => {
                let mut after = self.with_job(number, at(Stage::Commit(answer)));
                after.letters = after.letters.max(1);
                steps.push(("store a letter", after));
            }
            Stage::Commit(answer) => {
                self.append(scenario, number, job, answer, steps, |job| Job { stage: Stage::Ack, ..job });
            }
            Stage::Ack => {
                let mut after = self.drop_job(number);
                after.acked_unanswered |= !run.is_answered();
                after.queue[usize::from(job.message)] = None;
                steps.push(("acknowledge", after));
            }
        }
    }

    /// Confirms ownership: the run must still end with the worker's own entry, if need be after what the
    /// server lost is written again.
    fn confirm_ownership(&self, scenario: &Scenario, number: usize, job: Job, stage: Stage) -> Self {
        if self.runs[handoff_of(job.message)].ends_like(&job.known) {
            return self.with_job(number, Job { stage, unsure: false, ..job });
        }
        self.write_again(scenario, job).unwrap_or_else(|| self.drop_job(number))
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
            known: *run,
            attempt: u8::try_from(history.attempts).expect("few attempts") + 1,
            key,
            has_result: self.lineage(job).any(|entry| entry == Entry::Result),
            has_last: self.lineage(job).any(|entry| entry == Entry::LastTurn),
            ..job
        };
        if run.is_answered() {
            return self.with_job(number, Job { stage: Stage::Ack, ..job });
        }
        let me = holder(job.message, job.delivery);
        match scenario.rule {
            Rule::Messages if history.held_by_copy(me).is_some() => {
                self.with_job(number, Job { stage: Stage::LookInQueue, ..job })
            }
            Rule::Messages => self.apply(number, job, history.decide(me, false, MAX_ATTEMPTS)),
            Rule::AgeOfLastEntry if history.attempts_without_progress >= MAX_ATTEMPTS => {
                self.apply(number, job, ClaimDecision::Poisoned)
            }
            Rule::AgeOfLastEntry => self.apply(number, job, ClaimDecision::Claim),
        }
    }

    fn apply(&self, number: usize, job: Job, decision: ClaimDecision) -> Self {
        match decision {
            ClaimDecision::Claim => self.with_job(number, Job { stage: Stage::Claim, ..job }),
            ClaimDecision::Poisoned => {
                self.with_job(number, Job { stage: Stage::Letter(Entry::Poisoned), ..job })
            }
            ClaimDecision::Superseded => self.drop_job(number),
            ClaimDecision::WaitForCopy => {
                let mut after = self.drop_job(number);
                after.hand_back(job);
                after
            }
        }
    }

    /// Appends under compare-and-set; with a restart left, also without learning the outcome.
    fn append(
        &self,
        scenario: &Scenario,
        number: usize,
        job: Job,
        entry: Entry,
        steps: &mut Steps,
        stored: impl Fn(Job) -> Job,
    ) {
        let run = handoff_of(job.message);
        let end = job.known.end;
        let next = |world: &Self| {
            let mut known = job.known;
            known.append(end, entry);
            world.with_job(number, stored(Job { known, unconfirmed: false, ..job }))
        };
        // A claim that comes too late is tried again after another read; any other job is dropped.
        let too_late = || match job.stage {
            Stage::Claim => self.with_job(number, Job { stage: Stage::Read, unconfirmed: false, ..job }),
            _ => self.drop_job(number),
        };
        if job.unconfirmed && self.runs[run].end == end + 1 && self.runs[run].last() == Some(entry) {
            steps.push(("find it stored", next(self)));
            return;
        }
        let mut after = *self;
        // A worker compares its last entry before it appends: after a restore, the sequences of another one
        // may be those that it knows.
        if !self.runs[run].ends_like(&job.known) || !after.runs[run].append(end, entry) {
            steps.push(match self.write_again(scenario, job) {
                Some(after) => ("write again", after),
                None => ("too late", too_late()),
            });
            return;
        }
        // After a restore a copy may find no claim, and begin anew while the owner still works.
        let is_other = |other: &Job| other.is_claimed && handoff_of(other.message) == run;
        if self.is_restored
            && job.stage == Stage::Claim
            && self.workers.iter().filter_map(|worker| worker.job.as_ref()).any(is_other)
        {
            after.losses += 1;
        }
        steps.push(("append", next(&after)));
        if self.restarts > 0 {
            let mut unconfirmed = after.with_job(number, Job { unconfirmed: true, ..job });
            unconfirmed.restarts -= 1;
            steps.push(("append, unconfirmed", unconfirmed));
        }
    }
}
