//! Writes and reads the streams of journals, answers and dead letters, and waits while they are unavailable.
//!
//! A write or read that fails for a temporary reason (no leader, full stream, restarting server) is repeated
//! until it succeeds. Meanwhile the handoff keeps its delivery and its results, so that no delivery is used
//! up and nothing is paid twice. The breaker withdraws readiness and stops pulling. The wait ends with
//! success, a conflict, or the end of the process.

use std::{sync::Arc, time::Duration};

use async_nats::{
    HeaderMap,
    jetstream::{
        ErrorCode,
        context::{GetStreamError, GetStreamErrorKind},
        message::StreamMessage,
        stream::{self, DiscardPolicy},
    },
};
use broker::{Broker, Chain, Expect, PublishError, ReadError, SpillError, Stored, retry::RetryDelays};
use bytes::Bytes;
use subjects::{Answer, CodecError, Encoding, HandoffId, Role, Subject, headers, journal, streams};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::breaker::Breaker;

const FIRST_WAIT: Duration = Duration::from_millis(50);
const MAX_WAIT: Duration = Duration::from_secs(2);
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub(crate) broker: Arc<Broker>,
    breaker: Breaker,
    answers_kept: Arc<watch::Sender<Duration>>,
}

impl Storage {
    pub(crate) fn new(broker: Arc<Broker>, breaker: Breaker, answers_kept: Duration) -> Self {
        Self { broker, breaker, answers_kept: Arc::new(watch::channel(answers_kept).0) }
    }

    /// How long answers are kept, according to the configuration of their stream.
    pub(crate) fn answers_kept(&self) -> watch::Receiver<Duration> {
        self.answers_kept.subscribe()
    }

    pub(crate) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Stores a message. Fails only with [`PublishError::Conflict`] and [`PublishError::TooLarge`], which are
    /// final; retries everything else.
    pub(crate) async fn publish(
        &self,
        subject: &Subject,
        headers: impl Fn() -> HeaderMap,
        body: &Bytes,
        expect: Option<&Expect>,
    ) -> Result<Stored, PublishError> {
        match broker::publish(&self.broker.client, subject, headers(), body.clone(), expect).await {
            Ok(stored) => {
                self.breaker.record_success();
                Ok(stored)
            }
            Err(error) if is_final(&error) => Err(error),
            // Boxed to keep the common path small.
            Err(error) => Box::pin(self.publish_again(subject, headers, body, expect, error)).await,
        }
    }

    async fn publish_again(
        &self,
        subject: &Subject,
        headers: impl Fn() -> HeaderMap,
        body: &Bytes,
        expect: Option<&Expect>,
        mut error: PublishError,
    ) -> Result<Stored, PublishError> {
        let (mut waits, _waiting) =
            (RetryDelays::forever(FIRST_WAIT, MAX_WAIT), self.breaker.count_waiting());
        loop {
            self.wait_before_retry(&mut waits, &format!("cannot write {}", self.stream_of(subject)), &error)
                .await;
            error = match broker::publish(&self.broker.client, subject, headers(), body.clone(), expect).await
            {
                // An earlier try may have been stored although its confirmation was lost.
                Err(PublishError::Conflict { .. }) => {
                    self.breaker.record_success();
                    return Err(PublishError::Conflict { after_unconfirmed: true });
                }
                Err(error) if !is_final(&error) => error,
                stored => {
                    self.breaker.record_success();
                    return stored;
                }
            };
        }
    }

    /// Reads, retrying until the server answers.
    pub(crate) async fn read<T, F>(&self, stream: &str, read: impl Fn() -> F) -> T
    where
        F: Future<Output = Result<T, ReadError>>,
    {
        let (mut waits, mut waiting) = (RetryDelays::forever(FIRST_WAIT, MAX_WAIT), None);
        loop {
            // Boxed: a request to JetStream is a large future, and a handoff in flight seldom makes one.
            match Box::pin(read()).await {
                Ok(found) => return found,
                Err(error) => {
                    waiting.get_or_insert_with(|| self.breaker.count_waiting());
                    Box::pin(self.wait_before_retry(&mut waits, &format!("cannot read {stream}"), &error))
                        .await;
                }
            }
        }
    }

    /// Returns the last message on the subject of an answer, if there is one.
    pub(crate) async fn last_answer(&self, role: Role, subject: &Subject) -> Option<StreamMessage> {
        let (jetstream, runs) = (&self.broker.jetstream, self.broker.layout.runs(role));
        self.read(runs, || broker::last_on(jetstream, runs, subject)).await
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
        let mut waits = RetryDelays::forever(FIRST_WAIT, MAX_WAIT);
        while let Err(error) = Box::pin(broker::spill(&self.broker, role, name, body)).await {
            self.wait_before_retry(&mut waits, "cannot write the object store", &error).await;
        }
    }

