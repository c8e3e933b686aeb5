//! A session: the one way from the work on a handoff to models, tools and analysts.

use std::{
    num::NonZeroU32,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crash::reach;
use futures_util::future::BoxFuture;
use leased::HeldLease;
use subjects::{
    Act, Handoff, Message, StepOutcome,
    journal::{ModelTurn, Question},
};
use tokio::time::Instant;

use super::{
    AgentResources, Ledger, LivePublisher, WorkContext, WorkError,
    conversation::has_cut_call,
    ledger::{Lane, StepEnd},
    live::LiveStep,
    scoped_ids::ScopedIds,
};
use crate::{
    context::{Budget, Fitted, Layers, Preferences, System},
    crash_points::Point,
    inference::{self, Hint, Listener, NoLease, OutputSchema, Purpose, Reply, Request},
    journal::{Journal, Remembered},
    recording::{HandoffEffects, Timed},
    telemetry::spans,
    tools::{CallError, Catalogue, Offer, Tools},
};

/// A call of a model that costs nothing is published when it takes longer than this. The offline model
/// replies at once, and the events would cost more than the reply.
const FREE_CALL_EVENT_DELAY: Duration = Duration::from_millis(20);

/// One request for a structured output.
pub(super) struct StructuredRequest<'m> {
    pub(super) messages: &'m [Message],
    pub(super) schema: &'m OutputSchema,
    pub(super) max_tokens: u32,
    pub(super) hint: Hint,
    pub(super) lane: Lane,
    /// Whether the reply that a replayed handoff got can be used again.
    pub(super) is_usable: fn(&Reply) -> bool,
}

/// A question as the journal identifies it.
struct JournalledQuestion {
    question: Question,
    /// Whether the reply that a replayed handoff got can be used again.
    is_usable: fn(&Reply) -> bool,
}

/// The state of the work on one handoff. Models, tools and analysts are only called through it, so that every
/// call is counted, timed and recorded in the ledger.
pub(crate) struct Session<'a> {
    pub(super) resources: &'a AgentResources,
    pub(super) handoff: &'a Handoff,
    pub(super) lease: Option<&'a HeldLease>,
    pub(super) ledger: &'a Ledger,
    pub(super) effects: HandoffEffects,
    pub(super) live: &'a LivePublisher<'a>,
    pub(super) journal: &'a Journal,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) scoped_ids: ScopedIds,
    pub(super) preferences: Preferences,
    pub(super) layers: Layers,
    /// Layers 1 to 5; the same in every request of this handoff.
    system: System,
    trace_id: &'a str,
    pub(super) verifications: AtomicU32,
    pub(super) temperature: f64,
    pub(super) is_default_temperature: bool,
    pub(super) max_tokens: Option<u32>,
    /// The lane of the next tool calls in the trace.
    pub(super) lane: Lane,
    /// Tokens that the model's context has room for.
    context_tokens: AtomicUsize,
}

impl<'a> Session<'a> {
    /// Fetches the catalogue of tools and the context of the handoff. Hands the handoff back if the gateway
    /// refuses the worker's token.
    pub(super) async fn open(context: WorkContext<'a>) -> Result<Self, WorkError> {
        let WorkContext { resources, handoff, lease, trace_id, ledger, live, journal } = context;
        let effects = HandoffEffects::new(handoff.id);
        let (tools, listing) = (&resources.tools, live.listing());
        let catalogue = match resources.recording.catalogue(&effects, tools, lease, &listing).await {
            Err(CallError::TokenRefused { why }) => return journal.hand_back(why).await,
            listed => listed?,
        };
        let mut session = Self {
            resources,
            handoff,
            lease,
            ledger,
            effects,
            live,
            journal,
            catalogue,
            scoped_ids: ScopedIds::new(&handoff.scope, lease),
            preferences: Preferences::default(),
            layers: Layers::default(),
            system: Layers::default().compose(&resources.preamble),
            trace_id,
            verifications: AtomicU32::new(0),
            temperature: resources.settings.temperature,
            is_default_temperature: true,
            max_tokens: None,
            lane: Lane::MAIN,
            context_tokens: AtomicUsize::new(usize::MAX),
        };
        session.learn_context_tokens().await;
        session.gather().await?;
        session.system = session.layers.compose(&resources.preamble);
        Ok(session)
    }

