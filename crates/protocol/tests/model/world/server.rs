//! Steps of the server (delivery, expiry, restart) and of the operator (replay).

use super::{Entry, FRESH, Job, REPLAY, REPLAY_UNANSWERED, Run, Stage, Steps, WORKERS, World};

impl World {
    pub(super) fn steps_of_server(&self, steps: &mut Steps) {
        for (number, message) in self.queue.iter().enumerate() {
            let Some(message) = message else { continue };
            match message.pending {
                // Also to a frozen worker: the message waits in its socket.
                None => {
                    for worker in 0..WORKERS {
                        if self.workers[worker].job.is_none() {
                            steps.push(("deliver", self.deliver(number, worker)));
                        }
                    }
                }
                Some((worker, delivery)) => {
                    let holds = |job: Job| usize::from(job.message) == number && job.delivery == delivery;
                    let worker = self.workers[usize::from(worker)];
                    let sends_heartbeats = worker.job.is_some_and(holds) && !worker.frozen;
                    if !sends_heartbeats {
                        steps.push(("expire", self.expire(number)));
                    }
                }
            }
        }
        if self.restores > 0 {
            self.restore(steps);
        }
        if self.restarts > 0 {
            for forgets in [false, true] {
                let mut after = *self;
                after.restarts -= 1;
                for message in after.queue.iter_mut().flatten() {
                    if message.pending.take().is_some() {
                        after.losses += 1;
                        message.forgotten = forgets;
                    }
                }
                steps.push(("restart the server", after));
            }
        }
    }

    /// Loses the end of a journal. An answer that is lost is not a worker's to restore: who waits for it
    /// hands off again.
    fn restore(&self, steps: &mut Steps) {
        for (number, run) in self.runs.iter().enumerate().filter(|(_, run)| !run.is_answered()) {
            for end in 0..run.end {
                let mut after = *self;
                after.restores -= 1;
                after.is_restored = true;
                // Without its writer, what is lost is gone.
                let knows = |job: Job| job.is_claimed && job.known == *run;
                if !self.workers.iter().filter_map(|worker| worker.job).any(knows) {
                    after.losses += 1;
                }
                after.runs[number] = run.cut(end);
                steps.push(("restore the stream", after));
            }
        }
    }

    fn deliver(&self, number: usize, worker: usize) -> Self {
        let mut after = *self;
        let message = after.queue[number].as_mut().expect("the message is queued");
        message.deliveries += u8::from(!std::mem::take(&mut message.forgotten));
        message.pending = Some((worker as u8, message.deliveries));
        after.workers[worker].job = Some(Job {
            message: number as u8,
            delivery: message.deliveries,
            stage: Stage::Read,
            known: Run::default(),
            attempt: 0,
            key: None,
            has_result: false,
            has_last: false,
            is_claimed: false,
            unsure: false,
            unconfirmed: false,
        });
        after
    }

    fn expire(&self, number: usize) -> Self {
        let mut after = *self;
        let message = after.queue[number].as_mut().expect("the message is queued");
        let Some((worker, delivery)) = message.pending.take() else { return after };
        if let Some(job) = &mut after.workers[usize::from(worker)].job
            && usize::from(job.message) == number
            && job.delivery == delivery
        {
            after.losses += 1;
            // A worker that has not read the message yet does not know how long it waited in the socket.
            job.unsure = job.stage != Stage::Read;
        }
        after
    }

    pub(super) fn steps_of_operator(&self, steps: &mut Steps) {
        let run = &self.runs[0];
        let is_free = self.runs[1].end == 0 && self.queue[REPLAY].is_none() && !self.replayed;
        if self.letters > 0 && matches!(run.last(), Some(Entry::Failed | Entry::Poisoned)) && is_free {
            let mut after = *self;
            (after.queue[REPLAY], after.replayed) = (Some(FRESH), true);
            (after.letters, after.replays) = (after.letters - 1, after.replays - 1);
            steps.push(("replay", after));
        }
        if self.letters > 0 && !run.is_answered() && self.queue[REPLAY_UNANSWERED].is_none() {
            let mut after = *self;
            after.queue[REPLAY_UNANSWERED] = Some(FRESH);
            (after.letters, after.replays) = (after.letters - 1, after.replays - 1);
            steps.push(("replay under its own id", after));
        }
    }
}
