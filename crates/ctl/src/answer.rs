use broker::Broker;
use operate::word;
use subjects::{Answer, Completion, Findings, FindingsStatus, HandoffId, Kind, Status, Subject, Verdict};

use crate::{
    error::{Error, Exit},
    print,
};

/// One of each role, for a handoff that is known by its id alone.
pub(crate) const ANY_KIND: [Kind; 2] = [Kind::Chat, Kind::Verify];

/// The answer that is stored, if there is one. That is the one that counts: a subscription also hears what the stream
/// refuses, and what anyone may publish.
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

/// What a script should make of an answer.
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

/// Prints an answer: the words to standard output, the circumstances to standard error.
pub(crate) fn show(answer: &Answer, json: bool) {
    match (json, answer) {
        (true, Answer::Completion(completion)) => print::json(completion),
        (true, Answer::Findings(findings)) => print::json(findings),
        (false, Answer::Completion(completion)) => show_completion(completion),
        (false, Answer::Findings(findings)) => show_findings(findings),
    }
}

/// What there is to an answer beside its words.
pub(crate) fn circumstances(answer: &Answer) {
    match answer {
        Answer::Completion(completion) => show_consequences(completion),
        Answer::Findings(findings) => show_findings(findings),
    }
}

fn show_completion(completion: &Completion) {
    if let Some(message) = &completion.message {
        print::line(&print::safe(&message.content));
    }
    show_consequences(completion);
}

fn show_consequences(completion: &Completion) {
    for task in &completion.tasks {
        print::line(&format!("task {} {}", task.task_id, word(&task.change)));
    }
    for verification in &completion.verifications {
        let said = match (&verification.status, &verification.error) {
            (Some(status), _) => word(status),
            (None, Some(error)) => print::safe(&error.message),
            (None, None) => "not verified".to_owned(),
        };
        print::line(&format!("verification of {}: {said}", verification.task_id));
    }
    if let Some(error) = &completion.error {
        print::note(&format!("{}: {}", error.code, print::safe(&error.message)));
    }
    let usage = &completion.usage;
    print::note(&format!(
        "— {} · attempt {} · {} · {}, {}",
        word(&completion.status),
        completion.attempts,
        completion.instance,
        count(usage.model_calls, "model call"),
        count(usage.tool_calls, "tool call"),
    ));
}

pub(crate) fn count(number: u32, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}

fn show_findings(findings: &Findings) {
    let task = findings.task_id.as_ref().map_or("?", |task| task.as_str());
    print::line(&format!("{}: {}", task, word(&findings.status)));
    for finding in &findings.findings {
        let mark = match finding.verdict {
            Verdict::Met => "met    ",
            Verdict::NotMet => "NOT MET",
            Verdict::Unclear => "unclear",
        };
        print::line(&format!("  {mark}  {}", print::safe(&finding.criterion)));
        for detail in [&finding.evidence, &finding.location].into_iter().flatten() {
            print::line(&format!("           {}", print::safe(detail)));
        }
    }
    for action in &findings.recommended_actions {
        print::line(&format!("  → {}", print::safe(action)));
    }
    if let Some(error) = &findings.error {
        print::note(&format!("{}: {}", error.code, print::safe(&error.message)));
    }
    print::note(&format!("— attempt {} · {}", findings.attempts, findings.instance));
}