    /// Sets what a request asks of the model. What it leaves out stays as configured.
    pub(super) fn set_options(&mut self, temperature: Option<f64>, max_tokens: Option<NonZeroU32>) {
        self.is_default_temperature = temperature.is_none();
        self.temperature = temperature.unwrap_or(self.temperature);
        self.max_tokens = max_tokens.map(NonZeroU32::get);
    }

    /// Asks the model for its reply in one turn of the conversation. As long as the model's context turns out
    /// to be shorter than was known, the request is fitted to it and sent again. `was_cut`: the last reply
    /// was cut off in a call. Another one ends the handoff, so a replay asks again for it.
    pub(super) async fn ask(
        &self,
        turn: u32,
        messages: &[Message],
        offer: &Offer,
        may_call: bool,
        was_cut: bool,
    ) -> Result<Reply, WorkError> {
        let mut refused: Option<WorkError> = None;
        loop {
            let fixed = self.system.tokens() + offer.tokens + self.reserved_answer_tokens();
            // The server's own words tell more than the estimate.
            let fitted = match (self.budget().fit(fixed, messages), refused.take()) {
                (Ok(fitted), _) => fitted,
                (Err(_), Some(refused)) => return Err(refused),
                (Err(too_large), None) => return Err(too_large.into()),
            };
            let sent = fitted.tokens;
            match self.ask_fitted(turn, fitted, offer, may_call, was_cut).await {
                Err(WorkError::Inference(error)) => {
                    let inference::Error::TooLong { limit, .. } = &error else { return Err(error.into()) };
                    // Where the estimate is too low, a limit above it does not help.
                    let shorter = limit.filter(|limit| *limit < sent).unwrap_or(sent * 3 / 4);
                    self.context_tokens.store(shorter, Ordering::Relaxed);
                    refused = Some(error.into());
                }
                asked => return asked,
            }
        }
    }

    async fn ask_fitted(
        &self,
        turn: u32,
        fitted: Fitted<'_>,
        offer: &Offer,
        may_call: bool,
        was_cut: bool,
    ) -> Result<Reply, WorkError> {
        let request = Request {
            purpose: Purpose::Turn(turn),
            system: self.system.clone(),
            messages: &fitted.messages,
            tools: Arc::clone(&offer.functions),
            may_call,
            output_schema: None,
            temperature: self.temperature,
            is_default_temperature: self.is_default_temperature,
            max_tokens: self.max_tokens,
            time_limit: None,
            hint: Hint::Usual,
            lease: None,
            permit: None,
        };
        let index = self.ledger.begin_step(Lane::MAIN, Act::Model, "model");
        let step = LiveStep { index, act: Act::Model, name: None };
        let listener = self.live.listener(step, Some(turn));
        let note = describe_omissions(fitted.left_out, fitted.shortened);
        let is_usable: fn(&Reply) -> bool = if was_cut { has_no_cut_call } else { |_| true };
        let question = JournalledQuestion { question: Question::Turn(turn), is_usable };
        self.ask_journalled(step, question, &request, &listener, note).await
    }

    /// Asks the model once for a structured output, without tools and without streaming the text. A model
    /// that takes longer than `timeout` counts as unavailable; time for the journal is not the model's.
    pub(super) async fn ask_structured_once(
        &self,
        structured: StructuredRequest<'_>,
        timeout: Duration,
        note: String,
    ) -> Result<Reply, WorkError> {
        // Nothing is left out: the question makes no sense without all of its material.
        self.budget()
            .check_fits(self.system.tokens() + self.reserved_answer_tokens(), structured.messages)?;
        let request = Request {
            purpose: Purpose::Think(structured.schema.name),
            system: self.system.clone(),
            messages: structured.messages,
            tools: Arc::from([]),
            may_call: false,
            output_schema: Some(structured.schema.clone()),
            temperature: 0.0,
            is_default_temperature: false,
            max_tokens: Some(structured.max_tokens),
            time_limit: Some(timeout),
            hint: structured.hint,
            lease: None,
            permit: None,
        };
        let index = self.ledger.begin_step(structured.lane, Act::Think, "model");
        let question = self.journal.next_question(structured.schema.name, structured.lane.number());
        let question = JournalledQuestion { question, is_usable: structured.is_usable };
        let step = LiveStep { index, act: Act::Think, name: Some(structured.schema.name) };
        let listener = self.live.listener(step, None);
        self.ask_journalled(step, question, &request, &listener, Some(note)).await
    }

