use subjects::{
    job::End,
    workflow::{StepFile, StepKind, StepResult},
};

use super::*;
use crate::agent::workflow_outputs::{DraftDecision, DraftFile, DraftIssue, DraftKind, DraftSeverity};

fn step() -> Step {
    Step {
        name: "convert".to_owned(),
        description: "Convert the table.".to_owned(),
        kind: StepKind::Job,
        script: Some("python3 convert.py".to_owned()),
        files: vec![StepFile { path: "convert.py".to_owned(), text: "old".to_owned() }],
        artifacts: vec!["table.csv".to_owned()],
        outputs: vec!["table.json".to_owned()],
        network: vec!["example.org".to_owned()],
        seconds: Some(60),
        criteria: vec!["Every row is an object".to_owned()],
        depends_on: vec!["fetch".to_owned()],
        needs_approval: true,
    }
}

fn review(exit_code: i32, iteration: u32) -> Review {
    let is_success = exit_code == 0;
    Review {
        task_id: "t-1".parse().unwrap(),
        step: step(),
        result: StepResult {
            outcome: if is_success { Outcome::Succeeded } else { Outcome::Failed },
            end: Some(End::Exited { code: exit_code }),
            exit_code: Some(exit_code),
            output_tail: None,
            artifacts: Vec::new(),
            answer: None,
            error: None,
        },
        criteria: Vec::new(),
        iteration: iteration.try_into().unwrap(),
        max_iterations: 3.try_into().unwrap(),
    }
}

fn draft(decision: DraftDecision, severities: &[DraftSeverity]) -> DraftReview {
    let issue = |severity: &DraftSeverity| DraftIssue {
        severity: *severity,
        location: Some("convert.py:7".to_owned()),
        problem: format!("{severity:?} problem"),
        fix: format!("{severity:?} fix"),
    };
    DraftReview {
        decision,
        reasons: vec!["Because.".to_owned()],
        issues: severities.iter().map(issue).collect(),
        step: None,
        question: None,
    }
}

fn changed(files: &[&str], criteria: &[&str]) -> DraftStep {
    let file = |path: &&str| DraftFile { path: (*path).to_owned(), text: "new".to_owned() };
    DraftStep {
        name: "something-else".to_owned(),
        description: String::new(),
        kind: DraftKind::Job,
        script: Some("sh convert.sh".to_owned()),
        files: files.iter().map(file).collect(),
        outputs: Vec::new(),
        network: Vec::new(),
        seconds: None,
        criteria: criteria.iter().map(|text| (*text).to_owned()).collect(),
        depends_on: vec!["nothing-known".to_owned()],
        needs_approval: false,
    }
}

fn finding(verdict: Verdict, severity: Severity) -> Verified {
    Verified::Found(vec![Finding {
        criterion: "Every row is an object".to_owned(),
        verdict,
        severity,
        evidence: Some("2 of 3 rows".to_owned()),
        location: None,
    }])
}

use DraftDecision::{Escalate, Pass, ReduceScope, Retry, Revise};
use DraftSeverity::{Critical, Major, Minor};

#[test]
fn success_without_criteria_needs_no_model_and_nothing_else_does_without() {
    let with = |criteria: &[&str], own: &[&str], exit_code: i32| {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let mut review = review(exit_code, 1);
        (review.criteria, review.step.criteria) = (list(criteria), list(own));
        decide_without_model(&review).map(|decision| decision.decision)
    };
    assert_eq!(with(&[], &[], 0), Some(Decision::Pass));
    assert_eq!(with(&["a"], &[], 0), None);
    assert_eq!(with(&[], &["a"], 0), None);
    assert_eq!(with(&[], &[], 1), None);
}

#[test]
fn critical_and_major_issues_never_pass() {
    for severity in [Critical, Major] {
        let decided = decide(&review(0, 1), &draft(Pass, &[severity, Minor]), &Verified::NotAsked);
        assert_eq!(decided.decision, Decision::Revise, "{decided:?}");
        let step = decided.step.unwrap();
        assert!(step.description.contains(&format!("{severity:?} fix")), "{step:?}");
        assert!(!step.description.contains("Minor"), "minor issues are withheld: {step:?}");
        assert_eq!(decided.issues.len(), 2, "and are in the answer for people");
        let last = decide(&review(0, 3), &draft(Pass, &[severity]), &Verified::NotAsked);
        assert_eq!(last.decision, Decision::Escalate);
    }
    let failed = decide(&review(1, 1), &draft(Pass, &[]), &Verified::NotAsked);
    assert_eq!(failed.decision, Decision::Retry, "nor does a step that failed: {failed:?}");
}

#[test]
fn what_analysts_found_counts_even_if_the_model_ignores_it() {
    for (severity, decision, issue) in [
        (Severity::Critical, Decision::Revise, IssueSeverity::Critical),
        (Severity::Major, Decision::Revise, IssueSeverity::Major),
        (Severity::Info, Decision::Revise, IssueSeverity::Major),
        (Severity::Minor, Decision::Pass, IssueSeverity::Minor),
    ] {
        let decided = decide(&review(0, 1), &draft(Pass, &[]), &finding(Verdict::NotMet, severity));
        assert_eq!((decided.decision, decided.issues[0].severity), (decision, issue), "{decided:?}");
        assert!(decided.issues[0].problem.contains("Every row is an object (2 of 3 rows)"));
    }
    for verdict in [Verdict::Met, Verdict::Unclear] {
        let decided = decide(&review(0, 1), &draft(Pass, &[]), &finding(verdict, Severity::Major));
        assert_eq!((decided.decision, decided.issues.len()), (Decision::Pass, 0), "{decided:?}");
    }
    // An issue that names the criterion is not listed twice.
    let mut known = draft(Revise, &[Major]);
    known.issues[0].problem = "every row is an object: one is a list".to_owned();
    assert_eq!(decide(&review(0, 1), &known, &finding(Verdict::NotMet, Severity::Major)).issues.len(), 1);
}

