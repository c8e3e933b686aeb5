//! Why an instance stops working on a handoff that it has claimed.

use broker::PublishError;

/// Why this instance no longer owns a handoff.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Loss {
    /// Another instance has claimed or answered it. Nothing may be published for it any more.
    #[error("another instance has claimed or answered the handoff")]
    Fenced,
    /// This instance cannot work on any handoff now; another may.
    #[error("handed back: {0}")]
    HandedBack(String),
    #[error("writing the journal")]
    Publish(#[source] PublishError),
}

impl From<chain::Loss> for Loss {
    fn from(loss: chain::Loss) -> Self {
        match loss {
            chain::Loss::Fenced => Self::Fenced,
            chain::Loss::Publish(error) => Self::Publish(error),
        }
    }
}
