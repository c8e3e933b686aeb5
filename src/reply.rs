//! Builds the answer of a handoff and commits it: exactly one is stored.

use async_nats::HeaderMap;
use broker::{Broker, Chain, Expect, PublishError};
use bytes::Bytes;
use chain::Committed;
use subjects::{
    Answer, ChatMessage, ChatRole, CodecError, Completion, Encoding, Failure, Findings, FindingsStatus,
    FinishReason, HandoffId, InstanceId, Kind, Pattern, Role, SCHEMA_VERSION, ScopeId, Status, Stop, Subject,
    Trace, headers,
};
use tracing::{Instrument, warn};

use crate::{
    agent::{AnswerBody, LedgerSummary, Outcome},
    storage::Storage,
    telemetry::spans,
};

/// The part of an answer that describes its run.
#[derive(Clone, Debug)]
pub(crate) struct Run<'a> {
    pub(crate) kind: Kind,
    pub(crate) id: HandoffId,
    pub(crate) instance: &'a InstanceId,
    pub(crate) attempts: u32,
    pub(crate) trace_id: String,
    /// The task that an analyst verified.
    pub(crate) task: Option<ScopeId>,
}

impl Run<'_> {
    /// Builds the answer from an outcome.
    pub(crate) fn answer(self, outcome: Outcome, summary: LedgerSummary) -> Answer {
        let Outcome { body, stop, failure, dead_letter: _ } = outcome;
        let LedgerSummary { usage, tasks, verifications, trace } = summary;
        let trace = trace.unwrap_or_else(|| Trace::new(self.trace_id, stop));
        match self.kind.role() {
            Role::ProjectManager => {
                let (mut resumes_as, mut resumes_task, mut transcript) = (None, None, Vec::new());
                let (mut planned, mut review) = (Vec::new(), None);
                let (status, content, finish_reason) = match (body, stop) {
                    (AnswerBody::Message { status, content, finish }, _) => (status, Some(content), finish),
                    (AnswerBody::Question { content, resumes_as: kind, task, transcript: messages }, _) => {
                        (resumes_as, resumes_task, transcript) = (Some(kind), task, messages);
                        (Status::NeedsClarification, Some(content), FinishReason::Stop)
                    }
                    (AnswerBody::Steps { content, steps }, _) => {
                        planned = steps;
                        (Status::Completed, Some(content), FinishReason::Stop)
                    }
                    (AnswerBody::Review { content, decision }, _) => {
                        review = Some(decision);
                        (Status::Completed, Some(content), FinishReason::Stop)
                    }
                    (AnswerBody::Findings(_) | AnswerBody::Empty, Stop::Cancelled) => {
                        (Status::Cancelled, None, FinishReason::Cancelled)
                    }
                    (AnswerBody::Findings(_) | AnswerBody::Empty, _) => {
                        (Status::Failed, None, FinishReason::Error)
                    }
                };
                Answer::Completion(Completion {
                    schema_version: SCHEMA_VERSION,
                    handoff_id: self.id,
                    kind: self.kind,
                    status,
                    message: content.map(|content| ChatMessage { role: ChatRole::Assistant, content }),
                    finish_reason,
                    tasks,
                    verifications,
                    steps: planned,
                    review,
                    transcript,
                    resumes_as,
                    resumes_task,
                    usage,
                    trace,
                    attempts: self.attempts,
                    instance: self.instance.clone(),
                    error: failure,
                })
            }
            Role::ProjectAnalyst => {
                let judged = match body {
                    AnswerBody::Findings(judged) => Some(*judged),
                    AnswerBody::Message { .. }
                    | AnswerBody::Question { .. }
                    | AnswerBody::Steps { .. }
                    | AnswerBody::Review { .. }
                    | AnswerBody::Empty => None,
                };
                // Without a judgement there is no verdict; any other status would imply one.
                let status =
                    judged.as_ref().map_or(FindingsStatus::NeedsClarification, |judged| judged.status);
                let (task_id, findings, recommended_actions, preferences_applied) = match judged {
                    Some(judged) => (Some(judged.task), judged.findings, judged.actions, judged.preferences),
                    None => (self.task, Vec::new(), Vec::new(), Vec::new()),
                };
                Answer::Findings(Findings {
                    schema_version: SCHEMA_VERSION,
                    handoff_id: self.id,
                    kind: self.kind,
                    task_id,
                    status,
                    findings,
                    recommended_actions,
                    preferences_applied,
                    usage,
                    trace,
                    attempts: self.attempts,
                    instance: self.instance.clone(),
                    error: failure,
                })
            }
        }
    }

    /// Builds the answer of a handoff that failed.
    pub(crate) fn failure(self, failure: Failure, stop: Stop, summary: LedgerSummary) -> Answer {
        let outcome = Outcome { body: AnswerBody::Empty, stop, failure: Some(failure), dead_letter: false };
        self.answer(outcome, summary)
    }
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("writing the answer")]
    Encode(#[from] CodecError),
    #[error("storing the answer")]
    Publish(#[from] PublishError),
}

/// Stores the answer if the run still ends at `after`, our last journal entry (compare-and-set). From then on
/// the run is closed.
pub(crate) async fn commit(
    storage: &Storage,
    kind: Kind,
    answer: &Answer,
    encoding: Encoding,
    after: u64,
) -> Result<Committed, Error> {
    let body = Bytes::from(answer.encode(encoding)?);
    let expect = Expect { over: Pattern::Run(kind.role(), answer.handoff_id()), sequence: after };
    let subject = answer.subject();
    let headers = || answer_headers(answer, encoding);
    let sending = spans::send(&subject, answer.handoff_id());
    let (streams, runs) = (&storage.streams, storage.streams.broker.layout.runs(kind.role()));
    let published = streams.publish(runs, &subject, headers, &body, Some(&expect));
    let published = published.instrument(sending.clone()).await;
    if published.is_err() {
        telemetry::mark_failed(&sending, "not_stored");
    }
    drop(sending);
    Ok(streams.resolve(runs, &subject, body, published).await?)
}

/// Reads whether the handoff is already answered.
pub(crate) async fn check_answered(storage: &Storage, kind: Kind, id: HandoffId) -> bool {
    storage.last_answer(kind.role(), &Subject::answer(kind, id)).await.is_some()
}

/// Sends the requested copy of the stored answer. Best effort: the answer itself is durable.
pub(crate) async fn send_copy(
    broker: &Broker,
    answer: &Answer,
    encoding: Encoding,
    stored: Bytes,
    reply_to: &str,
) {
    let sent = broker
        .client
        .publish_with_headers(reply_to.to_owned(), answer_headers(answer, encoding), stored)
        .await;
    if let Err(error) = sent {
        warn!(handoff.id = %answer.handoff_id(), error = %Chain(&error), "Answer not sent to reply_to.");
    }
}

/// Sends the copy again from the stored answer, when it is unknown whether it was sent.
pub(crate) async fn resend_copy(storage: &Storage, kind: Kind, id: HandoffId, reply_to: &str) {
    let Some(stored) = storage.last_answer(kind.role(), &Subject::answer(kind, id)).await else { return };
    let mut kept = HeaderMap::new();
    if let Some(content_type) = stored.headers.get(headers::CONTENT_TYPE) {
        kept.insert(headers::CONTENT_TYPE, content_type.clone());
    }
    let client = &storage.streams.broker.client;
    if let Err(error) = client.publish_with_headers(reply_to.to_owned(), kept, stored.payload).await {
        warn!(handoff.id = %id, error = %Chain(&error), "Answer not sent to reply_to.");
    }
}

fn answer_headers(answer: &Answer, encoding: Encoding) -> HeaderMap {
    let trace_id = match answer {
        Answer::Completion(completion) => &completion.trace.trace_id,
        Answer::Findings(findings) => &findings.trace.trace_id,
    };
    let mut out = HeaderMap::new();
    out.insert(headers::CONTENT_TYPE, encoding.content_type());
    let id = answer.handoff_id();
    // Without spans, only a trace that the producer started is continued. A trace id derived from the handoff
    // id is in the answer itself.
    let given = || (*trace_id != id.trace_id()).then(|| spans::handoff_traceparent(trace_id, id));
    if let Some(traceparent) = telemetry::traceparent().or_else(given) {
        out.insert(headers::TRACEPARENT, traceparent);
    }
    out
}

#[cfg(test)]
mod tests;