    /// Returns the journalled reply if there is one, and asks the model otherwise. Returns
    /// [`WorkError::TokenBudget`] if the handoff has used up its tokens. Hands the handoff back if the model
    /// server refuses the worker's token or an outage continues.
    async fn ask_journalled(
        &self,
        step: LiveStep<'_>,
        question: JournalledQuestion,
        request: &Request<'_>,
        listener: &dyn Listener,
        note: Option<String>,
    ) -> Result<Reply, WorkError> {
        let (JournalledQuestion { question, is_usable }, index) = (question, step.index);
        // The model is not asked and paid again for a reply that is journalled.
        let known = self.journal.take_reply(&question, is_usable);
        if let Some(Remembered { value: reply, ms }) = known {
            self.ledger.record_usage(index, &reply);
            let detail = join_notes(note, reply.note.clone());
            self.ledger.end_step(index, StepEnd { outcome: StepOutcome::Ok, ms, tries: reply.tries, detail });
            return Ok(reply);
        }
        let (used, allowed) = (self.ledger.tokens_used(), self.resources.settings.token_budget);
        if used >= allowed {
            self.ledger.end_step(
                index,
                failed_step(0, 1, "not asked: the tokens for this handoff are used up".into()),
            );
            return Err(WorkError::TokenBudget { used, allowed });
        }
        let live = Box::pin(async {
            reach(Point::BeforeModel).await;
            let replied = self.ask_and_publish(step, request, listener).await;
            reach(Point::ModelAnswered).await;
            replied
        });
        let is_structured = matches!(question, Question::Think { .. });
        let asked = async {
            let asked = self.resources.recording.model(&self.effects, request, live).await;
            if let Ok(reply) = &asked.value {
                self.record_turn(question, request, reply, asked.ms);
            }
            asked
        };
        // Journal records that are still pending are stored while the model is thinking. That may take longer
        // than the model: a finished turn is recorded before it is over, so that a deadline loses none.
        let (Timed { value, ms }, ()) = tokio::join!(asked, self.journal.write_if_costly());
        match &value {
            Ok(reply) => {
                if is_structured {
                    // Work that runs beside it may take long, so the reply is stored now.
                    self.journal.write_if_costly().await;
                }
                self.ledger.record_usage(index, reply);
                let detail = join_notes(note, reply.note.clone());
                let end = StepEnd { outcome: StepOutcome::Ok, ms, tries: reply.tries, detail };
                self.ledger.end_step(index, end);
            }
            Err(inference::Error::TokenRefused(why) | inference::Error::OutageContinues(why)) => {
                return self.journal.hand_back(why.clone()).await;
            }
            Err(error) => {
                self.ledger.end_step(index, failed_step(ms, tries_of(&value), error.to_string()));
            }
        }
        Ok(value?)
    }

    fn record_turn(&self, question: Question, request: &Request<'_>, reply: &Reply, ms: u64) {
        let has_cost = self.resources.inference.has_cost();
        // The last turn of a conversation is directly followed by the answer, so it needs no hash.
        let needs_hash = has_cost && (matches!(question, Question::Think { .. }) || !reply.calls.is_empty());
        let request_hash = needs_hash.then(|| request.hash());
        let turn = ModelTurn { question, request_hash, reply: reply.clone(), ms };
        self.journal.record_turn(turn, has_cost);
    }

