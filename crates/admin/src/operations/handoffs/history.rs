//! Builds the history of a handoff from its run. Does no I/O.

mod steps;

use operate::{
    label,
    run::{Run, RunContent},
    work::RunProgress,
};
use serde::Serialize;
use subjects::{
    Act, Answer, Trace, Usage,
    journal::{Claimed, Record, Unreadable},
};
use utoipa::ToSchema;

use self::steps::Steps;
pub(crate) use self::steps::{HandoffStep, Outcome, StepKind};
use store::clock;

/// Longer texts of answers are truncated.
const MAX_ANSWER_BYTES: usize = 8_000;

/// The history of a handoff, from its journal and its answer. Times are microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Life)]
pub(crate) struct HandoffHistory {
    pub(crate) handoff_id: String,
    /// The role that the handoff is for.
    pub(crate) role: &'static str,
    /// `null` if neither the queue nor an answer contains it.
    pub(crate) kind: Option<&'static str>,
    /// What it asks for, cut short and with secrets redacted; `null` if no journal entry says it.
    pub(crate) request: Option<String>,
    pub(crate) state: HandoffState,
    pub(crate) began_at: i64,
    /// Time of the answer.
    pub(crate) ended_at: Option<i64>,
    pub(crate) attempts: Vec<Attempt>,
    /// Turns, calls and verifications, in order.
    pub(crate) steps: Vec<HandoffStep>,
    /// The tools that were offered to the model, best match first; none before the answer.
    pub(crate) offered: Vec<OfferedTool>,
    #[schema(value_type = Object)]
    pub(crate) usage: Usage,
    pub(crate) answer: Option<AnswerSummary>,
    /// Journal entries that cannot be read.
    pub(crate) unreadable: Vec<UnreadableEntry>,
    /// Number of its dead letter.
    pub(crate) dead_letter: Option<u64>,
    /// Last sequence of its run.
    pub(crate) sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = LifeState)]
pub(crate) enum HandoffState {
    InWork,
    /// Handed back by an instance that shut down; no instance owns it.
    HandedBack,
    Answered,
    /// No journal entry can be read.
    Unknown,
}

/// One claim of the handoff by an instance.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Attempt {
    /// Number of the attempt, as recorded in the journal.
    pub(crate) number: u32,
    pub(crate) instance: String,
    pub(crate) build: String,
    pub(crate) began_at: i64,
    /// Time of its last journal entry.
    pub(crate) last_at: i64,
    pub(crate) ended_at: Option<i64>,
    pub(crate) end: AttemptEnd,
    /// Number of steps that were already recorded when it began.
    pub(crate) found: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AttemptEnd {
    /// Not ended, as far as is known.
    Open,
    /// Ended with the answer.
    Answered,
    /// Ended by handing the handoff back.
    Released,
    /// Stopped without a record; another instance claimed the handoff.
    Lost,
}

/// Summary of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = Answered)]
pub(crate) struct AnswerSummary {
    pub(crate) status: String,
    pub(crate) instance: String,
    pub(crate) attempts: u32,
    /// Why the run stopped.
    pub(crate) stop: String,
    /// Text of the answer, truncated if long; `null` if empty or if it seems to contain a secret.
    pub(crate) text: Option<String>,
    pub(crate) holds_a_secret: bool,
    /// An error code, with a page in docs/errors.
    pub(crate) error: Option<&'static str>,
    /// Message of the error, with secrets redacted.
    pub(crate) error_message: Option<String>,
    /// Criterion and verdict of each finding.
    pub(crate) findings: Vec<(String, String)>,
}

/// A tool that was offered to the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct OfferedTool {
    pub(crate) name: String,
    /// The words of the request that it matches. Without any it is similar to the request, or a default.
    pub(crate) words: Vec<String>,
    /// How often it was called.
    pub(crate) calls: usize,
}

/// A journal entry that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Torn)]
pub(crate) struct UnreadableEntry {
    pub(crate) sequence: u64,
    /// Whether it was written by a newer build, which can read it.
    pub(crate) newer: bool,
    pub(crate) why: String,
}

impl HandoffHistory {
    /// Builds the history of a run. `now` is the start of a run that has no readable entry.
    pub(super) fn new(run: &Run, now: i64) -> Self {
        let mut history = Self {
            handoff_id: run.id.to_string(),
            role: run.role.as_str(),
            kind: None,
            request: None,
            state: HandoffState::Unknown,
            began_at: now,
            ended_at: None,
            attempts: Vec::new(),
            steps: Vec::new(),
            offered: Vec::new(),
            usage: RunProgress::of(run).map_or_else(Usage::default, |progress| progress.usage),
            answer: None,
            unreadable: Vec::new(),
            dead_letter: None,
            sequence: run.last_sequence(),
        };
        let mut steps = Steps::default();
        let mut began = None;
        for message in &run.messages {
            match &message.content {
                RunContent::Entry(entry) => {
                    let at = clock::micros(entry.at.at());
                    began.get_or_insert(at);
                    history.apply_entry(&entry.records, at, &mut steps);
                }
                RunContent::Unreadable(why) => {
                    history.unreadable.push(unreadable_entry(message.sequence, why))
                }
                RunContent::Answer { at, answer } => {
                    let at = clock::micros(*at);
                    began.get_or_insert(at);
                    history.apply_answer(answer, at, &mut steps);
                }
            }
        }
        history.began_at = began.unwrap_or(now);
        history.steps = steps.into_steps();
        history
    }

