//! Stores a request as a turn and hands it off, or joins the turn that it repeats.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use broker::Chain;
use contract::{
    key::OnDisconnect,
    thread::{BeginOutcome, BeginTurn, Turn},
};
use crash::reach;
use http::StatusCode;
use tracing::{Instrument, debug, warn};
use uuid::Uuid;

use super::{Expected, RequestWait, Turns, live};
use crate::{crash_points::Point, error::ApiError, gateway::CallError};

/// Whether a request wants to see what happens before the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Live {
    Wanted,
    NotWanted,
}

/// A request for a turn.
#[derive(Debug)]
pub(crate) struct TurnRequest {
    pub(crate) begin: BeginTurn,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) live: Live,
    /// Whether the client counts its retries.
    pub(crate) counts_retries: bool,
    /// The trace of the client.
    pub(crate) traceparent: Option<String>,
}

/// Why a request has no turn.
#[derive(Debug)]
pub(crate) enum NotBegun {
    /// The thread has gone on after the turn that the request follows. Nothing was stored.
    Moved,
    Refused(ApiError),
}

/// A turn that was handed off or answered.
#[derive(Debug)]
pub(crate) struct BegunTurn {
    pub(crate) turn: Turn,
    /// `None` if the turn has its answer.
    pub(crate) expected: Option<Expected>,
    /// `None` if it is not wanted or not possible.
    pub(crate) live: Option<live::Live>,
    pub(crate) request_wait: RequestWait,
    /// Whether it matters that the client received the answer.
    pub(crate) marks_delivery: bool,
}

impl Turns {
    /// Begins a turn. Goes on in the background if the request is dropped meanwhile, so that what is stored
    /// is handed off at once.
    pub(crate) async fn begin(self: &Arc<Self>, request: TurnRequest) -> Result<BegunTurn, NotBegun> {
        if !self.is_ready() {
            // Without NATS, that is the reason.
            self.broker().await?;
            let message = "This orchestrator does not read answers at the moment; repeat the request.";
            return Err(ApiError::unavailable("starting", message).into());
        }
        let turns = self.clone();
        let begin = async move { turns.begin_and_hand_off(request).await };
        self.tasks.spawn(begin.in_current_span()).await.unwrap_or_else(|error| {
            warn!(%error, "Request ended by a panic.");
            let failed = ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "The request failed.");
            Err(failed.into())
        })
    }

    async fn begin_and_hand_off(self: &Arc<Self>, mut request: TurnRequest) -> Result<BegunTurn, NotBegun> {
        let started = Instant::now();
        let wait_id = Uuid::now_v7().to_string();
        // A request that never leaves need not be told apart from others.
        if request.on_disconnect == OnDisconnect::Cancel {
            request.begin.wait_id = Some(wait_id.clone());
        }
        // Before anything is stored: without NATS the request is refused.
        let broker = self.broker().await?;
        let begun = self.store_turn(&request.begin).await?;
        reach(Point::TurnStored).await;
        let mut turn = begun.turn;
        let is_new = match begun.outcome {
            BeginOutcome::Begun => true,
            BeginOutcome::Joined => false,
            BeginOutcome::Busy => return Err(busy(&turn).into()),
            BeginOutcome::KeyReused => return Err(key_reused().into()),
            BeginOutcome::TooManyOpen => return Err(too_many_open(request.begin.max_open).into()),
            BeginOutcome::Moved => return Err(NotBegun::Moved),
        };
        let marks_delivery = request.counts_retries;
        let mut request_wait = RequestWait::new(self, turn.handoff_id, wait_id, request.on_disconnect);
        if turn.answer.is_some() {
            request_wait.answered();
            return Ok(BegunTurn { turn, expected: None, live: None, request_wait, marks_delivery });
        }
        let expected = self.answers.expect(turn.handoff_id, &turn.user_id);
        let live = match request.live {
            Live::Wanted => live::Live::subscribe(&broker.client, turn.handoff_id)
                .await
                .inspect_err(|error| debug!(%error, "Progress not followed."))
                .ok(),
            Live::NotWanted => None,
        };
        // Without a lease, a manager may not work on it, such as after it was cancelled.
        if (is_new || turn.sent_at.is_none()) && begun.lease.is_some() {
            let traceparent = telemetry::traceparent().or(request.traceparent);
            let handed_off = self.hand_off(&broker, &turn, begun.lease.as_deref(), traceparent).await;
            if let Err(error) = handed_off {
                if let Some(answer) = error.final_answer() {
                    let id = turn.handoff_id;
                    warn!(handoff.id = %id, error = %Chain(&error), "Turn not handed off; ended.");
                    self.end_unpublished(turn.handoff_id, answer.clone()).await;
                    request_wait.answered();
                    turn.answer = Some(answer);
                    return Ok(BegunTurn { turn, expected: None, live: None, request_wait, marks_delivery });
                }
                // The client gets an error and may retry; until then the work is not cancelled.
                request_wait.postpone();
                return Err(error.into_api_error(&turn).into());
            }
            self.metrics.hand_off_seconds.observe(started.elapsed().as_secs_f64());
            reach(Point::HandoffPublished).await;
        }
        if !is_new {
            // The answer may have been stored before this request waited for it.
            self.look_for_answer(turn.handoff_id).await;
        }
        Ok(BegunTurn { turn, expected: Some(expected), live, request_wait, marks_delivery })
    }

    /// Stores a request. If its thread is busy with a turn whose answer exists but is not stored yet, because
    /// the gateway was away when it came, that is done first.
    async fn store_turn(&self, begin: &BeginTurn) -> Result<contract::thread::BegunTurn, ApiError> {
        let begun = self.gateway.call(begin).await.map_err(not_begun)?;
        if begun.outcome != BeginOutcome::Busy {
            return Ok(begun);
        }
        let Ok(Some(answer)) = self.find_answer(begun.turn.handoff_id).await else { return Ok(begun) };
        self.end(begun.turn.handoff_id, answer).await;
        self.gateway.call(begin).await.map_err(not_begun)
    }
}

