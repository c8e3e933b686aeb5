//! Pull requests, one at a time, over a subscription that lives as long as the connection.
//!
//! The client's own `stream()` goes on pulling while nobody polls, and its `batch()` loses what arrives between
//! the last poll and the drop. Here a request asks for just as many messages as there are slots reserved for
//! them, and a drained subscription is read to its end.

use std::time::Duration;

use async_nats::{Client, Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout},
};

/// How long a request waits at the server. Short enough that a request lost with its connection is soon made anew.
const EXPIRES: Duration = Duration::from_secs(10);
/// Past its expiry by this much, a request that was not answered was not heard.
const LATE: Duration = Duration::from_secs(2);
/// While the client is disconnected its queue may be full; then nothing can be sent, and nobody should wait for it.
const SEND_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("subscribing")]
    Subscribe(#[from] async_nats::SubscribeError),
    #[error("sending a pull request")]
    Publish(#[from] async_nats::PublishError),
    #[error("sending a pull request timed out")]
    TimedOut,
}

/// What came in.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A message and the slot that was reserved for it.
    Message(Message, OwnedSemaphorePermit),
    /// A message nobody asked for: it can come after a reconnect. There is no slot for it.
    Unasked(Message),
    /// The request ended by time, as it should when there is nothing to do.
    Expired,
    /// The request failed; ask again, later.
    Failed(String),
    /// The subscription is over.
    Closed,
}

/// The pull side of one consumer.
#[derive(Debug)]
pub(super) struct Puller {
    client: Client,
    api: String,
    inbox: String,
    subscriber: Subscriber,
    asked: Option<Asked>,
}

/// An open request. The slots in it are those for messages still to come.
#[derive(Debug)]
struct Asked {
    slots: OwnedSemaphorePermit,
    lost_at: Instant,
}

impl Puller {
    pub(super) async fn open(client: Client, stream: &str, consumer: &str) -> Result<Self, Error> {
        let inbox = client.new_inbox();
        let subscriber = client.subscribe(inbox.clone()).await?;
        let api = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        Ok(Self { client, api, inbox, subscriber, asked: None })
    }

    pub(super) fn has_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// When an open request must be taken for lost.
    pub(super) fn lost_at(&self) -> Option<Instant> {
        self.asked.as_ref().map(|asked| asked.lost_at)
    }

    /// Forgets the open request and frees its slots.
    pub(super) fn forget(&mut self) {
        self.asked = None;
    }

    /// Asks for as many messages as there are slots.
    pub(super) async fn ask(&mut self, slots: OwnedSemaphorePermit) -> Result<(), Error> {
        let request = format!(r#"{{"batch":{},"expires":{}}}"#, slots.num_permits(), EXPIRES.as_nanos());
        self.asked = Some(Asked { slots, lost_at: Instant::now() + EXPIRES + LATE });
        let publish =
            self.client.publish_with_reply(self.api.clone(), self.inbox.clone(), Bytes::from(request));
        let sent =
            timeout(SEND_WITHIN, publish).await.map_err(|_| Error::TimedOut).and_then(|sent| Ok(sent?));
        if sent.is_err() {
            self.asked = None;
        }
        sent
    }

    /// Waits for what comes next. Cancel-safe: a message not yet taken stays in the subscription.
    pub(super) async fn next(&mut self) -> Arrival {
        match self.subscriber.next().await {
            None => Arrival::Closed,
            Some(message) => self.sort(message),
        }
    }

    fn sort(&mut self, message: Message) -> Arrival {
        match message.status {
            None => {
                let Some(asked) = &mut self.asked else { return Arrival::Unasked(message) };
                let slot = asked.slots.split(1);
                if asked.slots.num_permits() == 0 {
                    self.asked = None;
                }
                match slot {
                    Some(slot) => Arrival::Message(message, slot),
                    None => Arrival::Unasked(message),
                }
            }
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => {
                self.asked = None;
                Arrival::Expired
            }
            // Says only that the server is still there.
            Some(StatusCode::IDLE_HEARTBEAT) => Arrival::Expired,
            Some(status) => {
                self.asked = None;
                Arrival::Failed(match message.description {
                    Some(words) => format!("{status} {words}"),
                    None if status == StatusCode::NO_RESPONDERS => {
                        "JetStream or the consumer is not there".to_owned()
                    }
                    None => status.to_string(),
                })
            }
        }
    }

    /// After a reconnect the request is made anew under a new name, so that one that outlived the connection brings
    /// nothing on top. Gives the old subscription, which is to be read to its end: it may have brought something.
    pub(super) async fn reopen(&mut self) -> Result<Subscriber, Error> {
        let inbox = self.client.new_inbox();
        let subscriber = self.client.subscribe(inbox.clone()).await?;
        self.inbox = inbox;
        Ok(std::mem::replace(&mut self.subscriber, subscriber))
    }

    /// Sorts what an old subscription still brought. When that is all, [`Self::forget`] the request.
    pub(super) fn late(&mut self, message: Message) -> Arrival {
        self.sort(message)
    }

    /// Stops asking. What the server had already sent is still read, to its end, by calling [`Self::next`].
    pub(super) async fn drain(&mut self) {
        // A connection that is gone has nothing in flight.
        if !matches!(timeout(SEND_WITHIN, self.subscriber.drain()).await, Ok(Ok(()))) {
            self.forget();
        }
    }
}
