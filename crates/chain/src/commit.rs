//! Stores the last message of a chain: an answer or a result.

use async_nats::HeaderMap;
use broker::{Expect, PublishError, Stored};
use bytes::Bytes;
use subjects::Subject;

use crate::{Outages, Streams};

/// Result of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Committed {
    /// The message is stored; these are its bytes.
    Ours(Bytes),
    /// The chain has another last message or another owner, unless the stream has lost it; see
    /// [`Tail::close_after_conflict`](crate::Tail::close_after_conflict).
    Fenced,
}

impl<O: Outages> Streams<O> {
    /// Stores the last message if the chain still ends where `expect` says (compare-and-set). From then on
    /// the chain is closed.
    pub async fn commit(
        &self,
        stream: &str,
        subject: &Subject,
        headers: impl Fn() -> HeaderMap,
        body: Bytes,
        expect: &Expect,
    ) -> Result<Committed, PublishError> {
        let published = self.publish(stream, subject, headers, &body, Some(expect)).await;
        self.resolve(stream, subject, body, published).await
    }

    /// Returns what the outcome of publishing the last message means. For callers of
    /// [`publish`](Self::publish); [`commit`](Self::commit) does both.
    pub async fn resolve(
        &self,
        stream: &str,
        subject: &Subject,
        body: Bytes,
        published: Result<Stored, PublishError>,
    ) -> Result<Committed, PublishError> {
        match published {
            Ok(_) => Ok(Committed::Ours(body)),
            // An earlier try may have been stored although its confirmation was lost.
            Err(PublishError::Conflict { after_unconfirmed: true }) => {
                let stored = Box::pin(self.last_on(stream, subject)).await;
                let is_ours = stored.is_some_and(|message| message.payload == body);
                Ok(if is_ours { Committed::Ours(body) } else { Committed::Fenced })
            }
            Err(PublishError::Conflict { after_unconfirmed: false }) => Ok(Committed::Fenced),
            Err(error) => Err(error),
        }
    }
}
