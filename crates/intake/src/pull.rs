//! Pull requests, one at a time, over a subscription that lives as long as the connection.
//!
//! The client's `stream()` keeps pulling while it is not polled, and its `batch()` loses messages that arrive
//! between the last poll and the drop. This puller requests exactly as many messages as there are reserved
//! slots, and reads a drained subscription to its end.

use std::time::Duration;

use async_nats::{Client, Message, StatusCode, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, timeout},
};

/// A request without a response counts as lost this long after its expiry.
const LOST_AFTER_EXPIRY: Duration = Duration::from_secs(2);
/// Time limit for sending a request. While the client is disconnected its send queue may be full.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("subscribing")]
    Subscribe(#[from] async_nats::SubscribeError),
    #[error("sending a pull request")]
    Publish(#[from] async_nats::PublishError),
    #[error("sending a pull request timed out")]
    TimedOut,
}

/// A message that arrived on the subscription.
#[derive(Debug)]
pub(super) enum Arrival {
    /// A message and the slot that was reserved for it.
    Message(Message, OwnedSemaphorePermit),
    /// A message without a reserved slot. Can arrive after a reconnect.
    Unrequested(Message),
    /// The request expired, as it does when the queue is empty.
    Expired,
    /// The request failed; retry later.
    Failed(String),
    /// The subscription ended.
    Closed,
}

/// The pull side of one consumer.
#[derive(Debug)]
pub(super) struct Puller {
    client: Client,
    api: String,
    inbox: String,
    subscriber: Subscriber,
    request: Option<OpenRequest>,
    /// How long a request waits at the server.
    expiry: Duration,
}

/// An open pull request. Its slots are reserved for messages that have not arrived yet.
#[derive(Debug)]
struct OpenRequest {
    slots: OwnedSemaphorePermit,
    lost_at: Instant,
}

impl Puller {
    pub(super) async fn open(
        client: Client,
        stream: &str,
        consumer: &str,
        expiry: Duration,
    ) -> Result<Self, Error> {
        let inbox = client.new_inbox();
        let subscriber = client.subscribe(inbox.clone()).await?;
        let api = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        Ok(Self { client, api, inbox, subscriber, request: None, expiry })
    }

    pub(super) fn has_open_request(&self) -> bool {
        self.request.is_some()
    }

    /// Returns when an open request counts as lost.
    pub(super) fn lost_at(&self) -> Option<Instant> {
        self.request.as_ref().map(|request| request.lost_at)
    }

    /// Drops the open request and frees its slots.
    pub(super) fn forget_request(&mut self) {
        self.request = None;
    }

    /// Requests as many messages as there are slots. Fails if the request cannot be sent within
    /// [`SEND_TIMEOUT`].
    pub(super) async fn request(&mut self, slots: OwnedSemaphorePermit) -> Result<(), Error> {
        let request = format!(r#"{{"batch":{},"expires":{}}}"#, slots.num_permits(), self.expiry.as_nanos());
        self.request = Some(OpenRequest { slots, lost_at: Instant::now() + self.expiry + LOST_AFTER_EXPIRY });
        let publish =
            self.client.publish_with_reply(self.api.clone(), self.inbox.clone(), Bytes::from(request));
        let sent =
            timeout(SEND_TIMEOUT, publish).await.map_err(|_| Error::TimedOut).and_then(|sent| Ok(sent?));
        if sent.is_err() {
            self.request = None;
        }
        sent
    }

    /// Waits for the next arrival. Cancel-safe: a message not yet taken stays in the subscription.
    pub(super) async fn next(&mut self) -> Arrival {
        match self.subscriber.next().await {
            None => Arrival::Closed,
            Some(message) => self.classify(message),
        }
    }

    fn classify(&mut self, message: Message) -> Arrival {
        match message.status {
            None => {
                let Some(request) = &mut self.request else { return Arrival::Unrequested(message) };
                let slot = request.slots.split(1);
                if request.slots.num_permits() == 0 {
                    self.request = None;
                }
                match slot {
                    Some(slot) => Arrival::Message(message, slot),
                    None => Arrival::Unrequested(message),
                }
            }
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => {
                self.request = None;
                Arrival::Expired
            }
            // Only shows that the server is alive.
            Some(StatusCode::IDLE_HEARTBEAT) => Arrival::Expired,
            Some(status) => {
                self.request = None;
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

    /// Subscribes under a new inbox, so that a request that outlived the connection does not bring extra
    /// messages. Returns the old subscription, which must be read to its end: messages may already have
    /// arrived on it.
    pub(super) async fn reopen(&mut self) -> Result<Subscriber, Error> {
        let inbox = self.client.new_inbox();
        let subscriber = self.client.subscribe(inbox.clone()).await?;
        self.inbox = inbox;
        Ok(std::mem::replace(&mut self.subscriber, subscriber))
    }

    /// Classifies a message of the old subscription. Call [`Self::forget_request`] after the last one.
    pub(super) fn classify_late(&mut self, message: Message) -> Arrival {
        self.classify(message)
    }

    /// Unsubscribes. Messages that the server has already sent are still returned by [`Self::next`].
    pub(super) async fn drain(&mut self) {
        // Without a connection nothing is in flight.
        if !matches!(timeout(SEND_TIMEOUT, self.subscriber.drain()).await, Ok(Ok(()))) {
            self.forget_request();
        }
    }
}