#[test]
fn minor_issues_alone_pass() {
    for decision in [Pass, Revise, Retry, ReduceScope] {
        let mut draft = draft(decision, &[Minor]);
        draft.step = Some(changed(&[], &[]));
        let decided = decide(&review(0, 1), &draft, &Verified::NotAsked);
        assert_eq!((decided.decision, &decided.step), (Decision::Pass, &None), "{decided:?}");
        assert_eq!(decided.issues.len(), 1, "for people");
    }
    // A question to a person is asked, and a failure is not made up for.
    assert_eq!(
        decide(&review(0, 1), &draft(Escalate, &[Minor]), &Verified::NotAsked).decision,
        Decision::Escalate
    );
    assert_eq!(decide(&review(1, 1), &draft(Retry, &[Minor]), &Verified::NotAsked).decision, Decision::Retry);
}

#[test]
fn last_review_decides_neither_revise_nor_retry() {
    for decision in [Revise, Retry, Pass] {
        let mut draft = draft(decision, &[Major]);
        draft.step = Some(changed(&[], &[]));
        let decided = decide(&review(1, 3), &draft, &Verified::NotAsked);
        assert_eq!((decided.decision, &decided.step), (Decision::Escalate, &None), "{decided:?}");
        let question = decided.question.unwrap();
        assert!(question.contains("`convert` is not done: Major problem"), "{question}");
        assert!(decided.reasons.iter().any(|it| it.contains("last of 3 reviews")), "{:?}", decided.reasons);
    }
    let mut smaller = draft(ReduceScope, &[Major]);
    smaller.step = Some(changed(&[], &["One row is an object"]));
    let decided = decide(&review(1, 3), &smaller, &Verified::NotAsked);
    assert_eq!(decided.decision, Decision::ReduceScope);
    assert_eq!(decided.step.unwrap().criteria, ["One row is an object"]);
    assert_eq!(
        decide(&review(1, 3), &draft(ReduceScope, &[Major]), &Verified::NotAsked).decision,
        Decision::Escalate,
        "without a smaller step there is nothing to do"
    );
    assert_eq!(decide(&review(0, 3), &draft(Pass, &[]), &Verified::NotAsked).decision, Decision::Pass);
}

#[test]
fn changed_step_keeps_what_is_not_the_models_to_change() {
    let mut revised = draft(Revise, &[Major]);
    revised.step = Some(changed(&["extra.py"], &["Easier"]));
    let step = decide(&review(1, 1), &revised, &Verified::NotAsked).step.unwrap();
    let expected = Step {
        script: Some("sh convert.sh".to_owned()),
        files: vec![
            StepFile { path: "extra.py".to_owned(), text: "new".to_owned() },
            StepFile { path: "convert.py".to_owned(), text: "old".to_owned() },
        ],
        ..self::step()
    };
    assert_eq!(step, expected, "its name, criteria, dependencies, approval and what was not repeated");
    let mut replaced = draft(Revise, &[Major]);
    replaced.step = Some(changed(&["convert.py"], &[]));
    let step = decide(&review(1, 1), &replaced, &Verified::NotAsked).step.unwrap();
    assert_eq!(step.files, [StepFile { path: "convert.py".to_owned(), text: "new".to_owned() }]);
}

#[test]
fn model_is_asked_again_for_what_its_decision_lacks() {
    let check = |draft: DraftReview| check_draft(&review(1, 1), &draft);
    assert!(check(draft(Revise, &[])).unwrap_err().contains("no changed step"));
    assert!(check(draft(ReduceScope, &[])).unwrap_err().contains("no changed step"));
    assert!(check(draft(Escalate, &[])).unwrap_err().contains("without a question"));
    let broken = DraftStep { script: None, ..changed(&[], &[]) };
    let invalid = DraftReview { step: Some(broken), ..draft(Revise, &[]) };
    assert!(check(invalid).unwrap_err().contains("a job needs a script"));
    assert_eq!(check(DraftReview { step: Some(changed(&[], &[])), ..draft(Revise, &[]) }), Ok(()));
    let asked = DraftReview { question: Some("Which table?".to_owned()), ..draft(Escalate, &[]) };
    assert_eq!(check(asked.clone()), Ok(()));
    let decided = decide(&review(1, 1), &asked, &Verified::NotAsked);
    assert_eq!(decided.question.as_deref(), Some("Which table?"));
}

#[test]
fn missing_analyst_is_said_in_the_reasons() {
    let absent = Verified::Absent("no analyst answered within 3s".to_owned());
    let decided = decide(&review(0, 1), &draft(Pass, &[]), &absent);
    assert_eq!(decided.decision, Decision::Pass);
    assert!(decided.reasons[1].contains("no analyst answered within 3s"), "{decided:?}");
}