    /// Reads a spilled body. Fails only if it is missing.
    pub(crate) async fn fetch(&self, role: Role, name: &str) -> Result<Bytes, SpillError> {
        let mut waits = RetryDelays::forever(FIRST_WAIT, MAX_WAIT);
        loop {
            match Box::pin(broker::fetch(&self.broker, role, name)).await {
                Err(error) if !error.is_missing() => {
                    self.wait_before_retry(&mut waits, "cannot read the object store", &error).await;
                }
                found => return found,
            }
        }
    }

    async fn wait_before_retry(
        &self,
        waits: &mut RetryDelays,
        what: &str,
        error: &(dyn std::error::Error + Send + Sync + 'static),
    ) {
        let why = Chain(error).to_string();
        let wait = waits.next_delay().unwrap_or(MAX_WAIT);
        debug!(what, why, ?wait, "Stream not available; retrying.");
        self.breaker.record_failure(&format!("{what}: {why}"));
        tokio::time::sleep(wait).await;
    }

    fn stream_of(&self, subject: &Subject) -> &'static str {
        match subject {
            Subject::Completion(_) => self.broker.layout.runs(Role::ProjectManager),
            Subject::Findings(_) => self.broker.layout.runs(Role::ProjectAnalyst),
            Subject::Journal(role, _) => self.broker.layout.runs(*role),
            _ => streams::DEAD,
        }
    }

    /// Body size in bytes above which an entry goes to the object store: the server's payload limit less room
    /// for headers.
    pub(crate) fn spill_threshold(&self) -> usize {
        journal::spill_threshold(self.broker.client.server_info().max_payload)
    }

    /// Asks the server whether the streams of a role's runs and of dead letters accept messages.
    pub(crate) async fn check_available(&self, role: Role) -> bool {
        for stream in [self.broker.layout.runs(role), streams::DEAD] {
            if !Box::pin(self.check_writable(stream, role)).await {
                return false;
            }
        }
        true
    }

    async fn check_writable(&self, stream: &'static str, role: Role) -> bool {
        let Ok(found) = self.broker.jetstream.get_stream(stream).await else {
            // Without the permission to read the stream's info, a read of a message shows whether it exists.
            let anything = Subject::Journal(role, HandoffId::now());
            return broker::last_on(&self.broker.jetstream, stream, &anything).await.is_ok();
        };
        let is_full = is_full(found.cached_info());
        if is_full {
            warn!(stream, "Stream is still full.");
        }
        !is_full
    }

    /// Checks the streams at an interval until `stop`. An idle worker would not notice that a stream is
    /// missing or full, or that the retention of answers has changed.
    pub(crate) async fn watch_streams(self, role: Role, stop: CancellationToken) {
        let runs = self.broker.layout.runs(role);
        while timeout(CHECK_INTERVAL, stop.cancelled()).await.is_err() {
            for stream in [runs, streams::DEAD] {
                match self.broker.jetstream.get_stream(stream).await {
                    Ok(found) => {
                        let info = found.cached_info();
                        if is_full(info) {
                            self.breaker.trip(&format!("cannot write {stream}: the stream is full"));
                        }
                        if stream == runs {
                            self.answers_kept.send_replace(broker::kept_for(&info.config));
                        }
                    }
                    Err(error) if is_missing(&error) => {
                        self.breaker.trip(&format!("cannot write {stream}: the stream is missing"));
                    }
                    // The server is unreachable, which readiness reports separately, or the permission is
                    // missing.
                    Err(_) => {}
                }
            }
        }
    }
}

fn is_full(info: &stream::Info) -> bool {
    let reached = |limit: i64, used: u64| u64::try_from(limit).is_ok_and(|limit| limit > 0 && used >= limit);
    info.config.discard == DiscardPolicy::New
        && (reached(info.config.max_messages, info.state.messages)
            || reached(info.config.max_bytes, info.state.bytes))
}

fn is_missing(error: &GetStreamError) -> bool {
    let kind = error.kind();
    matches!(kind, GetStreamErrorKind::JetStream(cause) if cause.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

fn is_final(error: &PublishError) -> bool {
    match error {
        PublishError::Conflict { .. } | PublishError::TooLarge => true,
        PublishError::Full | PublishError::Unconfirmed(_) | PublishError::Refused(_) => false,
    }
}
