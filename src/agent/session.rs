use std::{
    sync::{Arc, atomic::AtomicU32},
    time::Duration,
};

use futures_util::future::BoxFuture;
use subjects::{
    Act, Handoff, Message, Progress, StepOutcome,
    journal::{ModelTurn, Question},
};

use super::{
    Around, Bench, Broken, Ledger, Live,
    ledger::{Lane, StepEnd},
    live::Silence,
};
use crate::{
    context::{Budget, Layers, Preferences, System},
    crash_points::{Point, reach},
    inference::{self, AnswerShape, Hint, Listener, Purpose, Reply, Request},
    journal::{Journal, Remembered},
    recording::Timed,
    telemetry::spans,
    tools::{CallError, Catalogue, Offer},
};

/// A question that takes longer than this is told of.
const WORTH_TELLING: Duration = Duration::from_millis(20);

/// A typed question.
pub(super) struct Aside<'m> {
    pub(super) messages: &'m [Message],
    pub(super) shape: &'m AnswerShape,
    pub(super) most_tokens: u32,
    pub(super) hint: Hint,
    pub(super) lane: Lane,
    /// Whether an answer that a replayed handoff got can be used.
    pub(super) is_usable: fn(&str) -> bool,
}

/// What is asked, in the terms of the journal.
struct Put {
    question: Question,
    is_usable: fn(&str) -> bool,
}

/// One handoff being worked on. Models, tools and analysts are reached through it alone, so that everything is counted,
/// timed and written into the ledger.
pub(crate) struct Session<'a> {
    pub(super) bench: &'a Bench,
    pub(super) handoff: &'a Handoff,
    pub(super) ledger: &'a Ledger,
    pub(super) live: &'a Live<'a>,
    pub(super) journal: &'a Journal,
    pub(super) catalogue: Arc<Catalogue>,
    pub(super) preferences: Preferences,
    pub(super) layers: Layers,
    /// Layers 1 to 5: the same in every request of this handoff.
    system: System,
    trace_id: &'a str,
    pub(super) verifications: AtomicU32,
    pub(super) temperature: f64,
    pub(super) max_tokens: Option<u32>,
    /// Where the next tool calls stand in the trace.
    pub(super) lane: Lane,
}

impl<'a> Session<'a> {
    /// Knows what may be called and what the handoff is about.
    pub(super) async fn open(around: Around<'a>) -> Result<Self, Broken> {
        let Around { bench, handoff, trace_id, ledger, live, journal } = around;
        let catalogue = match bench.recording.catalogue(&bench.tools).await {
            Err(CallError::TokenRefused { why }) => return journal.hand_back(why).await,
            listed => listed?,
        };
        let mut session = Self {
            bench,
            handoff,
            ledger,
            live,
            journal,
            catalogue,
            preferences: Preferences::default(),
            layers: Layers::default(),
            system: Layers::default().compose(&bench.preamble),
            trace_id,
            verifications: AtomicU32::new(0),
            temperature: bench.settings.temperature,
            max_tokens: None,
            lane: Lane::MAIN,
        };
        session.gather().await?;
        session.system = session.layers.compose(&bench.preamble);
        Ok(session)
    }

    /// One turn of the conversation.
    pub(super) async fn ask(
        &self,
        turn: u32,
        messages: &[Message],
        offer: &Offer,
        may_call: bool,
    ) -> Result<Reply, Broken> {
        let fixed = self.system.tokens() + offer.tokens + self.room_to_answer();
        let fitted = self.budget().fit(fixed, messages)?;
        let request = Request {
            purpose: Purpose::Turn(turn),
            system: self.system.clone(),
            messages: &fitted.messages,
            tools: Arc::clone(&offer.functions),
            may_call,
            shape: None,
            temperature: self.temperature,
            max_tokens: self.max_tokens,
            hint: Hint::Usual,
        };
        let index = self.ledger.begin(Lane::MAIN, Act::Model, "model");
        let deltas = self.live.turn(turn);
        let note = left_out(fitted.left_out, fitted.shortened);
        let put = Put { question: Question::Turn(turn), is_usable: |_| true };
        let mut asked = std::pin::pin!(self.put(index, put, &request, &deltas, note));
        tokio::select! {
            biased;
            reply = &mut asked => return reply,
            // Cancel-safe: sleeping only. What is over at once need not be told of.
            () = tokio::time::sleep(WORTH_TELLING) => self.live.tell(Progress::Thinking, None),
        }
        asked.await
    }

