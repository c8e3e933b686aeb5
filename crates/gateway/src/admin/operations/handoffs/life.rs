mod steps; // what was done, step by step

use operate::{
    run::{Run, Said},
    word,
    work::SoFar,
};
use serde::Serialize;
use subjects::{
    Answer, Usage,
    journal::{Claimed, Record, Unreadable},
};
use utoipa::ToSchema;

use self::steps::Steps;
pub use self::steps::{Did, DidWhat, Outcome};
use crate::{clock, tools::holds_a_secret};

/// So much of an answer is shown.
const LONGEST_ANSWER: usize = 8_000;

/// A handoff's life, as its journal and its answer tell it. Times are microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Life {
    pub handoff_id: String,
    /// Of whoever takes it up.
    pub role: &'static str,
    /// Nothing when neither queue nor answer tell.
    pub kind: Option<&'static str>,
    pub state: LifeState,
    pub began_at: i64,
    /// When it was answered.
    pub ended_at: Option<i64>,
    pub attempts: Vec<Attempt>,
    /// What was done, in order.
    pub steps: Vec<Did>,
    #[schema(value_type = Object)]
    pub usage: Usage,
    pub answer: Option<Answered>,
    /// What stands in the journal and cannot be read.
    pub unreadable: Vec<Torn>,
    /// The number of the dead letter that was made of it.
    pub dead_letter: Option<u64>,
    /// Where its run ends.
    pub sequence: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LifeState {
    InWork,
    /// An instance stopped in an orderly way and gave it back; nobody has it.
    HandedBack,
    Answered,
    /// Nothing of the journal can be read.
    Unknown,
}

/// One taking up of the handoff.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Attempt {
    /// As the journal counts; nothing here depends on it.
    pub number: u32,
    pub instance: String,
    pub build: String,
    pub began_at: i64,
    /// When it last wrote something.
    pub last_at: i64,
    pub ended_at: Option<i64>,
    pub end: AttemptEnd,
    /// How many steps were found done when it began.
    pub found: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEnd {
    /// It has not ended, as far as anybody knows.
    Open,
    /// With the answer.
    Answered,
    /// It gave the handoff back.
    Released,
    /// It fell silent, and another took the handoff up.
    Lost,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct Answered {
    pub status: String,
    pub instance: String,
    pub attempts: u32,
    /// Why the work ended.
    pub stop: String,
    /// The words, cut when they are many; nothing when there are none, or when they hold something like a secret.
    pub text: Option<String>,
    pub holds_a_secret: bool,
    /// An error code, with a page in docs/errors.
    pub error: Option<&'static str>,
    /// Without what looks like a secret.
    pub error_message: Option<String>,
    /// Of findings: criterion, verdict.
    pub findings: Vec<(String, String)>,
}

/// A message of the journal that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Torn {
    pub sequence: u64,
    /// Written by a newer build, which can read it.
    pub newer: bool,
    pub why: String,
}

impl Life {
    pub fn of(run: &Run, now: i64) -> Self {
        let mut life = Self {
            handoff_id: run.id.to_string(),
            role: run.role.as_str(),
            kind: None,
            state: LifeState::Unknown,
            began_at: now,
            ended_at: None,
            attempts: Vec::new(),
            steps: Vec::new(),
            usage: SoFar::of(run).map_or_else(Usage::default, |so_far| so_far.usage),
            answer: None,
            unreadable: Vec::new(),
            dead_letter: None,
            sequence: run.end(),
        };
        let mut steps = Steps::default();
        let mut began = None;
        for page in &run.pages {
            match &page.said {
                Said::Entry(entry) => {
                    let at = clock::micros(entry.at.at());
                    began.get_or_insert(at);
                    life.entry(&entry.records, at, &mut steps);
                }
                Said::Unreadable(why) => life.unreadable.push(torn(page.sequence, why)),
                Said::Answer { at, answer } => {
                    let at = clock::micros(*at);
                    began.get_or_insert(at);
                    life.answered(answer, at, &mut steps);
                }
            }
        }
        life.began_at = began.unwrap_or(now);
        life.steps = steps.done();
        life
    }

