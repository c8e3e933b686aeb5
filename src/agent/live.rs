//! G14: live progress events and text deltas of a running handoff, published best effort over core NATS while
//! things happen.
//!
//! Events contain names, numbers and outcomes, never arguments, results or texts.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use async_nats::Client;
use futures_util::FutureExt;
use serde::Serialize;
use subjects::{Act, Delta, Event, Fault, InstanceId, Kind, Progress, StepOutcome, Subject};
use tokio::time::Instant;
use tracing::debug;

use crate::{
    inference::Listener,
    journal::Journal,
    tools::{LIST_METHOD, TryListener},
};

/// Publishes progress events and text deltas of one handoff. Best effort: the work never waits for it and
/// never depends on it.
#[derive(Clone, Debug)]
pub(crate) struct LivePublisher<'a> {
    pub(crate) client: &'a Client,
    pub(crate) instance: &'a InstanceId,
    pub(crate) kind: Kind,
    pub(crate) journal: &'a Journal,
    pub(crate) since: Instant,
    /// Whether text deltas were requested.
    pub(crate) streams: bool,
}

/// A step whose start, failures and end are published.
#[derive(Clone, Copy, Debug)]
pub(super) struct LiveStep<'s> {
    /// Index of the step in the ledger.
    pub(super) index: usize,
    pub(super) act: Act,
    /// The tool, structured output or task.
    pub(super) name: Option<&'s str>,
}

impl LivePublisher<'_> {
    /// Publishes that work continues.
    pub(crate) fn working(&self) {
        self.publish(&self.event(Progress::Working));
    }

    /// Publishes which tools the model is offered.
    pub(super) fn offered(&self, tools: &[String]) {
        self.publish(&Event { tools: tools.to_vec(), ..self.event(Progress::Offered) });
    }

    /// Publishes which tools the model selected.
    pub(super) fn selected(&self, tools: Vec<String>) {
        self.publish(&Event { tools, ..self.event(Progress::Selected) });
    }

    /// Publishes that a selected call is not made. The name is that of a tool, never what a model wrote.
    pub(super) fn not_called(&self, tool: Option<&str>, outcome: StepOutcome) {
        let (name, outcome) = (tool.map(str::to_owned), Some(outcome));
        self.publish(&Event { name, outcome, ..self.event(Progress::NotCalled) });
    }

    /// Publishes that a plan was made.
    pub(super) fn planned(&self, steps: usize) {
        self.publish(&Event { planned: Some(number(steps)), ..self.event(Progress::Planned) });
    }

    /// Publishes that a step started.
    pub(super) fn started(&self, step: LiveStep<'_>) {
        let progress = match step.act {
            Act::Model | Act::Think => Progress::Thinking,
            Act::Tool => Progress::Calling,
            Act::Analyst => Progress::Verifying,
        };
        self.publish(&self.step_event(progress, step));
    }

    /// Publishes how a step ended.
    pub(super) fn ended(&self, step: LiveStep<'_>, outcome: StepOutcome, tries: u32, ms: u64) {
        let progress = match step.act {
            Act::Model | Act::Think => Progress::Thought,
            Act::Tool => Progress::Called,
            Act::Analyst => Progress::Verified,
        };
        let (outcome, tries, ms) = (Some(outcome), Some(tries), Some(ms));
        self.publish(&Event { outcome, tries, ms, ..self.step_event(progress, step) });
    }

    /// Returns a listener that publishes the failed tries of a tool call.
    pub(super) fn calling<'l>(&'l self, step: LiveStep<'l>) -> ToolListener<'l> {
        ToolListener { live: self, step: Some(step) }
    }

    /// Returns a listener that publishes the failed tries to list the tools, which is no step.
    pub(super) fn listing(&self) -> ToolListener<'_> {
        ToolListener { live: self, step: None }
    }

    /// Returns a listener that publishes the failed tries of a model call and, for a turn of the
    /// conversation, its text as deltas.
    pub(super) fn listener<'l>(&'l self, step: LiveStep<'l>, turn: Option<u32>) -> ModelListener<'l> {
        ModelListener { live: self, step, turn, count: AtomicU32::new(1), sequence: AtomicU64::new(0) }
    }

    fn event(&self, progress: Progress) -> Event {
        Event {
            handoff_id: self.journal.handoff(),
            kind: self.kind,
            instance: self.instance.clone(),
            attempt: self.journal.attempt(),
            progress,
            name: None,
            elapsed_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            step: None,
            act: None,
            outcome: None,
            ms: None,
            tries: None,
            fault: None,
            tools: Vec::new(),
            planned: None,
        }
    }

    fn step_event(&self, progress: Progress, step: LiveStep<'_>) -> Event {
        Event {
            step: Some(number(step.index)),
            act: Some(step.act),
            name: step.name.map(str::to_owned),
            ..self.event(progress)
        }
    }

    fn publish_failed_try(&self, event: Event, tries: u32, fault: Fault) {
        self.publish(&Event { tries: Some(tries), fault: Some(fault), ..event });
    }

    fn publish(&self, event: &Event) {
        debug!(
            handoff.id = %event.handoff_id,
            progress = ?event.progress,
            step = event.step,
            name = event.name.as_deref(),
            outcome = event.outcome.map(tracing::field::debug),
            ms = event.ms,
            tries = event.tries,
            fault = event.fault.map(tracing::field::debug),
            tools = ?event.tools,
            planned = event.planned,
            "Progress made."
        );
        self.send(&Subject::Event(event.handoff_id), event);
    }

    fn send(&self, subject: &Subject, message: &impl Serialize) {
        // Another instance may own the handoff by now and publish for it.
        if !self.journal.is_ownership_fresh() {
            return;
        }
        let body = subjects::encode_json(message);
        // The future is polled once: it would only wait for a lost connection, and then no subscriber can be
        // reached.
        let publish = self.client.publish(subject.to_string(), body.into());
        // Unconstrained, since a task that has used up its cooperative budget would be told to wait even
        // though the client has room.
        let sent = tokio::task::unconstrained(publish).now_or_never();
        if !matches!(sent, Some(Ok(()))) {
            debug!(%subject, "Live message not sent.");
        }
    }
}

