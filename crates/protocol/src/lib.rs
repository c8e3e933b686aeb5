//! Who has had a handoff, and who may take it up next. Pure: no I/O, no clock.
//!
//! The server's order alone decides, no clock of any instance. A handoff belongs to the queue message that it was claimed
//! with, for as long as that message is in the queue: the server redelivers it when its owner dies, so a copy never has to
//! step in. Of two deliveries of one message the one that the server counts higher wins.

/// Who has had the handoff, and what came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// How often it was claimed.
    pub attempts: u32,
    /// The last attempts, as far as they got nothing done and did not end by a hand-back.
    pub fruitless: u32,
    holder: Option<Holder>,
}

/// One delivery of one message of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The sequence of the message in the queue.
    pub message: u64,
    /// Which delivery of it, as the server counts them.
    pub delivery: u64,
}

/// What a delivery may do about a handoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    Take,
    /// Another message of the queue holds it, and is still there. To be delivered again later.
    WaitForCopy,
    /// This or a later delivery of the same message holds it already. A server that was killed may deliver a message again
    /// under the same number; if the holder is gone, the next delivery has a higher one.
    Superseded,
    /// This many attempts in a row got nothing done.
    Poisoned,
}

impl History {
    /// Adds a claim.
    pub fn add_claim(&mut self, holder: Holder) {
        self.attempts = self.attempts.saturating_add(1);
        self.fruitless = self.fruitless.saturating_add(1);
        self.holder = Some(holder);
    }

    /// Adds a hand-back. Only one of what is held counts: a second one says nothing new.
    pub fn add_release(&mut self) {
        if self.holder.take().is_some() {
            self.fruitless = self.fruitless.saturating_sub(1);
        }
    }

    /// Adds progress: a handoff that gets further each time is not poison.
    pub fn add_progress(&mut self) {
        self.fruitless = 0;
    }

    /// The other message of the queue that holds the handoff. Whether it is still in the queue decides.
    pub fn held_by_copy(&self, claimant: Holder) -> Option<u64> {
        self.holder.map(|holder| holder.message).filter(|message| *message != claimant.message)
    }

    /// Decides. `copy_is_queued` tells of the message that [`Self::held_by_copy`] names.
    pub fn turn(&self, claimant: Holder, copy_is_queued: bool, max_attempts: u32) -> Turn {
        match self.holder {
            Some(holder) if holder.message != claimant.message && copy_is_queued => Turn::WaitForCopy,
            Some(holder) if holder.message == claimant.message && holder.delivery >= claimant.delivery => {
                Turn::Superseded
            }
            _ if self.fruitless >= max_attempts => Turn::Poisoned,
            _ => Turn::Take,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(message: u64, delivery: u64) -> Holder {
        Holder { message, delivery }
    }

    fn claimed(claims: &[(u64, u64)]) -> History {
        let mut history = History::default();
        claims.iter().for_each(|(message, delivery)| history.add_claim(of(*message, *delivery)));
        history
    }

    #[test]
    fn only_fruitless_attempts_count_against_a_handoff() {
        let mut history = claimed(&[(7, 1), (7, 2)]);
        history.add_progress();
        history.add_claim(of(7, 3));
        history.add_claim(of(7, 4));
        assert_eq!((history.attempts, history.fruitless), (4, 2));
        history.add_release();
        history.add_release();
        assert_eq!(history.fruitless, 1, "a second hand-back takes no death away");
    }

    #[test]
    fn copy_waits_while_the_other_message_is_queued() {
        let mut history = claimed(&[(7, 1)]);
        let (copy, own) = (of(8, 1), of(7, 2));
        assert_eq!((history.held_by_copy(copy), history.held_by_copy(own)), (Some(7), None));
        assert_eq!(history.turn(copy, true, 5), Turn::WaitForCopy);
        assert_eq!(history.turn(copy, false, 5), Turn::Take);
        assert_eq!(history.turn(own, false, 5), Turn::Take);
        history.add_release();
        assert_eq!(history.turn(copy, true, 5), Turn::Take);
    }

    #[test]
    fn copy_never_poisons_what_another_message_holds() {
        let history = claimed(&[(7, 1), (7, 2)]);
        assert_eq!(history.turn(of(8, 1), true, 2), Turn::WaitForCopy);
        assert_eq!(history.turn(of(7, 3), false, 2), Turn::Poisoned);
    }

    #[test]
    fn earlier_delivery_does_not_take_over_from_a_later_one() {
        let history = claimed(&[(7, 2)]);
        assert_eq!(history.turn(of(7, 1), false, 5), Turn::Superseded);
        assert_eq!(
            history.turn(of(7, 2), false, 5),
            Turn::Superseded,
            "a server that was killed may count anew"
        );
        assert_eq!(history.turn(of(7, 3), false, 5), Turn::Take);
    }
}
