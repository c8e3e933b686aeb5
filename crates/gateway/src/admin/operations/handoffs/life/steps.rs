use operate::{excerpt, word};
use serde::Serialize;
use subjects::{
    Act, Step, StepOutcome, Usage,
    journal::{ModelTurn, Question, Record, ToolIntent, ToolOutcome, ToolResult, Verified},
};
use utoipa::ToSchema;

use crate::tools::holds_a_secret;

/// One thing that was done.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Did {
    /// In which of the attempts, counted from 1; 0 when no claim can be read.
    pub attempt: usize,
    pub what: DidWhat,
    /// Which turn, form, tool or task.
    pub name: String,
    pub began_at: i64,
    /// Nothing when it has not ended.
    pub ended_at: Option<i64>,
    pub outcome: Outcome,
    /// How often it was tried.
    pub tries: u32,
    /// The route and model that answered.
    pub model: Option<String>,
    pub prompt_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
    pub cost_usd: Option<f64>,
    /// The beginning of what came of it; nothing when it holds something like a secret.
    pub said: Option<String>,
    pub holds_a_secret: bool,
    /// Of the analyst's own handoff.
    pub handoff_id: Option<String>,
    /// Of a call, counted over the whole handoff.
    #[serde(skip)]
    call: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DidWhat {
    /// A turn of the conversation.
    Turn,
    /// A typed question beside it.
    Think,
    Call,
    Verification,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It has not ended, as far as anybody knows.
    Open,
    Done,
    Failed,
    /// The gateway said no.
    Rejected,
    /// Whoever did it fell silent.
    CutOff,
}

#[derive(Debug, Default)]
pub(super) struct Steps {
    done: Vec<Did>,
    /// How many steps of the trace the journal tells.
    told: usize,
}

impl Steps {
    pub(super) fn done(self) -> Vec<Did> {
        self.done
    }

    pub(super) fn finished(&self) -> usize {
        self.told
    }

    /// What an attempt had begun when it fell silent.
    pub(super) fn cut_off(&mut self, attempt: usize, at: i64) {
        for did in self.done.iter_mut().filter(|did| did.attempt == attempt && did.outcome == Outcome::Open) {
            (did.outcome, did.ended_at) = (Outcome::CutOff, Some(at));
        }
    }

    /// An entry tells when it was written, and how long each thing took. What stands before another thing ended when
    /// that began; calls and verifications beside each other ran at the same time.
    pub(super) fn entry(&mut self, records: &[Record], attempt: usize, at: i64, not_before: i64) {
        let mut ends = vec![at; records.len()];
        let (mut end, mut begin) = (at, at);
        for (place, record) in records.iter().enumerate().rev() {
            let beside = records.get(place + 1).is_some_and(|next| at_the_same_time(record, next));
            if !beside {
                end = begin;
            }
            ends[place] = end;
            begin = begin.min(end.saturating_sub(took(record)));
        }
        for (record, end) in records.iter().zip(ends) {
            let begin = end.saturating_sub(took(record)).max(not_before);
            match record {
                Record::ModelTurn(turn) => self.push(model(turn), attempt, begin, end),
                Record::Verified(verified) => self.push(verification(verified), attempt, begin, end),
                Record::ToolIntent(intent) => self.intends(intent, attempt, end),
                Record::ToolResult(result) => self.returned(result, attempt, begin, end),
                Record::Claimed(_) | Record::Context(_) | Record::Released | Record::Still => {}
            }
        }
    }

    fn push(&mut self, did: Did, attempt: usize, began_at: i64, ended_at: i64) {
        self.told += 1;
        self.done.push(Did { attempt, began_at, ended_at: Some(ended_at), ..did });
    }

    fn intends(&mut self, intent: &ToolIntent, attempt: usize, at: i64) {
        let number = intent.call.number;
        let did =
            Did { outcome: Outcome::Open, call: Some(number), ..Did::new(DidWhat::Call, &intent.call.tool) };
        self.done.push(Did { attempt, began_at: at, ..did });
    }

    /// Completes what this attempt intended; what an earlier one intended was done again, under the same key.
    fn returned(&mut self, result: &ToolResult, attempt: usize, begin: i64, end: i64) {
        let (outcome, text, tries) = match &result.outcome {
            ToolOutcome::Returned(it) if it.failed => (Outcome::Failed, &it.text, it.tries),
            ToolOutcome::Returned(it) => (Outcome::Done, &it.text, it.tries),
            ToolOutcome::Rejected { why } => (Outcome::Rejected, why, 1),
        };
        let did = Did { outcome, tries, ..Did::new(DidWhat::Call, &result.call.tool) }.saying(text);
        let number = Some(result.call.number);
        let open = self
            .done
            .iter()
            .position(|it| it.call == number && it.attempt == attempt && it.outcome == Outcome::Open);
        match open {
            Some(open) => {
                self.told += 1;
                let began_at = begin.max(self.done[open].began_at);
                self.done[open] = Did { attempt, began_at, ended_at: Some(end), ..did };
            }
            None => self.push(did, attempt, begin, end),
        }
    }

