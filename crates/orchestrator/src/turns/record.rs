//! Stores every answer in its thread, or in the history of its schedule. All orchestrators share one durable
//! consumer, so that an answer is stored also if the orchestrator and the client that asked for it are gone.

use std::time::Duration;

use async_nats::jetstream::{
    self, AckKind, Message,
    consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull},
};
use broker::{Broker, Chain, Unavailable, retry::RetryDelays};
use contract::{
    schedule::{EndRun, RunOutcome},
    thread::{AnswerState, EndTurn, TurnAnswer},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use operate::answer;
use subjects::{Answer, HandoffId, Kind, Pattern, Role, Subject};
use tokio::{select, time::sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::{Turns, outcome::outcome};
use crate::gateway::CallError;

const CONSUMER: &str = "orchestrator-threads";
const BATCH: usize = 32;
const MAX_CONCURRENT: usize = 8;
const HEARTBEAT: Duration = Duration::from_secs(5);
const ACK_WAIT: Duration = Duration::from_secs(30);
const MAX_ACK_PENDING: i64 = 10_000;
/// After this time the request that waits for the answer has stored it, usually.
const LEAVE_TO_REQUEST: Duration = Duration::from_secs(2);
const RETRY_DELAY: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
enum RecordError {
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error("reading the stream of answers")]
    Stream(#[from] jetstream::context::GetStreamError),
    #[error("creating the consumer of answers")]
    Consumer(#[from] jetstream::stream::ConsumerError),
    #[error("requesting answers")]
    Request(#[from] jetstream::consumer::StreamError),
    #[error("receiving answers")]
    Receive(#[from] pull::MessagesError),
    #[error("the server ended the consumer")]
    Ended,
}

impl RecordError {
    /// Returns whether the stream of answers or its consumer is away. After another error, or a loss of the
    /// connection, it is read again at once.
    fn is_outage(&self) -> bool {
        matches!(self, Self::Stream(_) | Self::Consumer(_) | Self::Request(_))
    }
}

impl Turns {
    pub(super) async fn record_answers(&self, stop: &CancellationToken) {
        let mut delays = RetryDelays::forever(Duration::from_millis(100), Duration::from_secs(5));
        while !stop.is_cancelled() {
            // Boxed, since the future is large.
            match Box::pin(self.record(stop)).await {
                Ok(()) => delays.reset(),
                Err(error) => {
                    debug!(error = %Chain(&error), "Answers not recorded; retrying.");
                    if error.is_outage() {
                        self.readiness.send_modify(|readiness| readiness.records = false);
                    }
                    select! {
                        () = stop.cancelled() => return,
                        () = sleep(delays.next_delay().unwrap_or_default()) => {}
                    }
                }
            }
        }
    }

    /// Records answers until `stop` is cancelled or the connection was restored after a loss.
    async fn record(&self, stop: &CancellationToken) -> Result<(), RecordError> {
        let broker = self.nats.broker().await?;
        let mut connections = broker.connections.clone();
        connections.mark_unchanged();
        let consumer = consumer(&broker).await?;
        let mut answers =
            consumer.stream().max_messages_per_batch(BATCH).heartbeat(HEARTBEAT).messages().await?;
        self.readiness.send_modify(|readiness| readiness.records = true);
        let mut recording = FuturesUnordered::new();
        loop {
            select! {
                // Cancel-safe.
                () = stop.cancelled() => break,
                // Cancel-safe: the change stays visible.
                _ = connections.changed() => break,
                // Cancel-safe: the others stay in the set.
                Some(()) = recording.next(), if !recording.is_empty() => {}
                // Cancel-safe: what is not yielded stays in the stream.
                received = answers.next(), if recording.len() < MAX_CONCURRENT => {
                    recording.push(self.record_answer(received.ok_or(RecordError::Ended)??));
                }
            }
        }
        while recording.next().await.is_some() {}
        Ok(())
    }

    async fn record_answer(&self, message: Message) {
        let how = self.store(&message).await;
        if let Err(error) = message.ack_with(how).await {
            debug!(%error, "Answer not acknowledged; it is recorded again.");
        }
    }

    /// Stores an answer and returns how its message is settled.
    async fn store(&self, message: &Message) -> AckKind {
        let Ok(Subject::Completion(handoff_id)) = message.subject.parse() else { return AckKind::Ack };
        if self.answers.was_ended_here(handoff_id) {
            return AckKind::Ack;
        }
        if self.answers.is_expected(handoff_id) {
            return AckKind::Nak(Some(LEAVE_TO_REQUEST));
        }
        let completion = match answer::read(&message.subject, message.headers.as_ref(), &message.payload) {
            Some(Ok(Answer::Completion(completion))) => completion,
            Some(Ok(Answer::Findings(_))) | None => return AckKind::Ack,
            Some(Err(error)) => {
                warn!(handoff.id = %handoff_id, error = %Chain(&error), "Answer unreadable; not recorded.");
                return AckKind::Ack;
            }
        };
        let ended = match completion.kind {
            Kind::Schedule => {
                let end = end_of_run(handoff_id, outcome(completion));
                self.gateway.call(&end).await.map(|ended| ended.ended)
            }
            _ => {
                let end = EndTurn { handoff_id, answer: outcome(completion), is_work_over: true };
                self.gateway.call(&end).await.map(|ended| ended.ended)
            }
        };
        match ended {
            Ok(is_ended) => {
                if is_ended {
                    self.note_recorded(handoff_id);
                }
                AckKind::Ack
            }
            Err(error) => {
                match error {
                    CallError::Unavailable(_) => {
                        debug!(handoff.id = %handoff_id, error = %Chain(&error), "Answer not recorded yet.");
                    }
                    _ => warn!(handoff.id = %handoff_id, error = %Chain(&error), "Answer not recorded yet."),
                }
                AckKind::Nak(Some(RETRY_DELAY))
            }
        }
    }

    fn note_recorded(&self, id: HandoffId) {
        self.metrics.recorded.inc();
        debug!(handoff.id = %id, "Answer recorded for a request that is gone.");
    }
}

/// Returns what is stored of the answer to a run of a schedule.
pub(crate) fn end_of_run(handoff_id: HandoffId, answer: TurnAnswer) -> EndRun {
    let outcome = match answer.state {
        AnswerState::Completed => RunOutcome::Completed,
        AnswerState::Question => RunOutcome::Question,
        AnswerState::Failed => RunOutcome::Failed,
        AnswerState::Cancelled => RunOutcome::Cancelled,
    };
    EndRun { handoff_id, outcome, text: answer.text, error_code: answer.error_code }
}

/// Returns the shared consumer. It is created before any turn of an orchestrator is handed off, so it need
/// not see earlier answers.
async fn consumer(broker: &Broker) -> Result<PullConsumer, RecordError> {
    let config = pull::Config {
        durable_name: Some(CONSUMER.to_owned()),
        description: Some("Answers that orchestrators store in threads.".to_owned()),
        filter_subject: Pattern::Answers(Role::ProjectManager).to_string(),
        deliver_policy: DeliverPolicy::New,
        ack_policy: AckPolicy::Explicit,
        ack_wait: ACK_WAIT,
        max_ack_pending: MAX_ACK_PENDING,
        ..pull::Config::default()
    };
    let runs = broker.layout.runs(Role::ProjectManager);
    let stream = broker.jetstream.get_stream_no_info(runs).await?;
    Ok(stream.get_or_create_consumer(CONSUMER, config).await?)
}
