//! Steps of a handoff: model calls, tool calls and verifications, with the time that each one took.

use operate::{excerpt, label};
use serde::Serialize;
use subjects::{
    Act, Step, StepOutcome, Usage,
    journal::{ModelTurn, Question, Record, ToolIntent, ToolOutcome, ToolResult, Verified},
};
use utoipa::ToSchema;

/// One step: a model call, a tool call or a verification.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Did)]
pub(crate) struct HandoffStep {
    /// Number of the attempt, counted from 1; 0 if no claim can be read.
    pub(crate) attempt: usize,
    pub(crate) what: StepKind,
    /// Name of the turn, structured output, tool or task.
    pub(crate) name: String,
    pub(crate) began_at: i64,
    /// `null` if it has not ended.
    pub(crate) ended_at: Option<i64>,
    pub(crate) outcome: Outcome,
    /// Number of tries.
    pub(crate) tries: u32,
    /// Route and model that responded.
    pub(crate) model: Option<String>,
    pub(crate) prompt_tokens: Option<u64>,
    pub(crate) completion_tokens: Option<u64>,
    pub(crate) cost_usd: Option<f64>,
    /// Beginning of the result; `null` if it seems to contain a secret.
    #[serde(rename = "said")]
    pub(crate) excerpt: Option<String>,
    pub(crate) holds_a_secret: bool,
    /// Id of the analyst's handoff.
    pub(crate) handoff_id: Option<String>,
    /// Number of the tool call, counted over the whole handoff.
    #[serde(skip)]
    call: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = DidWhat)]
pub(crate) enum StepKind {
    /// A turn of the conversation.
    Turn,
    /// A structured output that the model was asked for.
    #[serde(rename = "think")]
    StructuredOutput,
    Call,
    Verification,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Not ended, as far as is known.
    Open,
    Done,
    Failed,
    /// Denied by the gateway.
    Rejected,
    /// Its attempt stopped before it ended.
    CutOff,
}

/// Collects steps from journal entries and from the trace of the answer.
#[derive(Debug, Default)]
pub(super) struct Steps {
    steps: Vec<HandoffStep>,
    /// Number of steps of the trace that the journal contains.
    recorded: usize,
}

impl Steps {
    pub(super) fn into_steps(self) -> Vec<HandoffStep> {
        self.steps
    }

    pub(super) fn recorded(&self) -> usize {
        self.recorded
    }

    /// Marks the open steps of an attempt as cut off at `at`.
    pub(super) fn cut_off(&mut self, attempt: usize, at: i64) {
        for step in
            self.steps.iter_mut().filter(|step| step.attempt == attempt && step.outcome == Outcome::Open)
        {
            (step.outcome, step.ended_at) = (Outcome::CutOff, Some(at));
        }
    }

    /// Adds the steps of an entry. An entry contains its own time and the duration of each record: a record
    /// ended when the next one began, except that adjacent calls, verifications or structured outputs ran
    /// concurrently.
    pub(super) fn add_entry(&mut self, records: &[Record], attempt: usize, at: i64, not_before: i64) {
        let mut ends = vec![at; records.len()];
        let (mut end, mut begin) = (at, at);
        for (place, record) in records.iter().enumerate().rev() {
            let concurrent = records.get(place + 1).is_some_and(|next| run_concurrently(record, next));
            if !concurrent {
                end = begin;
            }
            ends[place] = end;
            begin = begin.min(end.saturating_sub(duration_us(record)));
        }
        for (record, end) in records.iter().zip(ends) {
            let begin = end.saturating_sub(duration_us(record)).max(not_before);
            match record {
                Record::ModelTurn(turn) => self.push(from_turn(turn), attempt, begin, end),
                Record::Verified(verified) => self.push(from_verification(verified), attempt, begin, end),
                Record::ToolIntent(intent) => self.add_intent(intent, attempt, end),
                Record::ToolResult(result) => self.add_result(result, attempt, begin, end),
                Record::Claimed(_) | Record::Context(_) | Record::Released | Record::Still => {}
            }
        }
    }