    /// What the answer tells and the journal does not: the last turn needs no entry, since the answer follows at once.
    pub(super) fn rest(
        &mut self,
        trace: &[Step],
        whole: &Usage,
        journalled: &Usage,
        (attempt, not_before): (usize, i64),
        at: i64,
    ) {
        self.cut_off(attempt, at);
        let rest = trace.get(self.told..).unwrap_or_default();
        let asked = rest.iter().filter(|step| matches!(step.act, Act::Model | Act::Think)).count();
        let (mut end, mut last) = (at, Vec::new());
        for step in rest.iter().rev() {
            let begin = end.saturating_sub(micros(step.ms)).max(not_before);
            let mut did = Did { attempt, began_at: begin, ended_at: Some(end), ..from_trace(step) };
            if asked == 1 && did.is_of_a_model() {
                did.prompt_tokens = Some(whole.prompt_tokens.saturating_sub(journalled.prompt_tokens));
                did.completion_tokens =
                    Some(whole.completion_tokens.saturating_sub(journalled.completion_tokens));
                did.cost_usd = whole.cost_usd.map(|cost| cost - journalled.cost_usd.unwrap_or(0.0));
            }
            last.push(did);
            end = begin;
        }
        last.reverse();
        self.done.append(&mut last);
    }
}

impl Did {
    fn new(what: DidWhat, name: &str) -> Self {
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
            said: None,
            holds_a_secret: false,
            handoff_id: None,
            call: None,
        }
    }

    fn saying(self, text: &str) -> Self {
        let holds_a_secret = holds_a_secret(text);
        let said = Some(excerpt(text)).filter(|said| !said.is_empty() && !holds_a_secret);
        Self { said, holds_a_secret, ..self }
    }

    fn is_of_a_model(&self) -> bool {
        matches!(self.what, DidWhat::Turn | DidWhat::Think)
    }
}

fn at_the_same_time(one: &Record, next: &Record) -> bool {
    let both_think = |record: &Record| {
        matches!(record, Record::ModelTurn(ModelTurn { question: Question::Think { .. }, .. }))
    };
    matches!(
        (one, next),
        (Record::ToolResult(_), Record::ToolResult(_)) | (Record::Verified(_), Record::Verified(_))
    ) || (both_think(one) && both_think(next))
}

fn took(record: &Record) -> i64 {
    micros(match record {
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

fn micros(ms: u64) -> i64 {
    i64::try_from(ms.saturating_mul(1_000)).unwrap_or(i64::MAX)
}

fn model(turn: &ModelTurn) -> Did {
    let (what, name) = match &turn.question {
        Question::Turn(number) => (DidWhat::Turn, format!("turn {}", number + 1)),
        Question::Think { form, repeat: 0, .. } => (DidWhat::Think, form.clone()),
        Question::Think { form, .. } => (DidWhat::Think, format!("{form}, asked again")),
    };
    let reply = &turn.reply;
    let did = match reply.calls.as_slice() {
        [] => Did::new(what, &name).saying(&reply.content),
        calls => {
            let names: Vec<String> = calls.iter().map(|call| excerpt(&call.name)).collect();
            Did::new(what, &name).saying(&format!("calls {}", names.join(", ")))
        }
    };
    Did {
        tries: reply.tries,
        model: Some(reply.model.clone()),
        prompt_tokens: Some(reply.tokens.prompt),
        completion_tokens: Some(reply.tokens.completion),
        cost_usd: reply.cost_usd,
        ..did
    }
}

fn verification(verified: &Verified) -> Did {
    let findings = &verified.findings;
    let task = findings.task_id.as_ref().map_or("?", |task| task.as_str());
    let (outcome, said) = match &findings.error {
        Some(error) => (Outcome::Failed, error.message.clone()),
        None => (Outcome::Done, word(&findings.status)),
    };
    let did = Did { outcome, ..Did::new(DidWhat::Verification, task) }.saying(&said);
    Did { handoff_id: Some(verified.handoff_id.to_string()), ..did }
}

fn from_trace(step: &Step) -> Did {
    let what = match step.act {
        Act::Model => DidWhat::Turn,
        Act::Think => DidWhat::Think,
        Act::Tool => DidWhat::Call,
        Act::Analyst => DidWhat::Verification,
    };
    let outcome = match step.outcome {
        StepOutcome::Ok => Outcome::Done,
        StepOutcome::Failed => Outcome::Failed,
        StepOutcome::Rejected => Outcome::Rejected,
        StepOutcome::Unfinished => Outcome::CutOff,
    };
    let (name, model) = match step.act {
        Act::Model => ("last turn".to_owned(), Some(step.name.clone())),
        Act::Think | Act::Tool | Act::Analyst => (step.name.clone(), None),
    };
    let did = Did { outcome, tries: step.tries, model, ..Did::new(what, &name) };
    match &step.detail {
        Some(detail) => did.saying(detail),
        None => did,
    }
}
