use std::collections::BTreeMap;

use operate::word;
use subjects::{
    Answer, Timestamp, Usage,
    journal::{Claimed, Entry, ModelTurn, Question, Record, Returned, ToolOutcome},
};
use time::OffsetDateTime;

use crate::{answer::count, print};

/// What was told so far.
#[derive(Debug, Default)]
pub(super) struct Story {
    owner: Option<Claimed>,
    since: Option<Timestamp>,
    /// Tools that were about to be called, and did not answer yet.
    open: BTreeMap<u32, String>,
    day: Option<String>,
}

impl Story {
    pub(super) fn entry(&mut self, entry: &Entry) -> Vec<String> {
        let mut lines = Vec::new();
        let (day, clock) = moment(entry.at.at());
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
                let Claimed { attempt, instance, build, queued, .. } = claimed;
                let again = if *attempt > 1 { ", going on from here" } else { "" };
                format!("attempt {attempt} by {instance} ({build}), message {queued} of the queue{again}")
            }
            Record::Context(context) => format!("offered {}", print::safe(&context.tools.join(", "))),
            Record::ModelTurn(turn) => model(turn),
            Record::ToolIntent(intent) => {
                let tool = print::safe(&intent.call.tool);
                self.open.insert(intent.call.number, tool.clone());
                format!("call {}: {tool} …", intent.call.number)
            }
            Record::ToolResult(result) => {
                self.open.remove(&result.call.number);
                let (tool, time) = (print::safe(&result.call.tool), spent(result.ms));
                let came_to = match &result.outcome {
                    ToolOutcome::Returned(Returned { failed: true, text, .. }) => {
                        format!("failed after {time}: {}", excerpt(text))
                    }
                    ToolOutcome::Returned(returned) => {
                        format!("returned after {time}: {}", excerpt(&returned.text))
                    }
                    ToolOutcome::Rejected { why } => format!("rejected: {}", excerpt(why)),
                };
                format!("call {}: {tool} {came_to}", result.call.number)
            }
            Record::Verified(verified) => {
                let said = match &verified.findings.error {
                    Some(error) => format!("no verdict: {}", excerpt(&error.message)),
                    None => word(&verified.findings.status),
                };
                let task = verified.findings.task_id.as_ref().map_or("?", |task| task.as_str());
                format!("analyst on {task} after {}: {said} ({})", spent(verified.ms), verified.handoff_id)
            }
            Record::Released => {
                self.owner = None;
                "returned to the queue: the instance shut down".to_owned()
            }
            Record::Still => "made sure that it is still its own".to_owned(),
        }
    }

    pub(super) fn answer(&mut self, at: OffsetDateTime, answer: &Answer) -> Vec<String> {
        let (status, usage, attempts, instance, error) = match answer {
            Answer::Completion(it) => (word(&it.status), &it.usage, it.attempts, &it.instance, &it.error),
            Answer::Findings(it) => (word(&it.status), &it.usage, it.attempts, &it.instance, &it.error),
        };
        let attempts = count(attempts, "attempt");
        let clock = moment(at).1;
        let mut lines =
            vec![format!("{clock}  answered: {status} by {instance} after {attempts}; {}", cost(usage))];
        if let Some(error) = error {
            lines.push(format!("{}: {}", error.code, print::safe(&error.message)));
        }
        if let Answer::Completion(completion) = answer
            && let Some(message) = &completion.message
        {
            lines.push(format!("  {}", excerpt(&message.content)));
        }
        lines
    }

    /// Of one that has no answer yet: who has it, and what is open.
    pub(super) fn so_far(&self) -> Vec<String> {
        let mut lines = Vec::new();
        match (&self.owner, &self.since) {
            (Some(owner), Some(since)) => {
                let (day, clock) = moment(since.at());
                lines.push(format!(
                    "not answered yet; last claimed by {} on {day} at {clock}",
                    owner.instance
                ));
            }
            _ => lines.push("not answered yet, and not claimed by any instance".to_owned()),
        }
        for (number, tool) in &self.open {
            lines.push(format!("  call {number}: {tool} has not answered"));
        }
        lines
    }
}

fn model(turn: &ModelTurn) -> String {
    let what = match &turn.question {
        Question::Turn(number) => format!("turn {}", number + 1),
        Question::Think { form, repeat: 0, .. } => print::safe(form),
        Question::Think { form, .. } => format!("{}, asked again", print::safe(form)),
    };
    let reply = &turn.reply;
    let said = match reply.calls.as_slice() {
        [] => excerpt(&reply.content),
        calls => {
            let names: Vec<String> = calls.iter().map(|call| excerpt(&call.name)).collect();
            format!("calls {}", names.join(", "))
        }
    };
    let price = reply.cost_usd.map(|usd| format!(" · ${usd:.4}")).unwrap_or_default();
    let tries = if reply.tries > 1 { format!(" · {} tries", reply.tries) } else { String::new() };
    format!(
        "{what}: {} answered after {}: {said} · {} + {} tokens{price}{tries}",
        print::safe(&reply.model),
        spent(turn.ms),
        reply.tokens.prompt,
        reply.tokens.completion,
    )
}

fn cost(usage: &Usage) -> String {
    let price = usage.cost_usd.map(|usd| format!(", ${usd:.4}")).unwrap_or_default();
    format!(
        "{}, {}, {} + {} tokens{price}",
        count(usage.model_calls, "model call"),
        count(usage.tool_calls, "tool call"),
        usage.prompt_tokens,
        usage.completion_tokens,
    )
}

/// Day and time of day, in UTC.
fn moment(at: OffsetDateTime) -> (String, String) {
    let (hour, minute, second) = (at.hour(), at.minute(), at.second());
    (at.date().to_string(), format!("{hour:02}:{minute:02}:{second:02}.{:03}", at.millisecond()))
}

fn spent(ms: u64) -> String {
    if ms < 1_000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1_000, ms % 1_000 / 100) }
}

fn excerpt(text: &str) -> String {
    print::safe(&operate::excerpt(text))
}
