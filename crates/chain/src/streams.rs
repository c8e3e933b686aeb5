//! Publishes to streams and reads from them, and waits while they are unavailable.
//!
//! A write or read that fails for a temporary reason (no leader, full stream, restarting server) is repeated
//! until it succeeds. Meanwhile the handoff or job keeps its delivery and its results, so that no delivery is
//! used up and nothing is done twice. [`Outages`] learns of it, which withdraws readiness and stops pulling.
//! The wait ends with success, a conflict, or the end of the process.

use std::{fmt, sync::Arc, time::Duration};

use async_nats::{HeaderMap, jetstream::message::StreamMessage};
use broker::{Broker, Chain, Expect, PublishError, ReadError, Stored, retry::RetryDelays};
use bytes::Bytes;
use subjects::Subject;
use tracing::debug;

const FIRST_WAIT: Duration = Duration::from_millis(50);
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Learns whether the streams are available.
pub trait Outages: Clone + fmt::Debug + Send + Sync + 'static {
    /// Counts what waits for the streams, until it is dropped.
    type Waiting: Send;

    fn record_success(&self);

    fn record_failure(&self, why: &str);

    /// Records a failure that proves an outage by itself.
    fn trip(&self, why: &str);

    fn count_waiting(&self) -> Self::Waiting;
}

/// The streams of a connection. Its clones share the connection and what is known about outages.
#[derive(Clone, Debug)]
pub struct Streams<O> {
    pub broker: Arc<Broker>,
    pub(crate) outages: O,
}

impl<O: Outages> Streams<O> {
    pub fn new(broker: Arc<Broker>, outages: O) -> Self {
        Self { broker, outages }
    }

    pub fn outages(&self) -> &O {
        &self.outages
    }

    /// Stores a message. Fails only with [`PublishError::Conflict`] and [`PublishError::TooLarge`], which are
    /// final; retries everything else. `headers` is called for each try.
    pub async fn publish(
        &self,
        stream: &str,
        subject: &Subject,
        headers: impl Fn() -> HeaderMap,
        body: &Bytes,
        expect: Option<&Expect>,
    ) -> Result<Stored, PublishError> {
        match broker::publish(&self.broker.client, subject, headers(), body.clone(), expect).await {
            Ok(stored) => {
                self.outages.record_success();
                Ok(stored)
            }
            Err(error) if is_final(&error) => Err(error),
            // Boxed to keep the common path small.
            Err(error) => Box::pin(self.publish_again(stream, subject, headers, body, expect, error)).await,
        }
    }

    async fn publish_again(
        &self,
        stream: &str,
        subject: &Subject,
        headers: impl Fn() -> HeaderMap,
        body: &Bytes,
        expect: Option<&Expect>,
        mut error: PublishError,
    ) -> Result<Stored, PublishError> {
        let (mut waits, _waiting) = (Self::delays(), self.outages.count_waiting());
        loop {
            self.wait_before_retry(&mut waits, &format!("cannot write {stream}"), &error).await;
            error = match broker::publish(&self.broker.client, subject, headers(), body.clone(), expect).await
            {
                // An earlier try may have been stored although its confirmation was lost.
                Err(PublishError::Conflict { .. }) => {
                    self.outages.record_success();
                    return Err(PublishError::Conflict { after_unconfirmed: true });
                }
                Err(error) if !is_final(&error) => error,
                stored => {
                    self.outages.record_success();
                    return stored;
                }
            };
        }
    }

    /// Reads, retrying until the server answers.
    pub async fn read<T, F>(&self, stream: &str, read: impl Fn() -> F) -> T
    where
        F: Future<Output = Result<T, ReadError>>,
    {
        let (mut waits, mut waiting) = (Self::delays(), None);
        loop {
            // Boxed: a request to JetStream is a large future, and work in flight seldom makes one.
            match Box::pin(read()).await {
                Ok(found) => return found,
                Err(error) => {
                    waiting.get_or_insert_with(|| self.outages.count_waiting());
                    Box::pin(self.wait_before_retry(&mut waits, &format!("cannot read {stream}"), &error))
                        .await;
                }
            }
        }
    }

    /// Returns the last message on a subject or pattern, if there is one.
    pub async fn last_on(&self, stream: &str, filter: &impl fmt::Display) -> Option<StreamMessage> {
        self.read(stream, || broker::last_on(&self.broker.jetstream, stream, filter)).await
    }

    /// Returns the pauses between tries.
    pub fn delays() -> RetryDelays {
        RetryDelays::forever(FIRST_WAIT, MAX_WAIT)
    }

    /// Records a failure and waits before the next try.
    pub async fn wait_before_retry(
        &self,
        waits: &mut RetryDelays,
        what: &str,
        error: &(dyn std::error::Error + Send + Sync + 'static),
    ) {
        let why = Chain(error).to_string();
        let wait = waits.next_delay().unwrap_or(MAX_WAIT);
        debug!(what, why, ?wait, "Stream not available; retrying.");
        self.outages.record_failure(&format!("{what}: {why}"));
        tokio::time::sleep(wait).await;
    }
}

fn is_final(error: &PublishError) -> bool {
    match error {
        PublishError::Conflict { .. } | PublishError::TooLarge => true,
        PublishError::Full | PublishError::Unconfirmed(_) | PublishError::Refused(_) => false,
    }
}
