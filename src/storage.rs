//! The streams of journals, answers and dead letters, and the object store for what is too large for them.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::message::StreamMessage;
use broker::{Broker, SpillError};
use bytes::Bytes;
use chain::Streams;
use subjects::{Answer, CodecError, Encoding, HandoffId, Role, Subject, headers, journal, streams};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::telemetry::Breaker;

#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub(crate) streams: Streams<Breaker>,
    answers_kept: Arc<watch::Sender<Duration>>,
}

impl Storage {
    pub(crate) fn new(broker: Arc<Broker>, breaker: Breaker, answers_kept: Duration) -> Self {
        let streams = Streams::new(broker, breaker);
        Self { streams, answers_kept: Arc::new(watch::channel(answers_kept).0) }
    }

    /// How long answers are kept, according to the configuration of their stream.
    pub(crate) fn answers_kept(&self) -> watch::Receiver<Duration> {
        self.answers_kept.subscribe()
    }

    /// Returns the last message on the subject of an answer, if there is one.
    pub(crate) async fn last_answer(&self, role: Role, subject: &Subject) -> Option<StreamMessage> {
        self.streams.last_on(self.streams.broker.layout.runs(role), subject).await
    }

    /// Reads the stored answer, if there is one.
    pub(crate) async fn read_answer(&self, role: Role, id: HandoffId) -> Result<Option<Answer>, CodecError> {
        let subject = match role {
            Role::ProjectManager => Subject::Completion(id),
            Role::ProjectAnalyst => Subject::Findings(id),
        };
        let Some(message) = self.last_answer(role, &subject).await else { return Ok(None) };
        let content_type = message.headers.get(headers::CONTENT_TYPE).map(|value| value.as_str());
        let encoding = Encoding::from_content_type(content_type).unwrap_or_default();
        Ok(Some(Answer::decode(role, encoding, &message.payload)?))
    }

    /// Stores a body in a role's object store under `name`, retrying until it succeeds.
    pub(crate) async fn spill(&self, role: Role, name: &str, body: &[u8]) {
        let mut waits = Streams::<Breaker>::delays();
        while let Err(error) = Box::pin(broker::spill(&self.streams.broker, role, name, body)).await {
            self.streams.wait_before_retry(&mut waits, "cannot write the object store", &error).await;
        }
    }

    /// Reads a spilled body. Fails only if it is missing.
    pub(crate) async fn fetch(&self, role: Role, name: &str) -> Result<Bytes, SpillError> {
        let mut waits = Streams::<Breaker>::delays();
        loop {
            match Box::pin(broker::fetch(&self.streams.broker, role, name)).await {
                Err(error) if !error.is_missing() => {
                    self.streams.wait_before_retry(&mut waits, "cannot read the object store", &error).await;
                }
                found => return found,
            }
        }
    }

    /// Body size in bytes above which an entry goes to the object store: the server's payload limit less room
    /// for headers.
    pub(crate) fn spill_threshold(&self) -> usize {
        journal::spill_threshold(self.streams.broker.client.server_info().max_payload)
    }

    /// Asks the server whether the streams of a role's runs and of dead letters accept messages.
    pub(crate) async fn check_available(&self, role: Role) -> bool {
        let unused = Subject::Journal(role, HandoffId::now());
        self.streams.check_available(&self.written_streams(role), &unused).await
    }

    /// Checks the streams at an interval until `stop`: whether they accept messages, and how long answers are
    /// kept.
    pub(crate) async fn watch_streams(self, role: Role, stop: CancellationToken) {
        let [runs, dead] = self.written_streams(role);
        let on_config = |stream, config: &_| {
            if stream == runs {
                self.answers_kept.send_replace(broker::kept_for(config));
            }
        };
        self.streams.watch(&[runs, dead], on_config, stop).await;
    }

    fn written_streams(&self, role: Role) -> [&'static str; 2] {
        [self.streams.broker.layout.runs(role), streams::DEAD]
    }
}
