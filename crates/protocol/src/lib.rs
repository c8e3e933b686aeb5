//! Decides which delivery of a queue message may claim a handoff. Pure: no I/O, no clock.
//!
//! Only the order in which the server stored messages decides; no instance's clock does. A handoff belongs to
//! the queue message that it was claimed with for as long as that message is in the queue: the server
//! redelivers the message when its owner dies, so a copy never has to take over. Of two deliveries of one
//! message, the one with the higher delivery count wins.

/// The claims of a handoff, as read from its journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// Number of claims.
    pub attempts: u32,
    /// Latest attempts in a row that made no progress and did not end with a hand-back.
    pub attempts_without_progress: u32,
    holder: Option<Holder>,
}

/// One delivery of one queue message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The sequence of the message in the queue.
    pub message: u64,
    /// The delivery count of the message, as reported by the server.
    pub delivery: u64,
}

/// What a delivery may do with a handoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimDecision {
    Claim,
    /// Another queue message holds the handoff and is still queued. The delivery is to be handed back.
    WaitForCopy,
    /// This or a later delivery of the same message already holds the handoff. A server that was killed may
    /// deliver a message again with the same delivery count; if the holder is dead, the next delivery has a
    /// higher one.
    Superseded,
    /// The last `max_attempts` attempts in a row made no progress.
    Poisoned,
}

impl History {
    /// Adds a claim.
    pub fn add_claim(&mut self, holder: Holder) {
        self.attempts = self.attempts.saturating_add(1);
        self.attempts_without_progress = self.attempts_without_progress.saturating_add(1);
        self.holder = Some(holder);
    }

    /// Adds a hand-back. It counts only while a claim is held, so a second one changes nothing.
    pub fn add_release(&mut self) {
        if self.holder.take().is_some() {
            self.attempts_without_progress = self.attempts_without_progress.saturating_sub(1);
        }
    }

    /// Adds progress: a handoff that gets further with each attempt is not poisoned.
    pub fn add_progress(&mut self) {
        self.attempts_without_progress = 0;
    }

    /// Returns the sequence of the other queue message that holds the handoff, if one does. The caller looks
    /// up whether that message is still queued and passes the result to [`Self::decide`].
    pub fn held_by_copy(&self, claimant: Holder) -> Option<u64> {
        self.holder.map(|holder| holder.message).filter(|message| *message != claimant.message)
    }

    /// Decides what `claimant` may do. `copy_is_queued` says whether the message that [`Self::held_by_copy`]
    /// returned is still in the queue.
    pub fn decide(&self, claimant: Holder, copy_is_queued: bool, max_attempts: u32) -> ClaimDecision {
        match self.holder {
            Some(holder) if holder.message != claimant.message && copy_is_queued => {
                ClaimDecision::WaitForCopy
            }
            Some(holder) if holder.message == claimant.message && holder.delivery >= claimant.delivery => {
                ClaimDecision::Superseded
            }
            _ if self.attempts_without_progress >= max_attempts => ClaimDecision::Poisoned,
            _ => ClaimDecision::Claim,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(message: u64, delivery: u64) -> Holder {
        Holder { message, delivery }
    }

    fn claimed(claims: &[(u64, u64)]) -> History {
        let mut history = History::default();
        claims.iter().for_each(|(message, delivery)| history.add_claim(holder(*message, *delivery)));
        history
    }

    #[test]
    fn only_attempts_without_progress_count_against_a_handoff() {
        let mut history = claimed(&[(7, 1), (7, 2)]);
        history.add_progress();
        history.add_claim(holder(7, 3));
        history.add_claim(holder(7, 4));
        assert_eq!((history.attempts, history.attempts_without_progress), (4, 2));
        history.add_release();
        history.add_release();
        assert_eq!(history.attempts_without_progress, 1, "a second hand-back does not count");
    }

    #[test]
    fn copy_waits_while_the_other_message_is_queued() {
        let mut history = claimed(&[(7, 1)]);
        let (copy, own) = (holder(8, 1), holder(7, 2));
        assert_eq!((history.held_by_copy(copy), history.held_by_copy(own)), (Some(7), None));
        assert_eq!(history.decide(copy, true, 5), ClaimDecision::WaitForCopy);
        assert_eq!(history.decide(copy, false, 5), ClaimDecision::Claim);
        assert_eq!(history.decide(own, false, 5), ClaimDecision::Claim);
        history.add_release();
        assert_eq!(history.decide(copy, true, 5), ClaimDecision::Claim);
    }

    #[test]
    fn copy_never_poisons_what_another_message_holds() {
        let history = claimed(&[(7, 1), (7, 2)]);
        assert_eq!(history.decide(holder(8, 1), true, 2), ClaimDecision::WaitForCopy);
        assert_eq!(history.decide(holder(7, 3), false, 2), ClaimDecision::Poisoned);
    }

    #[test]
    fn earlier_delivery_does_not_take_over_from_a_later_one() {
        let history = claimed(&[(7, 2)]);
        assert_eq!(history.decide(holder(7, 1), false, 5), ClaimDecision::Superseded);
        assert_eq!(
            history.decide(holder(7, 2), false, 5),
            ClaimDecision::Superseded,
            "a server that was killed may repeat a delivery count"
        );
        assert_eq!(history.decide(holder(7, 3), false, 5), ClaimDecision::Claim);
    }
}