impl From<ApiError> for NotBegun {
    fn from(refused: ApiError) -> Self {
        Self::Refused(refused)
    }
}

impl From<NotBegun> for ApiError {
    fn from(error: NotBegun) -> Self {
        match error {
            NotBegun::Refused(refused) => refused,
            NotBegun::Moved => {
                let message = "The thread has gone on meanwhile; repeat the request.";
                Self::new(StatusCode::CONFLICT, "thread_busy", message)
            }
        }
    }
}

fn not_begun(error: CallError) -> ApiError {
    let CallError::Failed { code, message, .. } = &error else { return error.into_api_error() };
    match code.as_str() {
        // It was revoked after it was checked.
        "not_found" => ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", "The API key was revoked."),
        "too_large" => {
            let too_large = ApiError::invalid("messages", format!("The request is too large: {message}."));
            ApiError { code: "context_length_exceeded".into(), ..too_large }
        }
        "invalid_arguments" => ApiError::new(StatusCode::BAD_REQUEST, "invalid_value", message.clone()),
        _ => error.into_api_error(),
    }
}

fn busy(open: &Turn) -> ApiError {
    let message = format!(
        "The thread {} is busy with chatcmpl-{}: wait for its answer, or cancel it with POST \
         /v1/chat/completions/chatcmpl-{}/cancel.",
        open.thread_id, open.handoff_id, open.handoff_id
    );
    ApiError::new(StatusCode::CONFLICT, "thread_busy", message).not_retryable()
}

fn too_many_open(max: Option<u64>) -> ApiError {
    let max = max.unwrap_or_default();
    let message = format!(
        "This key may have {max} chats worked on at the same time, also those whose client is gone. Wait for \
         an answer, or cancel one."
    );
    ApiError::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_exceeded", message)
        .retry_in(Duration::from_secs(1))
}

fn key_reused() -> ApiError {
    let message = "This Idempotency-Key was used with another body; use a new key for a new request.";
    let reused = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", message);
    ApiError { param: Some("Idempotency-Key".to_owned()), ..reused }
}
