//! Errors of operator functions.

use broker::{PublishError, ReadError, SpillError};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "the streams do not exist; start a worker with nats.provision = create, or create them with \
         `cynodectl provision`"
    )]
    NoStreams,
    #[error("{0}; set the layout of this connection (--layout, CYNODE_LAYOUT, nats.layout) to that")]
    Layout(#[from] broker::LayoutMismatch),
    #[error(
        "no responders for {0}: the streams do not exist (start a worker with nats.provision = create, or \
         create them with `cynodectl provision`), or these credentials may not publish to it"
    )]
    NoResponders(String),
    #[error("the queue is full; the handoff was not accepted")]
    QueueFull,
    #[error("publishing the handoff")]
    Publish(#[source] PublishError),
    #[error("reading from NATS")]
    Read(#[from] ReadError),
    #[error("reading from the object store")]
    Spill(#[from] SpillError),
    #[error("subscribing")]
    Subscribe(#[from] async_nats::SubscribeError),
    #[error("publishing a request")]
    Send(#[from] async_nats::PublishError),
    #[error("unexpected response from NATS")]
    Nats(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("dead letter {0} not found; `cynodectl dead ls` lists all")]
    NoSuchLetter(u64),
    #[error("dead letter {number} is not replayed: {why}; `cynodectl dead drop {number}` removes it")]
    NotReplayed { number: u64, why: String },
    #[error("dead letter {0} is unreadable")]
    Letter(u64, #[source] subjects::DeadLetterError),
    #[error("writing a message")]
    Encode(#[from] subjects::CodecError),
    #[error("the handoff has no id or time of issue to sign")]
    NothingToSign,
    #[error("signing the handoff")]
    Sign(#[source] nkeys::error::Error),
}

impl Error {
    pub(crate) fn nats(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Nats(error.into())
    }
}
