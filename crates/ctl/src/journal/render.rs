//! Renders journal entries and answers as lines of text.

use std::collections::BTreeMap;

use operate::label;
use subjects::{
    Answer, Timestamp, Usage,
    journal::{Claimed, Entry, ModelTurn, Question, Record, Returned, ToolOutcome},
};
use time::OffsetDateTime;

use crate::{answer::count, print};

/// Renders the entries of one run, in order, and keeps what later lines depend on.
#[derive(Debug, Default)]
pub(super) struct JournalRenderer {
    owner: Option<Claimed>,
    since: Option<Timestamp>,
    /// Tool calls without a result yet, by number.
    open_calls: BTreeMap<u32, String>,
    /// The day that was printed last.
    day: Option<String>,
}

impl JournalRenderer {
    pub(super) fn entry(&mut self, entry: &Entry) -> Vec<String> {
        let mut lines = Vec::new();
        let (day, clock) = day_and_time(entry.at.at());
        if self.day.as_ref() != Some(&day) {
            lines.push(day.clone());
            self.day = Some(day);
        }
        for record in &entry.records {
            lines.push(format!("{clock}  {}", self.record(record, &entry.at)));
        }
        lines
    }

    fn record(&mut self, record: &Record, at: &Timestamp) -> String {
        match record {
            Record::Claimed(claimed) => {
                self.owner = Some(claimed.clone());
                self.since = Some(at.clone());
                let Claimed { attempt, instance, build, queued, request, .. } = claimed;
                let resumed = if *attempt > 1 { ", resuming from here" } else { "" };
                let request = request.as_deref().map(|text| format!(": “{}”", excerpt(text)));
                let request = request.unwrap_or_default();
                format!("attempt {attempt} by {instance} ({build}), queue message {queued}{resumed}{request}")
            }
            Record::Context(context) => format!("offered {}", print::sanitize(&context.tools.join(", "))),
            Record::ModelTurn(turn) => model_turn(turn),
            Record::ToolIntent(intent) => {
                let tool = print::sanitize(&intent.call.tool);
                self.open_calls.insert(intent.call.number, tool.clone());
                format!("call {}: {tool} …", intent.call.number)
            }
            Record::ToolResult(result) => {
                self.open_calls.remove(&result.call.number);
                let (tool, time) = (print::sanitize(&result.call.tool), duration(result.ms));
                let outcome = match &result.outcome {
                    ToolOutcome::Returned(Returned { failed: true, text, .. }) => {
                        format!("failed after {time}: {}", excerpt(text))
                    }
                    ToolOutcome::Returned(returned) => {
                        format!("returned after {time}: {}", excerpt(&returned.text))
                    }
                    ToolOutcome::Rejected { why } => format!("rejected: {}", excerpt(why)),
                };
                format!("call {}: {tool} {outcome}", result.call.number)
            }
            Record::Verified(verified) => {
                let result = match &verified.findings.error {
                    Some(error) => format!("no verdict: {}", excerpt(&error.message)),
                    None => label(&verified.findings.status),
                };
                let task = verified.findings.task_id.as_ref().map_or("?", |task| task.as_str());
                format!(
                    "analyst on {task} after {}: {result} ({})",
                    duration(verified.ms),
                    verified.handoff_id
                )
            }
            Record::Released => {
                self.owner = None;
                "handed back: the instance shut down, or cannot work on it; see its log".to_owned()
            }
            Record::Still => "ownership confirmed".to_owned(),
        }
    }

    pub(super) fn answer(&mut self, at: OffsetDateTime, answer: &Answer) -> Vec<String> {
        let (status, usage, attempts, instance, error) = match answer {
            Answer::Completion(it) => (label(&it.status), &it.usage, it.attempts, &it.instance, &it.error),
            Answer::Findings(it) => (label(&it.status), &it.usage, it.attempts, &it.instance, &it.error),
        };
        let attempts = count(attempts, "attempt");
        let clock = day_and_time(at).1;
        let mut lines = vec![format!(
            "{clock}  answered: {status} by {instance} after {attempts}; {}",
            usage_line(usage)
        )];
        if let Some(error) = error {
            lines.push(format!("{}: {}", error.code, print::sanitize(&error.message)));
        }
        if let Answer::Completion(completion) = answer
            && let Some(message) = &completion.message
        {
            lines.push(format!("  {}", excerpt(&message.content)));
        }
        lines
    }

    /// Renders the state of a run without an answer: its owner and its open calls.
    pub(super) fn summary(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match (&self.owner, &self.since) {
            (Some(owner), Some(since)) => {
                let (day, clock) = day_and_time(since.at());
                lines.push(format!(
                    "not answered yet; last claimed by {} on {day} at {clock}",
                    owner.instance
                ));
            }
            _ => lines.push("not answered yet, and not claimed by any instance".to_owned()),
        }
        for (number, tool) in &self.open_calls {
            lines.push(format!("  call {number}: {tool} has not returned"));
        }
        lines
    }
}

fn model_turn(turn: &ModelTurn) -> String {
    let what = match &turn.question {
        Question::Turn(number) => format!("turn {}", number + 1),
        Question::Think { form, repeat: 0, .. } => print::sanitize(form),
        Question::Think { form, .. } => format!("{}, asked again", print::sanitize(form)),
    };
    let reply = &turn.reply;
    let content = match reply.calls.as_slice() {
        [] => excerpt(&reply.content),
        calls => {
            let names: Vec<String> = calls.iter().map(|call| excerpt(&call.name)).collect();
            format!("calls {}", names.join(", "))
        }
    };
    let price = reply.cost_usd.map(|usd| format!(" · ${usd:.4}")).unwrap_or_default();
    let tries = if reply.tries > 1 { format!(" · {} tries", reply.tries) } else { String::new() };
    format!(
        "{what}: {} answered after {}: {content} · {} + {} tokens{price}{tries}",
        print::sanitize(&reply.model),
        duration(turn.ms),
        reply.tokens.prompt,
        reply.tokens.completion,
    )
}

fn usage_line(usage: &Usage) -> String {
    let price = usage.cost_usd.map(|usd| format!(", ${usd:.4}")).unwrap_or_default();
    format!(
        "{}, {}, {} + {} tokens{price}",
        count(usage.model_calls, "model call"),
        count(usage.tool_calls, "tool call"),
        usage.prompt_tokens,
        usage.completion_tokens,
    )
}

/// Returns the day and the time of day, in UTC.
fn day_and_time(at: OffsetDateTime) -> (String, String) {
    let (hour, minute, second) = (at.hour(), at.minute(), at.second());
    (at.date().to_string(), format!("{hour:02}:{minute:02}:{second:02}.{:03}", at.millisecond()))
}

fn duration(ms: u64) -> String {
    if ms < 1_000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1_000, ms % 1_000 / 100) }
}

fn excerpt(text: &str) -> String {
    print::sanitize(&operate::excerpt(text))
}
