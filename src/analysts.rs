//! Verification by a project analyst: handed off like any other work, and its findings awaited.

use std::{sync::Arc, time::Duration};

use async_nats::HeaderMap;
use broker::Chain;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use subjects::{Answer, Encoding, Findings, Handoff, HandoffId, Role, Subject, headers, signature::Signed};
use tokio::{sync::Semaphore, time::timeout};

use tracing::{Instrument, debug};

use crate::{reply, storage::Storage, telemetry::spans};

/// Besides hearing of it, the stored answer is looked for this often: what is heard may be lost, what is stored is not.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How this instance has work verified.
#[derive(Debug)]
pub(crate) struct Analysts {
    storage: Storage,
    /// `None`: this instance asks no analysts.
    slots: Option<Arc<Semaphore>>,
    signing_key: Option<nkeys::KeyPair>,
    patience: Duration,
}

/// Why there are no findings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum Error {
    #[error("verification by analysts is disabled on this instance (analysts.enabled)")]
    Disabled,
    #[error("the verification could not be handed off: {0}")]
    NotHandedOff(String),
    #[error("no analyst answered within {0}")]
    TooLate(String),
    #[error("the recording has no such verification")]
    NotRecorded,
}

impl Analysts {
    pub(crate) fn new(
        storage: Storage,
        at_once: Option<usize>,
        signing_key: Option<nkeys::KeyPair>,
        patience: Duration,
    ) -> Self {
        let slots = at_once.map(|count| Arc::new(Semaphore::new(count)));
        Self { storage, slots, signing_key, patience }
    }

    /// Hands the verification off and waits for its findings. The same handoff is verified once, however often it is
    /// handed off. It belongs to the trace of whoever wants it.
    pub(crate) async fn verify(&self, handoff: &Handoff, traceparent: &str) -> Result<Findings, Error> {
        let slots = self.slots.as_ref().ok_or(Error::Disabled)?;
        let waiting = async {
            // P18: no more than so many at once, over all that this instance does.
            let _slot = slots.acquire().await;
            self.hand_off_and_wait(handoff, traceparent).await
        };
        let too_late = || Error::TooLate(humantime::format_duration(self.patience).to_string());
        match timeout(self.patience, waiting).await {
            Ok(found) => found,
            Err(_) => {
                self.cancel(handoff.id).await;
                Err(too_late())
            }
        }
    }

    async fn hand_off_and_wait(&self, handoff: &Handoff, traceparent: &str) -> Result<Findings, Error> {
        let not_handed_off = |error: &dyn std::error::Error| Error::NotHandedOff(Chain(error).to_string());
        let subject = Subject::Findings(handoff.id).to_string();
        // Before it is handed off, so that no answer comes too early to be heard.
        let mut heard =
            self.storage.broker.client.subscribe(subject).await.map_err(|error| not_handed_off(&error))?;
        if let Some(findings) = self.stored(handoff).await {
            return Ok(findings);
        }
        let body = handoff.encode(Encoding::Json).map_err(|error| not_handed_off(&error))?;
        let body = bytes::Bytes::from(body);
        let headers = || {
            let mut headers = self.headers(handoff, &body);
            let sending = telemetry::traceparent();
            headers.insert(headers::TRACEPARENT, sending.as_deref().unwrap_or(traceparent));
            headers
        };
        let subject = handoff.subject();
        broker::publish_within(&self.storage.broker.client, &subject, headers, &body, None, self.patience)
            .instrument(spans::send(&subject, handoff.id))
            .await
            .map_err(|error| not_handed_off(&error))?;
        loop {
            // Heard or not, the stored one counts: anyone may publish on a subject, not everyone under its conditions.
            drop(timeout(LOOK_EVERY, heard.next()).await);
            if let Some(findings) = self.stored(handoff).await {
                return Ok(findings);
            }
        }
    }

    /// When nobody waits any more, nobody should work on it either. Best effort.
    async fn cancel(&self, id: HandoffId) {
        let cancel = self.storage.broker.client.publish(Subject::Cancel(id).to_string(), bytes::Bytes::new());
        if let Err(error) = cancel.await {
            debug!(handoff.id = %id, error = %Chain(&error), "Verification not cancelled.");
        }
    }

    /// The findings of just this task, if they are there. A look that fails is a look too early.
    async fn stored(&self, handoff: &Handoff) -> Option<Findings> {
        match reply::stored(&self.storage, Role::ProjectAnalyst, handoff.id).await {
            Ok(Some(Answer::Findings(findings)))
                if findings.task_id == handoff.scope.task_id || findings.error.is_some() =>
            {
                Some(findings)
            }
            Ok(_) => None,
            Err(error) => {
                debug!(handoff.id = %handoff.id, error = %Chain(&error), "Findings lookup failed; retrying.");
                None
            }
        }
    }

    /// Looks whether a verification ended without findings.
    pub(crate) async fn has_failed(&self, id: HandoffId) -> bool {
        let stored = reply::stored(&self.storage, Role::ProjectAnalyst, id).await;
        matches!(stored, Ok(Some(Answer::Findings(findings))) if findings.error.is_some())
    }

    fn headers(&self, handoff: &Handoff, body: &[u8]) -> HeaderMap {
        let mut out = HeaderMap::new();
        out.insert(headers::MSG_ID, handoff.id.to_string());
        if let Some(key) = &self.signing_key {
            let (subject, issued_at) = (handoff.subject().to_string(), handoff.issued_at.to_string());
            let signed = Signed { subject: &subject, handoff_id: handoff.id, issued_at: &issued_at, body };
            // A key that cannot sign leaves the handoff unsigned, and whoever wants signatures refuses it by name.
            if let Ok(signature) = signed.sign(key) {
                out.insert(headers::SIGNATURE, signature);
            }
        }
        out
    }
}
