use super::{At, Entry, FRESH, Job, REPLAY, REPLAY_UNANSWERED, Steps, WORKERS, World};

impl World {
    pub(super) fn steps_of_server(&self, steps: &mut Steps) {
        for (number, message) in self.queue.iter().enumerate() {
            let Some(message) = message else { continue };
            match message.pending {
                // Also to one that is frozen: it lies in its socket.
                None => {
                    for worker in 0..WORKERS {
                        if self.workers[worker].job.is_none() {
                            steps.push(("deliver", self.delivered(number, worker)));
                        }
                    }
                }
                Some((worker, delivery)) => {
                    let holds = |job: Job| usize::from(job.message) == number && job.delivery == delivery;
                    let worker = self.workers[usize::from(worker)];
                    let beats = worker.job.is_some_and(holds) && !worker.frozen;
                    if !beats {
                        steps.push(("expire", self.expired(number)));
                    }
                }
            }
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

    fn delivered(&self, number: usize, worker: usize) -> Self {
        let mut after = *self;
        let message = after.queue[number].as_mut().expect("it is there");
        message.deliveries += u8::from(!std::mem::take(&mut message.forgotten));
        message.pending = Some((worker as u8, message.deliveries));
        after.workers[worker].job = Some(Job {
            message: number as u8,
            delivery: message.deliveries,
            at: At::Read,
            end: 0,
            attempt: 0,
            key: None,
            has_result: false,
            has_last: false,
            is_claimed: false,
            unsure: false,
            unheard: false,
        });
        after
    }

    fn expired(&self, number: usize) -> Self {
        let mut after = *self;
        let message = after.queue[number].as_mut().expect("it is there");
        let Some((worker, delivery)) = message.pending.take() else { return after };
        if let Some(job) = &mut after.workers[usize::from(worker)].job
            && usize::from(job.message) == number
            && job.delivery == delivery
        {
            after.losses += 1;
            // One that has not read it yet does not know how long it lay there.
            job.unsure = job.at != At::Read;
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
