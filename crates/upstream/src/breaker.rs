//! The circuit breaker: stops calls to an upstream that keeps failing. Pure; the time is an argument.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use crate::options;

#[derive(Debug)]
pub(crate) struct Breaker {
    options: options::Breaker,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// Half-open: one call tests whether the upstream works again.
    Probing,
}

/// Permission for one call. The caller reports the outcome; a permit that is dropped without a report does
/// not count.
#[derive(Debug)]
#[must_use = "the breaker needs the outcome of the call"]
pub(crate) struct Permit<'a> {
    breaker: &'a Breaker,
    probe: bool,
}

impl Breaker {
    pub(crate) fn new(options: options::Breaker) -> Self {
        Self { options, state: Mutex::new(State::Closed { failures: 0 }) }
    }

    pub(crate) fn is_open(&self, now: Instant) -> bool {
        match self.state() {
            State::Closed { .. } => false,
            State::Open { until } => now < until,
            State::Probing => true,
        }
    }

    /// Returns a permit if the breaker is closed, or if it is time for a probe and no probe is running.
    pub(crate) fn admit(&self, now: Instant) -> Option<Permit<'_>> {
        let mut admitted = None;
        self.change(|state| match state {
            State::Closed { .. } => {
                admitted = Some(false);
                state
            }
            State::Open { until } if now >= until => {
                admitted = Some(true);
                State::Probing
            }
            State::Open { .. } | State::Probing => state,
        });
        admitted.map(|probe| Permit { breaker: self, probe })
    }

    fn state(&self) -> State {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, next: impl FnOnce(State) -> State) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        *state = next(*state);
    }
}

impl Permit<'_> {
    pub(crate) fn succeeded(mut self) {
        self.probe = false;
        self.breaker.change(|_| State::Closed { failures: 0 });
    }

    pub(crate) fn failed(mut self, now: Instant) {
        let options = self.breaker.options;
        let open = State::Open { until: now + options.open_for };
        let probe = std::mem::take(&mut self.probe);
        self.breaker.change(|state| match state {
            State::Closed { failures } => {
                let failures = failures.saturating_add(1);
                if failures == options.failures { open } else { State::Closed { failures } }
            }
            State::Probing if probe => open,
            // The outcome of a call that started before the breaker opened.
            State::Probing | State::Open { .. } => state,
        });
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.probe {
            // The probe had no outcome, so the next call may probe.
            self.breaker.change(|_| State::Open { until: Instant::now() });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const OPEN_FOR: Duration = Duration::from_secs(10);

    fn breaker(failures: u32) -> Breaker {
        Breaker::new(options::Breaker { failures, open_for: OPEN_FOR })
    }

    #[test]
    fn consecutive_failures_open_the_breaker_and_a_success_resets_the_count() {
        let (breaker, now) = (breaker(2), Instant::now());
        breaker.admit(now).unwrap().failed(now);
        breaker.admit(now).unwrap().succeeded();
        breaker.admit(now).unwrap().failed(now);
        assert!(!breaker.is_open(now));
        breaker.admit(now).unwrap().failed(now);
        assert!(breaker.is_open(now) && breaker.admit(now).is_none());
    }

    #[test]
    fn after_the_open_time_one_call_probes() {
        let (breaker, now) = (breaker(1), Instant::now());
        breaker.admit(now).unwrap().failed(now);
        let later = now + OPEN_FOR;
        let probe = breaker.admit(later).unwrap();
        assert!(breaker.admit(later).is_none(), "one probe only");
        probe.failed(later);
        assert!(breaker.admit(later).is_none(), "the probe failed");
        breaker.admit(later + OPEN_FOR).unwrap().succeeded();
        assert!(breaker.admit(later).is_some() && breaker.admit(later).is_some());
    }

    #[test]
    fn after_a_dropped_probe_the_next_call_probes() {
        let (breaker, now) = (breaker(1), Instant::now());
        breaker.admit(now).unwrap().failed(now);
        drop(breaker.admit(now + OPEN_FOR).unwrap());
        assert!(breaker.admit(now + OPEN_FOR).is_some());
    }

    #[test]
    fn with_a_limit_of_zero_the_breaker_never_opens() {
        let (breaker, now) = (breaker(0), Instant::now());
        for _ in 0..100 {
            breaker.admit(now).unwrap().failed(now);
        }
    }
}