/// Publishes failed tries, and the text of a turn as numbered deltas. Each try starts its numbering anew.
#[derive(Debug)]
pub(super) struct ModelListener<'l> {
    live: &'l LivePublisher<'l>,
    step: LiveStep<'l>,
    /// `None` if the text is not streamed.
    turn: Option<u32>,
    count: AtomicU32,
    sequence: AtomicU64,
}

impl Listener for ModelListener<'_> {
    fn on_try(&self, count: u32) {
        self.count.store(count, Ordering::Relaxed);
        self.sequence.store(0, Ordering::Relaxed);
    }

    fn on_text(&self, text: &str) {
        let Some(turn) = self.turn.filter(|_| self.live.streams) else { return };
        let delta = Delta {
            handoff_id: self.live.journal.handoff(),
            attempt: self.live.journal.attempt(),
            turn,
            r#try: self.count.load(Ordering::Relaxed),
            sequence: self.sequence.fetch_add(1, Ordering::Relaxed),
            text: text.to_owned(),
        };
        self.live.send(&Subject::Delta(self.live.journal.handoff()), &delta);
    }

    fn on_failed_try(&self, model: &str, tries: u32, fault: Fault) {
        let step = LiveStep { name: Some(model), ..self.step };
        self.live.publish_failed_try(self.live.step_event(Progress::TryFailed, step), tries, fault);
    }
}

/// Publishes failed tries of tool calls.
#[derive(Debug)]
pub(super) struct ToolListener<'l> {
    live: &'l LivePublisher<'l>,
    /// `None` if the tools are listed.
    step: Option<LiveStep<'l>>,
}

impl TryListener for ToolListener<'_> {
    fn on_failed_try(&self, tries: u32, fault: Fault) {
        let event = match self.step {
            Some(step) => self.live.step_event(Progress::TryFailed, step),
            None => Event {
                act: Some(Act::Tool),
                name: Some(LIST_METHOD.to_owned()),
                ..self.live.event(Progress::TryFailed)
            },
        };
        self.live.publish_failed_try(event, tries, fault);
    }
}

/// Numbers steps, of which there are never too many.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
