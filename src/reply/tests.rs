use subjects::{ErrorCode, Finding, Severity, TaskChange, TaskChangeKind, Usage, Verdict, Verification};

use super::*;

/// Returns the answer of a handoff that failed and of which this is known.
fn failure(summary: LedgerSummary) -> Answer {
    let run = Run {
        kind: Kind::Chat,
        id: HandoffId::now(),
        instance: &"test".parse().unwrap(),
        attempts: 1,
        trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
        task: None,
    };
    run.failure(Failure::new(ErrorCode::Internal, "it is too large"), Stop::Budget, summary)
}

fn completion(summary: LedgerSummary) -> Completion {
    match failure(summary) {
        Answer::Completion(completion) => completion,
        Answer::Findings(findings) => panic!("{findings:?}"),
    }
}

/// What is known is given up step by step: the findings, which can be long, and then all but the usage.
#[test]
fn answer_that_is_too_large_gets_shorter_each_time() {
    let finding = Finding {
        criterion: "The build works".to_owned(),
        verdict: Verdict::NotMet,
        severity: Severity::Major,
        evidence: None,
        location: None,
    };
    let verification = Verification {
        handoff_id: HandoffId::now(),
        task_id: "t-1".parse().unwrap(),
        status: Some(FindingsStatus::Fail),
        findings: vec![finding; 3],
        error: None,
    };
    let summary = LedgerSummary {
        usage: Usage { prompt_tokens: 7, ..Usage::default() },
        tasks: vec![TaskChange { task_id: "t-2".parse().unwrap(), change: TaskChangeKind::Created }],
        verifications: vec![verification.clone()],
        trace: None,
    };
    let shortened = LedgerSummary::shorten(&failure(summary.clone()));
    let answers: Vec<Completion> = shortened.into_iter().map(completion).collect();
    let [all, without_findings, usage] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(all.verifications, std::slice::from_ref(&verification));
    let without = Verification { findings: Vec::new(), ..verification };
    assert_eq!(without_findings.verifications, [without]);
    assert_eq!(without_findings.tasks, all.tasks);
    assert!(usage.tasks.is_empty() && usage.verifications.is_empty());
    assert!(answers.iter().all(|answer| answer.usage.prompt_tokens == 7));
    let nothing = LedgerSummary { tasks: Vec::new(), verifications: Vec::new(), ..summary };
    assert_eq!(LedgerSummary::shorten(&failure(nothing)).len(), 1, "there is nothing to leave out");
}
