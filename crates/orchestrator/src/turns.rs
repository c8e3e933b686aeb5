//! Turns: from a request to a handoff and its answer, exactly once.
//!
//! A turn is stored by the gateway before its handoff is published, and its answer is stored before it is
//! forgotten here. Each step can be repeated by any orchestrator, so that one may die between any two:
//!
//! - `begin`: stores a request as a turn, or joins the turn that it repeats
//! - `compose`: from a turn to its handoff; `publish`: hands it off, under its own message id
//! - `sweep`: publishes what another orchestrator stored and did not publish, and what restored streams have
//!   lost; `lost`: what became of a handoff; `refused`: what the dead letters say about it
//! - `marks`: what was handed off and delivered; `leave`: a client is gone; `cancel`: stops the work
//! - `answers`: delivers stored answers to the requests that wait for them; `live`: what happens meanwhile
//! - `record`: stores every answer in its thread; `outcome`: from a completion to what is stored

mod answers;
mod begin;
mod cancel;
mod compose;
mod leave;
mod live;
mod lost;
mod marks;
mod outcome;
mod publish;
mod record;
mod refused;
mod sweep;

use std::{sync::Arc, time::Duration};

use broker::{Broker, OnDemand};
use contract::thread::{EndTurn, TurnAnswer};
use nkeys::KeyPair;
use subjects::HandoffId;
use tokio::{sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::warn;

use crate::{error::ApiError, gateway::Gateway, metrics::Metrics};

use self::{answers::Answers, marks::Marks};
pub(crate) use self::{
    answers::{Delivered, Expected},
    begin::{BegunTurn, Live as WantsLive, NotBegun, TurnRequest},
    leave::RequestWait,
    live::{Live, Update},
    lost::Fate,
    record::end_of_run,
};

/// How long a request waits until its answer is stored in the thread. Otherwise the recorder stores it.
const END_TIMEOUT: Duration = Duration::from_secs(3);

/// The turns of this process. Rows and messages are elsewhere; here are only those who wait.
#[derive(Debug)]
pub(crate) struct Turns {
    gateway: Gateway,
    nats: Arc<OnDemand>,
    /// Signs handoffs.
    key: Option<KeyPair>,
    answers: Answers,
    marks: Marks,
    metrics: Arc<Metrics>,
    /// Work that goes on when its request is dropped.
    tasks: TaskTracker,
    readiness: watch::Sender<Readiness>,
    /// Whether handoffs are published again that the queue has lost.
    resends_lost: bool,
}

/// Preconditions of beginning a turn. Each is unset while the stream of answers is unavailable.
#[derive(Clone, Copy, Debug, Default)]
struct Readiness {
    /// Answers are read from a known place on, so that none is missed.
    follows: bool,
    /// The shared consumer exists, so that no answer goes unrecorded.
    records: bool,
}

impl Readiness {
    fn is_complete(&self) -> bool {
        self.follows && self.records
    }
}

impl Turns {
    pub(crate) fn new(
        gateway: Gateway,
        nats: Arc<OnDemand>,
        key: Option<KeyPair>,
        metrics: Arc<Metrics>,
        tasks: TaskTracker,
        resends_lost: bool,
    ) -> Arc<Self> {
        let (answers, marks) = (Answers::default(), Marks::default());
        let readiness = watch::Sender::default();
        Arc::new(Self { gateway, nats, key, answers, marks, metrics, tasks, readiness, resends_lost })
    }

    /// Returns whether a turn can be begun: its answer would be neither missed nor lost.
    pub(crate) fn is_ready(&self) -> bool {
        self.readiness.borrow().is_complete()
    }

    /// Returns how long the oldest of the requests waits that wait for an answer here.
    pub(crate) fn oldest_wait(&self) -> Duration {
        self.answers.oldest_wait()
    }

    /// Waits until turns can be begun.
    pub(crate) async fn wait_until_ready(&self) {
        // The sender lives as long as this.
        drop(self.readiness.subscribe().wait_for(Readiness::is_complete).await);
    }

    /// Delivers and records answers, publishes what was left behind and writes marks, until `stop` is
    /// cancelled.
    pub(crate) async fn run(self: Arc<Self>, sweep_every: Duration, stop: CancellationToken) {
        tokio::join!(
            self.follow_answers(&stop),
            self.record_answers(&stop),
            self.sweep(sweep_every, &stop),
            self.mark(&stop),
        );
    }

    /// Stores an answer that was delivered to a request here, unless it is stored.
    pub(crate) async fn store_delivered(&self, handoff_id: HandoffId, delivered: &Delivered) {
        if delivered.is_of_worker {
            self.end(handoff_id, delivered.answer.clone()).await;
        }
    }

    /// Stores the answer of a worker in its thread. If that is not possible now, the recorder does it later.
    async fn end(&self, handoff_id: HandoffId, answer: TurnAnswer) {
        self.store_end(&EndTurn { handoff_id, answer, is_work_over: true }).await;
    }

    /// Ends a turn that can never be handed off, or that workers refuse, and delivers its answer to the
    /// requests that wait here.
    async fn end_unpublished(&self, handoff_id: HandoffId, answer: TurnAnswer) {
        self.end_without_work(EndTurn { handoff_id, answer, is_work_over: true }).await;
    }

    /// Ends a turn that no worker has or answers, as far as is known, and delivers its answer to the requests
    /// that wait here. A worker that has it nevertheless may call no tool for it, and gets a cancel.
    async fn end_unanswered(&self, handoff_id: HandoffId, answer: TurnAnswer) {
        self.end_without_work(EndTurn { handoff_id, answer, is_work_over: false }).await;
    }

    /// If the end cannot be stored now, the sweep finds the turn again.
    async fn end_without_work(&self, end: EndTurn) {
        self.store_end(&end).await;
        self.answers.deliver(end.handoff_id, &Delivered { answer: end.answer, is_of_worker: false });
    }

    async fn store_end(&self, end: &EndTurn) {
        let id = end.handoff_id;
        match timeout(END_TIMEOUT, self.gateway.call(end)).await {
            // The late answer of a worker ends the cancel of a turn that ended without it.
            Ok(Ok(_)) if end.is_work_over => self.answers.remember_ended(id),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                warn!(handoff.id = %id, error = %broker::Chain(&error), "Answer not stored yet.");
            }
            Err(_) => warn!(handoff.id = %id, "Answer not stored in time yet."),
        }
    }

    /// Records that the answer of a turn was sent to a client.
    pub(crate) fn mark_delivered(&self, handoff_id: HandoffId) {
        self.marks.push_delivered(handoff_id);
    }

    async fn broker(&self) -> Result<Broker, ApiError> {
        self.nats.broker().await.map_err(|_| {
            let message = "NATS, which carries the work, is not available at the moment; repeat the request.";
            ApiError::unavailable("nats_unavailable", message)
        })
    }
}
