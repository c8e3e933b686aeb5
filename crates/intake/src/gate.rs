//! Whether messages may be pulled, given the state of all breakers.

use tokio::sync::watch;

/// Whether messages may be pulled, given the state of all breakers and holds.
#[derive(Clone, Debug)]
pub struct Gate {
    counts: watch::Receiver<Counts>,
    /// Number of the current trial, and how many messages were worked on when it began.
    trial: Option<(u64, usize)>,
}

/// Receives the state of breakers. Closes the gate while one of them is open.
#[derive(Clone, Debug)]
pub struct Breakers(watch::Sender<Counts>);

/// Keeps the gate closed until it is dropped.
#[must_use = "the gate opens when this is dropped"]
#[derive(Debug)]
pub struct Hold(Breakers);

/// How many breakers are open and half-open.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    open: u32,
    half_open: u32,
    /// Number of times that a breaker became half-open.
    trials: u64,
}

/// State of one breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Closed,
    /// Nothing is pulled.
    Open,
    /// A probe succeeded. One message of each kind is pulled to confirm it.
    HalfOpen,
}

/// How many messages may be pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PullAllowance {
    All,
    /// One, to test whether the outage is over.
    One,
    /// None until that test has a result.
    None,
}

impl Gate {
    /// Creates a gate that is open, and what closes it.
    pub fn new() -> (Breakers, Self) {
        let (sender, receiver) = watch::channel(Counts::default());
        (Breakers(sender), Self { counts: receiver, trial: None })
    }

    /// Waits until messages may be pulled.
    pub(crate) async fn wait_open(&mut self) {
        // The sender lives as long as the program, and without it the gate could not close.
        drop(self.counts.wait_for(|counts| counts.open == 0).await);
    }

    /// Waits until messages may not be pulled.
    pub(crate) async fn wait_closed(&mut self) {
        if self.counts.wait_for(|counts| counts.open > 0).await.is_err() {
            std::future::pending().await
        }
    }

    /// Returns how many messages may be pulled while `running` ones are in progress. Begins a new trial if a
    /// breaker became half-open.
    pub(crate) fn allowance(&mut self, running: usize) -> PullAllowance {
        let counts = *self.counts.borrow();
        if counts.half_open == 0 {
            return PullAllowance::All;
        }
        let (trial, before) = *self.trial.get_or_insert((counts.trials, running));
        if trial != counts.trials {
            self.trial = Some((counts.trials, running));
            return PullAllowance::One;
        }
        if running > before { PullAllowance::None } else { PullAllowance::One }
    }

    #[cfg(test)]
    pub(crate) fn is_open(&self) -> bool {
        self.counts.borrow().open == 0
    }
}

impl Breakers {
    /// Closes the gate until the hold is dropped, for a reason that is no outage.
    pub fn hold(&self) -> Hold {
        self.change(State::Closed, State::Open);
        Hold(self.clone())
    }

    /// Records that the state of one breaker changed.
    pub(crate) fn change(&self, from: State, to: State) {
        self.0.send_modify(|counts| {
            if let Some(before) = counts.count(from) {
                *before -= 1;
            }
            if let Some(after) = counts.count(to) {
                *after += 1;
            }
            counts.trials += u64::from(to == State::HalfOpen);
        });
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.change(State::Open, State::Closed);
    }
}

impl Counts {
    fn count(&mut self, state: State) -> Option<&mut u32> {
        match state {
            State::Closed => None,
            State::Open => Some(&mut self.open),
            State::HalfOpen => Some(&mut self.half_open),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn gate_is_closed_while_there_is_a_hold() {
        let (breakers, mut gate) = Gate::new();
        let (first, second) = (breakers.hold(), breakers.hold());
        gate.wait_closed().await;
        drop(first);
        assert!(!gate.is_open(), "there is another one");
        drop(second);
        gate.wait_open().await;
        assert_eq!(gate.allowance(0), PullAllowance::All, "a hold is no outage, so nothing is tried first");
    }
}