    fn push(&mut self, step: HandoffStep, attempt: usize, began_at: i64, ended_at: i64) {
        self.recorded += 1;
        self.steps.push(HandoffStep { attempt, began_at, ended_at: Some(ended_at), ..step });
    }

    fn add_intent(&mut self, intent: &ToolIntent, attempt: usize, at: i64) {
        let number = intent.call.number;
        let step = HandoffStep {
            outcome: Outcome::Open,
            call: Some(number),
            ..HandoffStep::new(StepKind::Call, &intent.call.tool)
        };
        self.steps.push(HandoffStep { attempt, began_at: at, ..step });
    }

    /// Completes the open call of this attempt. A call of an earlier attempt was repeated under the same key
    /// and gets a new step.
    fn add_result(&mut self, result: &ToolResult, attempt: usize, begin: i64, end: i64) {
        let (outcome, text, tries) = match &result.outcome {
            ToolOutcome::Returned(it) if it.failed => (Outcome::Failed, &it.text, it.tries),
            ToolOutcome::Returned(it) => (Outcome::Done, &it.text, it.tries),
            ToolOutcome::Rejected { why } => (Outcome::Rejected, why, 1),
        };
        let step = HandoffStep { outcome, tries, ..HandoffStep::new(StepKind::Call, &result.call.tool) }
            .with_text(text);
        let number = Some(result.call.number);
        let open = self
            .steps
            .iter()
            .position(|it| it.call == number && it.attempt == attempt && it.outcome == Outcome::Open);
        match open {
            Some(open) => {
                self.recorded += 1;
                let began_at = begin.max(self.steps[open].began_at);
                self.steps[open] = HandoffStep { attempt, began_at, ended_at: Some(end), ..step };
            }
            None => self.push(step, attempt, begin, end),
        }
    }

    /// Adds the steps that only the answer contains: the last turn has no journal entry, since the answer
    /// follows at once. If one model call is missing, it gets the usage that the journal does not account
    /// for.
    pub(super) fn add_unjournalled(
        &mut self,
        trace: &[Step],
        whole: &Usage,
        journalled: &Usage,
        (attempt, not_before): (usize, i64),
        at: i64,
    ) {
        self.cut_off(attempt, at);
        let rest = trace.get(self.recorded..).unwrap_or_default();
        let model_calls = rest.iter().filter(|step| matches!(step.act, Act::Model | Act::Think)).count();
        let (mut end, mut last) = (at, Vec::new());
        for traced in rest.iter().rev() {
            let begin = end.saturating_sub(ms_to_us(traced.ms)).max(not_before);
            let mut step =
                HandoffStep { attempt, began_at: begin, ended_at: Some(end), ..from_trace(traced) };
            if model_calls == 1 && step.is_model_call() {
                step.prompt_tokens = Some(whole.prompt_tokens.saturating_sub(journalled.prompt_tokens));
                step.completion_tokens =
                    Some(whole.completion_tokens.saturating_sub(journalled.completion_tokens));
                step.cost_usd = whole.cost_usd.map(|cost| cost - journalled.cost_usd.unwrap_or(0.0));
            }
            last.push(step);
            end = begin;
        }
        last.reverse();
        self.steps.append(&mut last);
    }
}

impl HandoffStep {
    fn new(what: StepKind, name: &str) -> Self {
        Self {
            attempt: 0,
            what,
            name: name.to_owned(),
            began_at: 0,
            ended_at: None,
            outcome: Outcome::Done,
            tries: 1,
            model: None,
            prompt_tokens: None,
            completion_tokens: None,
            cost_usd: None,
            excerpt: None,
            holds_a_secret: false,
            handoff_id: None,
            call: None,
        }
    }

    /// Sets the excerpt of a text, unless it seems to contain a secret.
    fn with_text(self, text: &str) -> Self {
        let holds_a_secret = secrets::find(text).is_some();
        let excerpt = Some(excerpt(text)).filter(|excerpt| !excerpt.is_empty() && !holds_a_secret);
        Self { excerpt, holds_a_secret, ..self }
    }

