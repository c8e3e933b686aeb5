//! Where in the stream the lines of a lease were last found.
//!
//! A sequence alone does not name a message: a stream that was deleted and created again, restored from a
//! backup, or cut short by a loss of power gives the same sequences to other messages. So a position holds
//! the digest of its message, too. If another message is there, the subject is read from its beginning, and
//! the numbers and hashes of the lines tell which of them are new.

use store::entity::edge_lease;
use subjects::edge::{Line, digest, split_lines};

/// A message of a node, with its sequence in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeMessage {
    pub sequence: u64,
    pub body: Vec<u8>,
}

/// Messages on one subject, in the order of the stream. More may follow them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeMessages {
    /// Those that follow the known position.
    Continued(Vec<EdgeMessage>),
    /// From the first one on: the stream has another message at the known position, or none.
    FromStart(Vec<EdgeMessage>),
}

impl EdgeMessages {
    pub(super) fn messages(&self) -> &[EdgeMessage] {
        match self {
            Self::Continued(messages) | Self::FromStart(messages) => messages,
        }
    }

    /// Returns the number of the line before the first one, if that is the first of the stream.
    pub(super) fn before_first(&self) -> Option<u64> {
        let Self::FromStart(messages) = self else { return None };
        let first = messages.iter().flat_map(|message| split_lines(&message.body)).next();
        let line = first.and_then(Line::decode);
        Some(line.map_or(0, |(line, ..)| line.n.saturating_sub(1)))
    }
}

/// The last message on a subject that was taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPosition {
    /// Zero if none was.
    pub sequence: u64,
    digest: String,
}

impl StreamPosition {
    pub(super) fn of(binding: &edge_lease::Model) -> Self {
        let sequence = u64::try_from(binding.stream_seq).unwrap_or_default();
        Self { sequence, digest: binding.stream_digest.clone() }
    }

    pub(super) fn at(message: &EdgeMessage) -> Self {
        Self { sequence: message.sequence, digest: digest(&message.body) }
    }

    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// Returns whether this is the message at the position.
    pub fn is_at(&self, message: &EdgeMessage) -> bool {
        *self == Self::at(message)
    }
}
