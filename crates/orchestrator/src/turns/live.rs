//! Receives the text and progress of a handoff in progress, best effort.
//!
//! Each stream subscribes to the subjects of its own handoff. One subscription to all of them would be less
//! work for a single orchestrator; but with several, each would receive what all streams of all of them
//! receive.

use async_nats::{Client, SubscribeError, Subscriber};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use subjects::{Delta, Event, HandoffId, Subject};
use tokio::select;

/// The subscriptions of one handoff. They end when it is dropped.
#[derive(Debug)]
pub(crate) struct Live {
    deltas: Subscriber,
    events: Subscriber,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Update {
    Text(Delta),
    Progress(Box<Event>),
}

impl Live {
    /// Subscribes. What is published on the same connection afterwards is answered to the subscription.
    pub(super) async fn subscribe(client: &Client, id: HandoffId) -> Result<Self, SubscribeError> {
        Ok(Self {
            deltas: client.subscribe(Subject::Delta(id).to_string()).await?,
            events: client.subscribe(Subject::Event(id).to_string()).await?,
        })
    }

    /// Waits for the next update. Waits forever once the connection is closed: the answer does not depend on
    /// updates. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Update {
        loop {
            let update = select! {
                // Text that was written before an event is read before it.
                biased;
                Some(message) = self.deltas.next() => read(&message.payload).map(Update::Text),
                Some(message) = self.events.next() => {
                    read(&message.payload).map(|event| Update::Progress(Box::new(event)))
                }
                else => std::future::pending().await,
            };
            if let Some(update) = update {
                return update;
            }
        }
    }
}

/// Reads a message; `None` if it is of a kind that this build does not know.
fn read<T: DeserializeOwned>(payload: &[u8]) -> Option<T> {
    serde_json::from_slice(payload).ok()
}
