//! What calls tell the audit, and until when they wait to hear that it is written.

use tokio::{sync::oneshot, time::Instant};

use super::{
    keys::{Begun, Claim, Finish},
    record::Record,
};

pub(super) enum Note {
    Begin(Begin),
    End(End),
    /// Asks for the rows of calls that should have ended by now; answers how many there were.
    Overdue(oneshot::Sender<usize>),
}

/// A call that is about to have its effect.
pub(super) struct Begin {
    pub(super) record: Record,
    /// After this time another gateway takes the call for lost.
    pub(super) until: i64,
    pub(super) claim: Option<Claim>,
    pub(super) done: oneshot::Sender<Begun>,
    pub(super) deadline: Instant,
}

impl Begin {
    /// Whether its caller still wants to make the call.
    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        self.deadline > now && !self.done.is_closed()
    }

    /// Groups of two gateways take keys in the same order, so neither waits for the other in a circle.
    pub(super) fn order(&self) -> Option<(&str, &str)> {
        self.claim.as_ref().map(|claim| (claim.holder.as_str(), claim.key.as_str()))
    }
}

/// A call that ended, in whichever way.
pub(super) struct End {
    pub(super) record: Record,
    pub(super) begun: WasBegun,
    /// `None`: the caller was told that the outcome is not recorded.
    pub(super) done: Option<oneshot::Sender<()>>,
    pub(super) deadline: Instant,
    /// An attempt failed, and may have been committed all the same.
    pub(super) was_tried: bool,
}

impl End {
    /// Whether the row has to be written even when no caller waits for it: the tool may have had its effect, or its
    /// announcement may be in the store, and would keep its key taken and be recorded as an unknown outcome.
    pub(super) fn must_be_written(&self) -> bool {
        self.announced().is_some()
    }

    /// The id under which it was announced, if it was.
    pub(super) fn announced(&self) -> Option<&str> {
        match self.begun {
            WasBegun::Not => None,
            WasBegun::Yes | WasBegun::WithKey(_) => Some(&self.record.call_id),
        }
    }
}

/// How a call that ends was begun.
#[derive(Clone, Debug, Default)]
pub enum WasBegun {
    /// It had no effect that it would have had to announce.
    #[default]
    Not,
    Yes,
    /// With a key, of which this became. `None`: nobody knows, and the key stays taken.
    WithKey(Option<Finish>),
}
