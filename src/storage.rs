//! The streams that hold journals, answers and dead letters, waited for.
//!
//! A write that fails for a reason that may pass (no leader, a full stream, a server that restarts) is repeated until the
//! server has it, and so is a read. The handoff keeps its delivery and its results meanwhile: nothing is paid twice, and
//! no delivery is spent. Readiness tells, and nothing more is pulled. What ends the wait is success, a conflict, or the
//! end of the process.

use std::{sync::Arc, time::Duration};

use async_nats::{
    HeaderMap,
    jetstream::{
        ErrorCode,
        context::{GetStreamError, GetStreamErrorKind},
        stream::{self, DiscardPolicy},
    },
};
use broker::{Broker, Chain, Expect, PublishError, ReadError, SpillError, Stored, retry::Waits};
use bytes::Bytes;
use subjects::{HandoffId, Role, Subject, journal, streams};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::breaker::Breaker;

const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_secs(10);

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

    /// How long answers are kept, by the configuration of their stream.
    pub(crate) fn answers_kept(&self) -> watch::Receiver<Duration> {
        self.answers_kept.subscribe()
    }

    pub(crate) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Stores a message. Fails only with [`PublishError::Conflict`] and [`PublishError::TooLarge`], which do not pass.
    pub(crate) async fn publish(
        &self,
        subject: &Subject,
        headers: impl Fn() -> HeaderMap,
        body: &Bytes,
        expect: Option<&Expect>,
    ) -> Result<Stored, PublishError> {
        match broker::publish(&self.broker.client, subject, headers(), body.clone(), expect).await {
            Ok(stored) => {
                self.breaker.succeeded();
                Ok(stored)
            }
            Err(error) if is_final(&error) => Err(error),
            // Seldom, so it should not make every publish larger.
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
        let (mut waits, _waiting) = (Waits::forever(FIRST_WAIT, LONGEST_WAIT), self.breaker.wait());
        loop {
            self.wait(&mut waits, &format!("cannot write {}", self.stream_of(subject)), &error).await;
            error = match broker::publish(&self.broker.client, subject, headers(), body.clone(), expect).await
            {
                // One of the earlier tries may have been stored though its confirmation was lost.
                Err(PublishError::Conflict { .. }) => {
                    self.breaker.succeeded();
                    return Err(PublishError::Conflict { unheard_before: true });
                }
                Err(error) if !is_final(&error) => error,
                stored => {
                    self.breaker.succeeded();
                    return stored;
                }
            };
        }
    }

    /// Reads until there is an answer.
    pub(crate) async fn read<T, F>(&self, stream: &str, read: impl Fn() -> F) -> T
    where
        F: Future<Output = Result<T, ReadError>>,
    {
        let (mut waits, mut waiting) = (Waits::forever(FIRST_WAIT, LONGEST_WAIT), None);
        loop {
            match read().await {
                Ok(found) => return found,
                Err(error) => {
                    waiting.get_or_insert_with(|| self.breaker.wait());
                    Box::pin(self.wait(&mut waits, &format!("cannot read {stream}"), &error)).await;
                }
            }
        }
    }

    /// Keeps a body beside a role's streams, under a name.
    pub(crate) async fn spill(&self, role: Role, name: &str, body: &[u8]) {
        let mut waits = Waits::forever(FIRST_WAIT, LONGEST_WAIT);
        while let Err(error) = broker::spill(&self.broker, role, name, body).await {
            self.wait(&mut waits, "cannot write the object store", &error).await;
        }
    }

    /// Reads a body that was spilled. Fails only when it is gone.
    pub(crate) async fn fetch(&self, role: Role, name: &str) -> Result<Bytes, SpillError> {
        let mut waits = Waits::forever(FIRST_WAIT, LONGEST_WAIT);
        loop {
            match broker::fetch(&self.broker, role, name).await {
                Err(error) if !error.is_missing() => {
                    self.wait(&mut waits, "cannot read the object store", &error).await;
                }
                found => return found,
            }
        }
    }

    async fn wait(
        &self,
        waits: &mut Waits,
        what: &str,
        error: &(dyn std::error::Error + Send + Sync + 'static),
    ) {
        let why = Chain(error).to_string();
        let wait = waits.next_wait().unwrap_or(LONGEST_WAIT);
        debug!(what, why, ?wait, "Stream not available; retrying.");
        self.breaker.failed(&format!("{what}: {why}"));
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

    /// The size from which a body goes to the object store: what the server takes at once, less room for headers.
    pub(crate) fn spill_over(&self) -> usize {
        journal::spill_over(self.broker.client.server_info().max_payload)
    }

    /// Whether the streams of a role's runs and of dead letters can take a message, as far as the server tells.
    pub(crate) async fn is_back(&self, role: Role) -> bool {
        for stream in [self.broker.layout.runs(role), streams::DEAD] {
            if !self.takes_messages(stream, role).await {
                return false;
            }
        }
        true
    }

    async fn takes_messages(&self, stream: &'static str, role: Role) -> bool {
        let Ok(looked) = self.broker.jetstream.get_stream(stream).await else {
            // Without the permission to look at the stream, a read tells whether it is there.
            let anything = Subject::Journal(role, HandoffId::now());
            return broker::last_on(&self.broker.jetstream, stream, &anything).await.is_ok();
        };
        let is_full = is_full(looked.cached_info());
        if is_full {
            warn!(stream, "Stream is still full.");
        }
        !is_full
    }

    /// Looks at the streams now and then. A worker without work would not notice that one is missing or full, nor that
    /// answers are kept for another time than before.
    pub(crate) async fn watch_streams(self, role: Role, stop: CancellationToken) {
        let runs = self.broker.layout.runs(role);
        while timeout(LOOK_EVERY, stop.cancelled()).await.is_err() {
            for stream in [runs, streams::DEAD] {
                match self.broker.jetstream.get_stream(stream).await {
                    Ok(looked) => {
                        let info = looked.cached_info();
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
                    // The server is away, which readiness tells by itself, or it may not be asked.
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
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

fn is_final(error: &PublishError) -> bool {
    match error {
        PublishError::Conflict { .. } | PublishError::TooLarge => true,
        PublishError::Full | PublishError::Unheard(_) | PublishError::Refused(_) => false,
    }
}