    fn apply_entry(&mut self, records: &[Record], at: i64, steps: &mut Steps) {
        for record in records {
            match record {
                Record::Claimed(claimed) => self.apply_claim(claimed, at, steps),
                Record::Released => {
                    self.end_attempt(AttemptEnd::Released, at);
                    self.state = HandoffState::HandedBack;
                }
                Record::Context(_)
                | Record::ModelTurn(_)
                | Record::ToolIntent(_)
                | Record::ToolResult(_)
                | Record::Verified(_)
                | Record::Still => {}
            }
        }
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.last_at = at;
        }
        let (attempt, not_before) = self.current_attempt(at);
        steps.add_entry(records, attempt, at, not_before);
    }

    fn apply_claim(&mut self, claimed: &Claimed, at: i64, steps: &mut Steps) {
        // The previous instance can no longer finish what it began.
        steps.cut_off(self.current_attempt(at).0, at);
        self.end_attempt(AttemptEnd::Lost, at);
        self.state = HandoffState::InWork;
        if let Some(request) = &claimed.request {
            self.request = Some(secrets::redact(request).into_owned());
        }
        self.attempts.push(Attempt {
            number: claimed.attempt,
            instance: claimed.instance.to_string(),
            build: claimed.build.clone(),
            began_at: at,
            last_at: at,
            ended_at: None,
            end: AttemptEnd::Open,
            found: steps.recorded(),
        });
    }

    /// Returns the number of the current attempt, counted from 1, and when it began.
    fn current_attempt(&self, at: i64) -> (usize, i64) {
        (self.attempts.len(), self.attempts.last().map_or(at, |attempt| attempt.began_at))
    }

    /// Ends the open attempt, if there is one.
    fn end_attempt(&mut self, end: AttemptEnd, at: i64) {
        if let Some(open) = self.attempts.last_mut().filter(|attempt| attempt.end == AttemptEnd::Open) {
            (open.end, open.ended_at) = (end, Some(at));
        }
    }

    fn apply_answer(&mut self, answer: &Answer, at: i64, steps: &mut Steps) {
        let (kind, usage, trace) = match answer {
            Answer::Completion(it) => (it.kind, &it.usage, &it.trace),
            Answer::Findings(it) => (it.kind, &it.usage, &it.trace),
        };
        steps.add_unjournalled(&trace.steps, usage, &self.usage, self.current_attempt(at), at);
        self.offered = offered(trace);
        self.end_attempt(AttemptEnd::Answered, at);
        (self.state, self.ended_at) = (HandoffState::Answered, Some(at));
        (self.kind, self.usage) = (Some(kind.as_str()), *usage);
        self.answer = Some(summarize(answer));
    }
}

fn offered(trace: &Trace) -> Vec<OfferedTool> {
    let words = |tool: &str| trace.tool_words.get(tool).into_iter().flatten();
    let describe = |tool: &String| OfferedTool {
        name: tool.clone(),
        words: words(tool).filter_map(|word| without_secrets(word)).collect(),
        calls: trace.steps.iter().filter(|step| step.act == Act::Tool && step.name == *tool).count(),
    };
    trace.tools.iter().map(describe).collect()
}

fn summarize(answer: &Answer) -> AnswerSummary {
    let error = answer.error();
    let (status, instance, attempts, stop, text, findings) = match answer {
        Answer::Completion(it) => {
            let text = it.message.as_ref().map(|message| message.content.as_str());
            (label(&it.status), &it.instance, it.attempts, label(&it.trace.stop), text, Vec::new())
        }
        Answer::Findings(it) => {
            let shown = |criterion: &str| without_secrets(criterion).unwrap_or_default();
            let verdicts = it.findings.iter().map(|it| (shown(&it.criterion), label(&it.verdict)));
            (label(&it.status), &it.instance, it.attempts, label(&it.trace.stop), None, verdicts.collect())
        }
    };
    let holds_a_secret = text.is_some_and(|text| secrets::find(text).is_some());
    let text = text.filter(|text| !text.trim().is_empty() && !holds_a_secret);
    AnswerSummary {
        status,
        instance: instance.to_string(),
        attempts,
        stop,
        text: text.map(|text| truncate(text, MAX_ANSWER_BYTES)),
        holds_a_secret,
        error: error.map(|error| error.code.as_str()),
        error_message: error.and_then(|error| without_secrets(&error.message)),
        findings,
    }
}

fn unreadable_entry(sequence: u64, why: &Unreadable) -> UnreadableEntry {
    UnreadableEntry { sequence, newer: matches!(why, Unreadable::Newer(_)), why: why.to_string() }
}

/// Redacts and truncates an untrusted text. Returns `None` if it still seems to contain a secret.
fn without_secrets(text: &str) -> Option<String> {
    let text = truncate(&secrets::redact(text), MAX_ANSWER_BYTES);
    secrets::find(&text).is_none().then_some(text)
}

fn truncate(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        text.to_owned()
    } else {
        format!("{}…", &text[..text.floor_char_boundary(max_bytes)])
    }
}

#[cfg(test)]
mod tests;
