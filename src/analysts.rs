//! Hands verifications off to project analysts and waits for their findings.

use std::{sync::Arc, time::Duration};

use async_nats::HeaderMap;
use broker::Chain;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use subjects::{
    Answer, Encoding, Findings, Handoff, HandoffId, Role, Subject, headers, signature::SignatureBase,
};
use tokio::{sync::Semaphore, time::timeout};

use tracing::{Instrument, debug};

use crate::{storage::Storage, telemetry::spans, tools::CallError};

/// How often the stored answer is polled, in addition to the subscription: a published message may be missed.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Has work verified by analysts.
#[derive(Debug)]
pub(crate) struct Analysts {
    storage: Storage,
    /// Limits concurrent verifications; `None` if this instance uses no analysts.
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
    #[error("there is no lease for the analyst: {0}")]
    NoLease(String),
    /// The call that issues the lease was rejected or could not be made.
    #[error("there is no lease for the analyst: {0}")]
    Call(CallError),
    #[error("no analyst answered within {0}")]
    TooLate(String),
    #[error("the recording has no such verification")]
    NotRecorded,
}

impl Analysts {
    pub(crate) fn new(
        storage: Storage,
        max_concurrent: Option<usize>,
        signing_key: Option<nkeys::KeyPair>,
        patience: Duration,
    ) -> Self {
        let slots = max_concurrent.map(|count| Arc::new(Semaphore::new(count)));
        Self { storage, slots, signing_key, patience }
    }

    /// Publishes the verification and waits for its findings. Publishing the same handoff again does not
    /// verify it again. The lease says on whose behalf the analyst works. The verification joins the
    /// current trace; without spans it joins `traceparent`.
    pub(crate) async fn verify(
        &self,
        handoff: &Handoff,
        lease: Option<&str>,
        traceparent: &str,
    ) -> Result<Findings, Error> {
        let slots = self.slots.as_ref().ok_or(Error::Disabled)?;
        let waiting = async {
            // P18: limits concurrent verifications over all handoffs of this instance.
            let _slot = slots.acquire().await;
            self.hand_off_and_wait(handoff, lease, traceparent).await
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

    async fn hand_off_and_wait(
        &self,
        handoff: &Handoff,
        lease: Option<&str>,
        traceparent: &str,
    ) -> Result<Findings, Error> {
        let not_handed_off = |error: &dyn std::error::Error| Error::NotHandedOff(Chain(error).to_string());
        let subject = Subject::Findings(handoff.id).to_string();
        // Subscribed before the handoff is published, so that no answer is missed.
        let mut published = self
            .storage
            .streams
            .broker
            .client
            .subscribe(subject)
            .await
            .map_err(|error| not_handed_off(&error))?;
        if let Some(findings) = self.read_findings(handoff).await {
            return Ok(findings);
        }
        let body = handoff.encode(Encoding::Json).map_err(|error| not_handed_off(&error))?;
        let body = bytes::Bytes::from(body);
        let headers = || {
            let mut headers = self.headers(handoff, lease, &body);
            let sending = telemetry::traceparent();
            headers.insert(headers::TRACEPARENT, sending.as_deref().unwrap_or(traceparent));
            headers
        };
        let subject = handoff.subject();
        broker::publish_within(
            &self.storage.streams.broker.client,
            &subject,
            headers,
            &body,
            None,
            self.patience,
        )
        .instrument(spans::send(&subject, handoff.id))
        .await
        .map_err(|error| not_handed_off(&error))?;
        loop {
            // Only the stored answer counts: any client may publish on the subject, but storing needs the
            // compare-and-set.
            drop(timeout(POLL_INTERVAL, published.next()).await);
            if let Some(findings) = self.read_findings(handoff).await {
                return Ok(findings);
            }
        }
    }

    /// Cancels a verification that is no longer awaited. Best effort.
    async fn cancel(&self, id: HandoffId) {
        let cancel =
            self.storage.streams.broker.client.publish(Subject::Cancel(id).to_string(), bytes::Bytes::new());
        if let Err(error) = cancel.await {
            debug!(handoff.id = %id, error = %Chain(&error), "Verification not cancelled.");
        }
    }

    /// Reads the findings for the task of this handoff. A failed read counts as not stored yet.
    /// Returns the stored findings of a verification, also those that say why it failed.
    pub(crate) async fn read_findings(&self, handoff: &Handoff) -> Option<Findings> {
        match self.storage.read_answer(Role::ProjectAnalyst, handoff.id).await {
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

    /// Reads whether a verification ended without findings.
    pub(crate) async fn check_failed(&self, id: HandoffId) -> bool {
        let stored = self.storage.read_answer(Role::ProjectAnalyst, id).await;
        matches!(stored, Ok(Some(Answer::Findings(findings))) if findings.error.is_some())
    }

    fn headers(&self, handoff: &Handoff, lease: Option<&str>, body: &[u8]) -> HeaderMap {
        let mut out = HeaderMap::new();
        if let Some(lease) = lease {
            out.insert(headers::LEASE, lease);
        }
        out.insert(headers::MSG_ID, handoff.id.to_string());
        if let Some(key) = &self.signing_key {
            let (subject, issued_at) = (handoff.subject().to_string(), handoff.issued_at.to_string());
            let signed = SignatureBase {
                subject: &subject,
                handoff_id: handoff.id,
                issued_at: &issued_at,
                body,
                lease,
            };
            // If signing fails, the handoff is sent unsigned, and an analyst that requires signatures refuses
            // it.
            if let Ok(signature) = signed.sign(key) {
                out.insert(headers::SIGNATURE, signature);
            }
        }
        out
    }
}
