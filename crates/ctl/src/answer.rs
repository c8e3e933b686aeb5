//! Reads and prints answers.

use broker::Broker;
use operate::label;
use subjects::{Answer, Completion, Findings, FindingsStatus, HandoffId, Kind, Status, Subject, Verdict};

use crate::{
    error::{Error, Exit},
    print,
};

/// One kind of each role, for a handoff of which only the id is known.
pub(crate) const ANY_KIND: [Kind; 2] = [Kind::Chat, Kind::Verify];

/// Returns the stored answer, if there is one. Only the stored answer is valid: a subscription also receives
/// messages that the stream refused, and those of any other publisher.
pub(crate) async fn stored(broker: &Broker, kinds: &[Kind], id: HandoffId) -> Result<Option<Answer>, Error> {
    for kind in kinds {
        let (subject, runs) = (Subject::answer(*kind, id), broker.layout.runs(kind.role()));
        if let Some(message) = broker::last_on(&broker.jetstream, runs, &subject).await? {
            let read = operate::answer::read(&message.subject, Some(&message.headers), &message.payload);
            return read.transpose().map_err(Error::nats);
        }
    }
    Ok(None)
}

/// Returns the exit code for an answer.
pub(crate) fn exit(answer: &Answer) -> Exit {
    match answer {
        Answer::Completion(completion) => match completion.status {
            Status::Completed => Exit::Done,
            Status::NeedsClarification => Exit::NeedsClarification,
            Status::Failed | Status::Cancelled => Exit::Failed,
        },
        Answer::Findings(findings) => match (findings.status, &findings.error) {
            (_, Some(_)) | (FindingsStatus::Fail, None) => Exit::Failed,
            (FindingsStatus::Pass, None) => Exit::Done,
            (FindingsStatus::NeedsClarification, None) => Exit::NeedsClarification,
        },
    }
}

/// Prints an answer: its text to standard output, status and usage to standard error.
pub(crate) fn show(answer: &Answer, json: bool) {
    match (json, answer) {
        (true, Answer::Completion(completion)) => print::json(completion),
        (true, Answer::Findings(findings)) => print::json(findings),
        (false, Answer::Completion(completion)) => show_completion(completion),
        (false, Answer::Findings(findings)) => show_findings(findings),
    }
}

/// Prints an answer without its message text.
pub(crate) fn show_without_message(answer: &Answer) {
    match answer {
        Answer::Completion(completion) => show_completion_details(completion),
        Answer::Findings(findings) => show_findings(findings),
    }
}

fn show_completion(completion: &Completion) {
    if let Some(message) = &completion.message {
        print::line(&print::sanitize(&message.content));
    }
    show_completion_details(completion);
}

fn show_completion_details(completion: &Completion) {
    for task in &completion.tasks {
        print::line(&format!("task {} {}", task.task_id, label(&task.change)));
    }
    for verification in &completion.verifications {
        let result = match (&verification.status, &verification.error) {
            (Some(status), _) => label(status),
            (None, Some(error)) => print::sanitize(&error.message),
            (None, None) => "not verified".to_owned(),
        };
        print::line(&format!("verification of {}: {result}", verification.task_id));
    }
    if let Some(error) = &completion.error {
        print::note(&format!("{}: {}", error.code, print::sanitize(&error.message)));
    }
    let usage = &completion.usage;
    print::note(&format!(
        "— {} · attempt {} · {} · {}, {} · handoff {}",
        label(&completion.status),
        completion.attempts,
        completion.instance,
        count(usage.model_calls, "model call"),
        count(usage.tool_calls, "tool call"),
        completion.handoff_id,
    ));
}

/// Formats a count with its noun, in the plural unless it is one.
pub(crate) fn count(number: u32, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn show_findings(findings: &Findings) {
    let task = findings.task_id.as_ref().map_or("?", |task| task.as_str());
    print::line(&format!("{}: {}", task, label(&findings.status)));
    for finding in &findings.findings {
        let mark = match finding.verdict {
            Verdict::Met => "met    ",
            Verdict::NotMet => "NOT MET",
            Verdict::Unclear => "unclear",
        };
        print::line(&format!("  {mark}  {}", print::sanitize(&finding.criterion)));
        for detail in [&finding.evidence, &finding.location].into_iter().flatten() {
            print::line(&format!("           {}", print::sanitize(detail)));
        }
    }
    for action in &findings.recommended_actions {
        print::line(&format!("  → {}", print::sanitize(action)));
    }
    if let Some(error) = &findings.error {
        print::note(&format!("{}: {}", error.code, print::sanitize(&error.message)));
    }
    print::note(&format!("— attempt {} · {}", findings.attempts, findings.instance));
}
