//! The one answer of a handoff: how it is put, and how it is committed.

use std::time::Duration;

use async_nats::HeaderMap;
use broker::{Broker, Chain, Expect, PublishError, ReadError};
use bytes::Bytes;
use subjects::{
    Answer, ChatMessage, ChatRole, CodecError, Completion, Encoding, Failure, Findings, FindingsStatus,
    FinishReason, HandoffId, InstanceId, Kind, Pattern, Role, SCHEMA_VERSION, Status, Stop, Subject, Trace,
    Usage, headers, streams,
};
use tracing::warn;

use crate::agent::{Outcome, Said};

/// How long an answer is tried to be stored before the handoff is left to come back.
const COMMIT_WITHIN: Duration = Duration::from_secs(60);

/// What every answer says about the run it ends.
#[derive(Clone, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) kind: Kind,
    pub(crate) id: HandoffId,
    pub(crate) instance: &'a InstanceId,
    pub(crate) attempts: u32,
    pub(crate) trace_id: String,
}

impl Run<'_> {
    /// Puts an outcome into the words of the contract.
    pub(crate) fn answer(self, outcome: Outcome) -> Answer {
        let Outcome { said, usage, steps, stop } = outcome;
        let trace = Trace { steps, ..Trace::ended(self.trace_id, stop) };
        match said {
            Said::Message { status, content, finish } => Answer::Completion(Completion {
                schema_version: SCHEMA_VERSION,
                handoff_id: self.id,
                kind: self.kind,
                status,
                message: Some(ChatMessage { role: ChatRole::Assistant, content }),
                finish_reason: finish,
                tasks: Vec::new(),
                verifications: Vec::new(),
                transcript: Vec::new(),
                usage,
                trace,
                attempts: self.attempts,
                instance: self.instance.clone(),
                error: None,
            }),
            Said::Judgement { task, status, actions } => Answer::Findings(Findings {
                schema_version: SCHEMA_VERSION,
                handoff_id: self.id,
                kind: self.kind,
                task_id: Some(task),
                status,
                findings: Vec::new(),
                recommended_actions: actions,
                preferences_applied: Vec::new(),
                usage,
                trace,
                attempts: self.attempts,
                instance: self.instance.clone(),
                error: None,
            }),
        }
    }

    /// The answer of a handoff that came to nothing.
    pub(crate) fn failure(self, failure: Failure, stop: Stop) -> Answer {
        let trace = Trace::ended(self.trace_id, stop);
        match self.kind.role() {
            Role::ProjectManager => {
                let (status, finish_reason) = match stop {
                    Stop::Cancelled => (Status::Cancelled, FinishReason::Cancelled),
                    _ => (Status::Failed, FinishReason::Error),
                };
                Answer::Completion(Completion {
                    schema_version: SCHEMA_VERSION,
                    handoff_id: self.id,
                    kind: self.kind,
                    status,
                    message: None,
                    finish_reason,
                    tasks: Vec::new(),
                    verifications: Vec::new(),
                    transcript: Vec::new(),
                    usage: Usage::default(),
                    trace,
                    attempts: self.attempts,
                    instance: self.instance.clone(),
                    error: Some(failure),
                })
            }
            Role::ProjectAnalyst => Answer::Findings(Findings {
                schema_version: SCHEMA_VERSION,
                handoff_id: self.id,
                kind: self.kind,
                task_id: None,
                // No verdict was reached; anything else would be a verdict.
                status: FindingsStatus::NeedsClarification,
                findings: Vec::new(),
                recommended_actions: Vec::new(),
                preferences_applied: Vec::new(),
                usage: Usage::default(),
                trace,
                attempts: self.attempts,
                instance: self.instance.clone(),
                error: Some(failure),
            }),
        }
    }
}

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// It is the one answer, now and for ever.
    Ours,
    /// The handoff has another answer, or another owner. Stop silently.
    Fenced,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("writing the answer")]
    Encode(#[from] CodecError),
    #[error("storing the answer")]
    Publish(#[from] PublishError),
    #[error("looking for an answer")]
    Read(#[from] ReadError),
}

/// Stores the answer if, and only if, nothing was ever stored under the handoff's run.
pub(crate) async fn commit(
    broker: &Broker,
    kind: Kind,
    answer: &Answer,
    encoding: Encoding,
) -> Result<Committed, Error> {
    let body = Bytes::from(answer.encode(encoding)?);
    let expect = Expect { over: Pattern::Run(kind.role(), answer.handoff_id()), sequence: 0 };
    let subject = answer.subject();
    let headers = || headers_of(answer, encoding);
    match broker::publish_within(&broker.jetstream, &subject, headers, &body, Some(&expect), COMMIT_WITHIN)
        .await
    {
        Ok(_) => Ok(Committed::Ours),
        // An earlier try of ours may have been stored though its confirmation was lost.
        Err(PublishError::Conflict { unheard_before: true }) => {
            let stored = Box::pin(broker::last_on(&broker.jetstream, streams::RUNS, &subject)).await?;
            let ours = stored.is_some_and(|message| message.payload == body);
            Ok(if ours { Committed::Ours } else { Committed::Fenced })
        }
        Err(PublishError::Conflict { unheard_before: false }) => Ok(Committed::Fenced),
        Err(error) => Err(error.into()),
    }
}

/// Whether the handoff has its answer already.
pub(crate) async fn is_answered(broker: &Broker, kind: Kind, id: HandoffId) -> Result<bool, Error> {
    let subject = Subject::answer(kind, id);
    Ok(broker::last_on(&broker.jetstream, streams::RUNS, &subject).await?.is_some())
}

/// Sends the copy that a handoff asked for. Best effort: the durable answer is already stored.
pub(crate) async fn copy(broker: &Broker, answer: &Answer, encoding: Encoding, reply_to: &str) {
    let Ok(body) = answer.encode(encoding) else { return };
    let sent = broker
        .client
        .publish_with_headers(reply_to.to_owned(), headers_of(answer, encoding), body.into())
        .await;
    if let Err(error) = sent {
        warn!(handoff.id = %answer.handoff_id(), error = %Chain(&error), "The copy of an answer could not be sent.");
    }
}

/// Sends the copy again from what is stored, when it is not known whether it was sent before.
pub(crate) async fn copy_stored(
    broker: &Broker,
    kind: Kind,
    id: HandoffId,
    reply_to: &str,
) -> Result<(), Error> {
    let subject = Subject::answer(kind, id);
    let Some(stored) = broker::last_on(&broker.jetstream, streams::RUNS, &subject).await? else {
        return Ok(());
    };
    let mut kept = HeaderMap::new();
    if let Some(content_type) = stored.headers.get(headers::CONTENT_TYPE) {
        kept.insert(headers::CONTENT_TYPE, content_type.clone());
    }
    let sent = broker.client.publish_with_headers(reply_to.to_owned(), kept, stored.payload).await;
    if let Err(error) = sent {
        warn!(handoff.id = %id, error = %Chain(&error), "The copy of an answer could not be sent.");
    }
    Ok(())
}

fn headers_of(answer: &Answer, encoding: Encoding) -> HeaderMap {
    let trace_id = match answer {
        Answer::Completion(completion) => &completion.trace.trace_id,
        Answer::Findings(findings) => &findings.trace.trace_id,
    };
    let mut out = HeaderMap::new();
    out.insert(headers::CONTENT_TYPE, encoding.content_type());
    // Only a trace that the producer began is carried on; one made from the id is in the answer for whoever wants it.
    if *trace_id != answer.handoff_id().trace_id() {
        out.insert(headers::TRACEPARENT, format!("00-{trace_id}-{}-01", answer.handoff_id().span_id()));
    }
    out
}