    /// A typed question, with no tools and nobody reading along.
    pub(super) async fn ask_aside(
        &self,
        aside: Aside<'_>,
        within: Duration,
        note: String,
    ) -> Result<Reply, Broken> {
        // All of it or nothing: without its material a question makes no sense, and an answer even less.
        self.budget().fit_whole(self.system.tokens() + self.room_to_answer(), aside.messages)?;
        let request = Request {
            purpose: Purpose::Think(aside.shape.name),
            system: self.system.clone(),
            messages: aside.messages,
            tools: Arc::from([]),
            may_call: false,
            shape: Some(aside.shape.clone()),
            temperature: 0.0,
            max_tokens: Some(aside.most_tokens),
            hint: aside.hint,
        };
        let index = self.ledger.begin(aside.lane, Act::Think, "model");
        let question = self.journal.think(aside.shape.name, aside.lane.number());
        let put = Put { question, is_usable: aside.is_usable };
        let asked = tokio::time::timeout(within, self.put(index, put, &request, &Silence, Some(note)));
        asked.await.unwrap_or_else(|_| {
            let why = format!("no answer within {}", humantime::format_duration(within));
            let ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
            self.ledger.end(
                index,
                StepEnd { outcome: StepOutcome::Failed, ms, tries: 1, detail: Some(why.clone()) },
            );
            let model = self.bench.inference.in_words();
            Err(inference::Error::Unavailable { model, tries: 1, why }.into())
        })
    }

    async fn put(
        &self,
        index: usize,
        put: Put,
        request: &Request<'_>,
        listener: &dyn Listener,
        note: Option<String>,
    ) -> Result<Reply, Broken> {
        let Put { question, is_usable } = put;
        // A turn that was finished is not paid for again.
        let known = self.journal.answer_to(&question, |reply| is_usable(&reply.content));
        if let Some(Remembered { value: reply, ms }) = known {
            self.ledger.paid(index, &reply);
            let end = StepEnd { outcome: StepOutcome::Ok, ms, tries: reply.tries, detail: note };
            self.ledger.end(index, end);
            return Ok(reply);
        }
        let (used, allowed) = (self.ledger.tokens(), self.bench.settings.token_budget);
        if used >= allowed {
            self.ledger.end(index, failed(0, 1, "not asked: the tokens for this handoff are used up".into()));
            return Err(Broken::Tokens { used, allowed });
        }
        let routing = self.preferences.routing();
        let live = Box::pin(async {
            reach(Point::BeforeModel).await;
            let replied = self.bench.inference.ask(request, &routing, listener, &Owner(self.journal)).await;
            reach(Point::ModelAnswered).await;
            replied
        });
        let asked = self.bench.recording.model(self.ledger, request, live);
        // While the model thinks, what is not stored yet is stored.
        let (Timed { value, ms }, ()) = tokio::join!(asked, self.journal.write_what_cost());
        match &value {
            Ok(reply) => {
                let has_a_price = self.bench.inference.has_a_price();
                let is_beside = matches!(question, Question::Think { .. });
                // The last turn of a conversation is followed by its answer at once, and needs none.
                let is_kept = has_a_price && (is_beside || !reply.calls.is_empty());
                let request_hash = is_kept.then(|| request.hash());
                let turn = ModelTurn { question, request_hash, reply: reply.clone(), ms };
                self.journal.replied(turn, has_a_price);
                if is_beside {
                    // Whatever it is beside may take long, and it is not to be asked again.
                    self.journal.write_what_cost().await;
                }
                self.ledger.paid(index, reply);
                let end = StepEnd { outcome: StepOutcome::Ok, ms, tries: reply.tries, detail: note };
                self.ledger.end(index, end);
            }
            Err(inference::Error::TokenRefused(why) | inference::Error::StillAway(why)) => {
                return self.journal.hand_back(why.clone()).await;
            }
            Err(error) => {
                let tries = match error {
                    inference::Error::Unavailable { tries, .. } => *tries,
                    _ => 1,
                };
                self.ledger.end(index, failed(ms, tries, error.to_string()));
            }
        }
        Ok(value?)
    }

    /// Where the work stands in its trace, for whoever goes on with it.
    pub(super) fn traceparent(&self) -> String {
        telemetry::traceparent().unwrap_or_else(|| spans::of_handoff(self.trace_id, self.handoff.id))
    }

    /// What of a request must be left to the answer.
    fn room_to_answer(&self) -> usize {
        let wanted = self.max_tokens.map_or(usize::MAX, |tokens| tokens as usize);
        wanted.min(self.bench.settings.context_tokens / 8)
    }

    pub(super) fn budget(&self) -> Budget {
        let has_window = self.bench.inference.has_window();
        Budget { tokens: if has_window { self.bench.settings.context_tokens } else { usize::MAX } }
    }
}

/// Lets a model be asked only while the handoff is ours: a turn that another instance has finished is not paid again.
struct Owner<'a>(&'a Journal);

impl inference::Permit for Owner<'_> {
    fn granted(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.confirm())
    }
}

pub(super) fn failed(ms: u64, tries: u32, detail: String) -> StepEnd {
    StepEnd { outcome: StepOutcome::Failed, ms, tries, detail: Some(detail) }
}

fn left_out(messages: usize, results: usize) -> Option<String> {
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

/// Enough of a text to know what it is about.
pub(super) fn excerpt(text: &str) -> String {
    const MOST_CHARS: usize = 200;
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MOST_CHARS).collect()
}