    fn is_model_call(&self) -> bool {
        matches!(self.what, StepKind::Turn | StepKind::StructuredOutput)
    }
}

/// Returns whether two adjacent records of an entry ran at the same time.
fn run_concurrently(one: &Record, next: &Record) -> bool {
    let is_structured = |record: &Record| {
        matches!(record, Record::ModelTurn(ModelTurn { question: Question::Think { .. }, .. }))
    };
    matches!(
        (one, next),
        (Record::ToolResult(_), Record::ToolResult(_)) | (Record::Verified(_), Record::Verified(_))
    ) || (is_structured(one) && is_structured(next))
}

fn duration_us(record: &Record) -> i64 {
    ms_to_us(match record {
        Record::ModelTurn(turn) => turn.ms,
        Record::ToolResult(result) => result.ms,
        Record::Verified(verified) => verified.ms,
        Record::Claimed(_)
        | Record::Context(_)
        | Record::ToolIntent(_)
        | Record::Released
        | Record::Still => 0,
    })
}

fn ms_to_us(ms: u64) -> i64 {
    i64::try_from(ms.saturating_mul(1_000)).unwrap_or(i64::MAX)
}

fn from_turn(turn: &ModelTurn) -> HandoffStep {
    let (what, name) = match &turn.question {
        Question::Turn(number) => (StepKind::Turn, format!("turn {}", number + 1)),
        Question::Think { form, repeat: 0, .. } => (StepKind::StructuredOutput, form.clone()),
        Question::Think { form, .. } => (StepKind::StructuredOutput, format!("{form}, asked again")),
    };
    let reply = &turn.reply;
    let step = match reply.calls.as_slice() {
        [] => HandoffStep::new(what, &name).with_text(&reply.content),
        calls => {
            let names: Vec<String> = calls.iter().map(|call| excerpt(&call.name)).collect();
            HandoffStep::new(what, &name).with_text(&format!("calls {}", names.join(", ")))
        }
    };
    HandoffStep {
        tries: reply.tries,
        model: Some(reply.model.clone()),
        prompt_tokens: Some(reply.tokens.prompt),
        completion_tokens: Some(reply.tokens.completion),
        cost_usd: reply.cost_usd,
        ..step
    }
}

fn from_verification(verified: &Verified) -> HandoffStep {
    let findings = &verified.findings;
    let task = findings.task_id.as_ref().map_or("?", |task| task.as_str());
    let (outcome, text) = match &findings.error {
        Some(error) => (Outcome::Failed, error.message.clone()),
        None => (Outcome::Done, label(&findings.status)),
    };
    let step = HandoffStep { outcome, ..HandoffStep::new(StepKind::Verification, task) }.with_text(&text);
    HandoffStep { handoff_id: Some(verified.handoff_id.to_string()), ..step }
}

fn from_trace(traced: &Step) -> HandoffStep {
    let what = match traced.act {
        Act::Model => StepKind::Turn,
        Act::Think => StepKind::StructuredOutput,
        Act::Tool => StepKind::Call,
        Act::Analyst => StepKind::Verification,
    };
    let outcome = match traced.outcome {
        StepOutcome::Ok => Outcome::Done,
        StepOutcome::Failed => Outcome::Failed,
        StepOutcome::Rejected => Outcome::Rejected,
        StepOutcome::Unfinished => Outcome::CutOff,
    };
    let (name, model) = match traced.act {
        Act::Model => ("last turn".to_owned(), Some(traced.name.clone())),
        Act::Think | Act::Tool | Act::Analyst => (traced.name.clone(), None),
    };
    let step = HandoffStep { outcome, tries: traced.tries, model, ..HandoffStep::new(what, &name) };
    match &traced.detail {
        Some(detail) => step.with_text(detail),
        None => step,
    }
}