    /// G14: asks the model, and publishes that the call started and how it ended, when that happens.
    async fn ask_and_publish(
        &self,
        step: LiveStep<'_>,
        request: &Request<'_>,
        listener: &dyn Listener,
    ) -> Result<Reply, inference::Error> {
        let (started, inference) = (Instant::now(), &self.resources.inference);
        let permit = TryPermit { journal: self.journal, tools: &self.resources.tools, lease: self.lease };
        let routing = self.preferences.routing();
        let mut asking = pin!(inference.ask(request, &routing, listener, &permit));
        if !inference.has_cost() {
            tokio::select! {
                biased;
                replied = &mut asking => return replied,
                // Cancel-safe: sleeping only.
                () = tokio::time::sleep(FREE_CALL_EVENT_DELAY) => {}
            }
        }
        self.live.started(step);
        let replied = asking.await;
        let outcome = if replied.is_ok() { StepOutcome::Ok } else { StepOutcome::Failed };
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.live.ended(step, outcome, tries_of(&replied), ms);
        replied
    }

    /// Returns the `traceparent` of the current span, or of the handoff if no spans are recorded.
    pub(super) fn traceparent(&self) -> String {
        telemetry::traceparent().unwrap_or_else(|| spans::handoff_traceparent(self.trace_id, self.handoff.id))
    }

    /// Returns how many tokens of a request are reserved for the reply.
    fn reserved_answer_tokens(&self) -> usize {
        let wanted = self.max_tokens.map_or(usize::MAX, |tokens| tokens as usize);
        wanted.min(self.budget().tokens / 8)
    }

    /// Returns the token budget of one request. The offline model has no context window, so its budget is
    /// unlimited.
    pub(super) fn budget(&self) -> Budget {
        let has_context_window = self.resources.inference.has_context_window();
        let known = self.context_tokens.load(Ordering::Relaxed);
        let tokens = self.resources.settings.context_tokens.min(known);
        Budget { tokens: if has_context_window { tokens } else { usize::MAX } }
    }

    /// Reads the context length of the model from its server, if the server reports it.
    async fn learn_context_tokens(&self) {
        if let Some(tokens) = self.resources.inference.context_tokens().await {
            self.context_tokens.store(tokens, Ordering::Relaxed);
        }
    }
}

/// Permits a try only while this instance owns the handoff, so that a turn that another owner has finished is
/// not paid again.
#[derive(Debug)]
struct TryPermit<'a> {
    journal: &'a Journal,
    tools: &'a Tools,
    lease: Option<&'a HeldLease>,
}

impl inference::Permit for TryPermit<'_> {
    fn acquire(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.journal.confirm_tail())
    }

    fn lease(&self, is_expired: bool) -> BoxFuture<'_, Result<Arc<str>, NoLease>> {
        Box::pin(async move {
            let held = self.lease.ok_or(NoLease::Absent)?;
            self.tools.fresh_lease(held, is_expired).await.map_err(|error| match error {
                CallError::TokenRefused { why } => NoLease::TokenRefused(why),
                error => NoLease::Unavailable(error.to_string()),
            })
        })
    }
}

/// Returns whether a reply does not end the handoff as the second one that was cut off in a call.
fn has_no_cut_call(reply: &Reply) -> bool {
    !has_cut_call(reply)
}

/// Returns how many tries a model call made.
fn tries_of(asked: &Result<Reply, inference::Error>) -> u32 {
    match asked {
        Ok(reply) => reply.tries,
        Err(inference::Error::Unavailable { tries, .. }) => *tries,
        Err(_) => 1,
    }
}

pub(super) fn failed_step(ms: u64, tries: u32, detail: String) -> StepEnd {
    StepEnd { outcome: StepOutcome::Failed, ms, tries, detail: Some(detail) }
}

/// Joins what is to be said of a step.
fn join_notes(one: Option<String>, other: Option<String>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) => Some(format!("{one}; {other}")),
        (one, other) => one.or(other),
    }
}

/// Describes what was left out or shortened so that the request fits; `None` if nothing was.
fn describe_omissions(messages: usize, results: usize) -> Option<String> {
    let all = match (messages, results) {
        (0, 0) => return None,
        (messages, 0) => format!("{messages} earlier messages were left out"),
        (0, results) => format!("{results} results were shortened"),
        (messages, results) => {
            format!("{messages} earlier messages were left out, {results} results shortened")
        }
    };
    Some(format!("{all} for want of room"))
}

/// Returns the beginning of a text on one line.
pub(super) fn excerpt(text: &str) -> String {
    const MAX_CHARS: usize = 200;
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MAX_CHARS).collect()
}