    fn entry(&mut self, records: &[Record], at: i64, steps: &mut Steps) {
        for record in records {
            match record {
                Record::Claimed(claimed) => self.claimed(claimed, at, steps),
                Record::Released => {
                    self.close(AttemptEnd::Released, at);
                    self.state = LifeState::HandedBack;
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
        let (attempt, not_before) = self.now_in(at);
        steps.entry(records, attempt, at, not_before);
    }

    fn claimed(&mut self, claimed: &Claimed, at: i64, steps: &mut Steps) {
        // What was begun before somebody else took over is not ended by whoever began it.
        steps.cut_off(self.now_in(at).0, at);
        self.close(AttemptEnd::Lost, at);
        self.state = LifeState::InWork;
        self.attempts.push(Attempt {
            number: claimed.attempt,
            instance: claimed.instance.to_string(),
            build: claimed.build.clone(),
            began_at: at,
            last_at: at,
            ended_at: None,
            end: AttemptEnd::Open,
            found: steps.finished(),
        });
    }

    /// In which of the attempts things happen now, counted from 1, and when it began.
    fn now_in(&self, at: i64) -> (usize, i64) {
        (self.attempts.len(), self.attempts.last().map_or(at, |attempt| attempt.began_at))
    }

    /// Ends the attempt that is open, if one is.
    fn close(&mut self, end: AttemptEnd, at: i64) {
        if let Some(open) = self.attempts.last_mut().filter(|attempt| attempt.end == AttemptEnd::Open) {
            (open.end, open.ended_at) = (end, Some(at));
        }
    }

    fn answered(&mut self, answer: &Answer, at: i64, steps: &mut Steps) {
        let (kind, usage, trace) = match answer {
            Answer::Completion(it) => (it.kind, &it.usage, &it.trace),
            Answer::Findings(it) => (it.kind, &it.usage, &it.trace),
        };
        steps.rest(&trace.steps, usage, &self.usage, self.now_in(at), at);
        self.close(AttemptEnd::Answered, at);
        (self.state, self.ended_at) = (LifeState::Answered, Some(at));
        (self.kind, self.usage) = (Some(kind.as_str()), *usage);
        self.answer = Some(told(answer));
    }
}

fn told(answer: &Answer) -> Answered {
    let error = answer.error();
    let (status, instance, attempts, stop, text, findings) = match answer {
        Answer::Completion(it) => {
            let text = it.message.as_ref().map(|message| message.content.as_str());
            (word(&it.status), &it.instance, it.attempts, word(&it.trace.stop), text, Vec::new())
        }
        Answer::Findings(it) => {
            let shown = |criterion: &str| without_secrets(criterion).unwrap_or_default();
            let judged = it.findings.iter().map(|it| (shown(&it.criterion), word(&it.verdict)));
            (word(&it.status), &it.instance, it.attempts, word(&it.trace.stop), None, judged.collect())
        }
    };
    let holds_a_secret = text.is_some_and(holds_a_secret);
    let text = text.filter(|text| !text.trim().is_empty() && !holds_a_secret);
    Answered {
        status,
        instance: instance.to_string(),
        attempts,
        stop,
        text: text.map(|text| cut(text, LONGEST_ANSWER)),
        holds_a_secret,
        error: error.map(|error| error.code.as_str()),
        error_message: error.and_then(|error| without_secrets(&error.message)),
        findings,
    }
}

fn torn(sequence: u64, why: &Unreadable) -> Torn {
    Torn { sequence, newer: matches!(why, Unreadable::Newer(_)), why: why.to_string() }
}

/// A text by others, cut when it is long, with what looks like a secret taken out; nothing when that is not enough.
fn without_secrets(text: &str) -> Option<String> {
    let text = cut(&telemetry::redact(text), LONGEST_ANSWER);
    (!holds_a_secret(&text)).then_some(text)
}

fn cut(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        text.to_owned()
    } else {
        format!("{}…", &text[..text.floor_char_boundary(longest)])
    }
}

#[cfg(test)]
mod tests;
