//! Messages from calls to the audit's writer. Each has a channel for the confirmation and a deadline for it.

use tokio::{sync::oneshot, time::Instant};

use super::{
    keys::{ClaimOutcome, KeyClaim, KeyOutcome},
    record::Record,
};

pub(super) enum Message {
    Begin(Begin),
    End(End),
    /// Requests the rows of calls that are overdue; the reply is their number.
    Overdue(oneshot::Sender<usize>),
}

/// The announcement of a call that is about to have its effect.
pub(super) struct Begin {
    pub(super) record: Record,
    /// Time in microseconds after which another gateway considers the call lost.
    pub(super) until: i64,
    pub(super) claim: Option<KeyClaim>,
    pub(super) done: oneshot::Sender<ClaimOutcome>,
    pub(super) deadline: Instant,
}

impl Begin {
    /// Returns whether the caller still waits for the confirmation.
    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        self.deadline > now && !self.done.is_closed()
    }

    /// Returns the order in which a group claims its keys. It is the same in every gateway, so that two
    /// groups cannot deadlock.
    pub(super) fn order(&self) -> Option<(&str, &str)> {
        self.claim.as_ref().map(|claim| (claim.holder.as_str(), claim.key.as_str()))
    }
}

/// The row of a call that has ended, whether it succeeded, failed or was denied.
pub(super) struct End {
    pub(super) record: Record,
    pub(super) announcement: Announcement,
    /// `None`: the caller got an error that the outcome is not recorded.
    pub(super) done: Option<oneshot::Sender<()>>,
    pub(super) deadline: Instant,
    /// An earlier attempt failed and may have been committed nevertheless.
    pub(super) was_tried: bool,
    /// The call has not ended, and its row says that its outcome is unknown.
    pub(super) is_overdue: bool,
}

impl End {
    /// Returns whether the row must be written even if no caller waits for it. The tool may have had its
    /// effect, or the announcement may be in the store, where it would hold the key and become a row with an
    /// unknown outcome.
    pub(super) fn must_be_written(&self) -> bool {
        self.announced().is_some()
    }

    /// Returns the call id if the call was announced.
    pub(super) fn announced(&self) -> Option<&str> {
        match self.announcement {
            Announcement::None => None,
            Announcement::Made | Announcement::WithKey(_) => Some(&self.record.call_id),
        }
    }
}

/// How a call that has ended was announced.
#[derive(Clone, Debug, Default)]
pub enum Announcement {
    /// Not announced: the call had no effect.
    #[default]
    None,
    /// Announced without a key.
    Made,
    /// Announced with a key, which gets this outcome. `None`: the outcome is unknown and the key stays
    /// claimed.
    WithKey(Option<KeyOutcome>),
}
