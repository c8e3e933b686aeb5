use operate::run::RunMessage;
use serde_json::{Value, json};
use subjects::{
    Completion, FinishReason, Role, Status, Stop, Timestamp, Trace,
    journal::{
        CallId, Entry, Finish, ModelTurn, Question, Reply, Returned, Tokens, ToolIntent, ToolOutcome,
        ToolResult,
    },
};

use super::*;

const SECOND: i64 = 1_000_000;

fn entry(second: i64, records: Vec<Record>) -> RunMessage {
    let at = clock::from_micros(second * SECOND);
    let entry = Entry { at: Timestamp::new(at).unwrap(), ..Entry::new(records) };
    RunMessage { sequence: u64::try_from(second).unwrap(), content: RunContent::Entry(entry) }
}

fn claimed(attempt: u32, instance: &str) -> Record {
    let instance = instance.parse().unwrap();
    Record::Claimed(Claimed {
        attempt,
        instance,
        build: "0.1.0".into(),
        queued: 7,
        delivery: 1,
        origin: None,
        request: (attempt == 1).then(|| "Greet me. token=abcdefgh12345678".to_owned()),
    })
}

fn turn(number: u32, ms: u64) -> Record {
    let reply = Reply {
        content: "well".into(),
        calls: Vec::new(),
        finish: Finish::Stop,
        tokens: Tokens { prompt: 100, completion: 10, cached: 0 },
        model: "m".into(),
        tries: 1,
        cost_usd: Some(0.5),
        note: None,
    };
    Record::ModelTurn(ModelTurn { question: Question::Turn(number), request_hash: None, reply, ms })
}

fn call(number: u32) -> CallId {
    CallId { number, tool: "db.task.create".into(), arguments_hash: String::new() }
}

fn intent(number: u32) -> Record {
    Record::ToolIntent(ToolIntent { call: call(number), key: String::new() })
}

fn result(number: u32, ms: u64, text: &str) -> Record {
    let returned =
        Returned { text: text.into(), structured: None, failed: false, truncated: false, tries: 1 };
    let outcome = ToolOutcome::Returned(returned);
    Record::ToolResult(ToolResult { call: call(number), key: String::new(), outcome, ms })
}

fn run(messages: Vec<RunMessage>) -> Run {
    let id = "0193f2c0-5a00-7000-8000-0000000000aa".parse().unwrap();
    Run { id, role: Role::ProjectManager, messages }
}

fn answer(second: i64, steps: Value) -> RunMessage {
    let completion = Completion {
        schema_version: 1,
        handoff_id: "0193f2c0-5a00-7000-8000-0000000000aa".parse().unwrap(),
        kind: subjects::Kind::Chat,
        status: Status::Completed,
        message: None,
        finish_reason: FinishReason::Stop,
        tasks: Vec::new(),
        verifications: Vec::new(),
        transcript: Vec::new(),
        resumes_as: None,
        resumes_task: None,
        steps: Vec::new(),
        review: None,
        usage: Usage {
            prompt_tokens: 230,
            completion_tokens: 25,
            model_calls: 2,
            tool_calls: 1,
            cost_usd: Some(1.25),
        },
        trace: Trace {
            steps: serde_json::from_value(steps).unwrap(),
            tools: vec!["db.task.create".into(), "help.list".into()],
            tool_words: [("db.task.create".to_owned(), vec!["make".to_owned(), "task".to_owned()])].into(),
            ..Trace::new("t", Stop::GoalMet)
        },
        attempts: 2,
        instance: "two".parse().unwrap(),
        error: None,
    };
    let answer = Box::new(Answer::Completion(completion));
    let at = clock::from_micros(second * SECOND);
    RunMessage { sequence: u64::try_from(second).unwrap(), content: RunContent::Answer { at, answer } }
}

fn span(step: &HandoffStep) -> (i64, Option<i64>) {
    (step.began_at / SECOND, step.ended_at.map(|at| at / SECOND))
}

#[test]
fn history_of_a_killed_worker_has_both_attempts() {
    let steps = json!([
        { "index": 0, "act": "model", "name": "m", "outcome": "ok", "ms": 4000 },
        { "index": 1, "act": "tool", "name": "db.task.create", "outcome": "ok", "ms": 1000 },
        { "index": 2, "act": "model", "name": "m", "outcome": "ok", "ms": 2000 },
    ]);
    let history = HandoffHistory::new(
        &run(vec![
            entry(100, vec![claimed(1, "one")]),
            entry(105, vec![turn(0, 4000), intent(0)]),
            entry(130, vec![claimed(2, "two")]),
            entry(132, vec![result(0, 1000, "made")]),
            answer(135, steps),
        ]),
        999 * SECOND,
    );
    let ends: Vec<_> =
        history.attempts.iter().map(|it| (it.number, &*it.instance, it.end, it.found)).collect();
    assert_eq!(ends, [(1, "one", AttemptEnd::Lost, 0), (2, "two", AttemptEnd::Answered, 1)]);
    assert_eq!(
        (history.attempts[0].last_at, history.attempts[0].ended_at),
        (105 * SECOND, Some(130 * SECOND))
    );
    let offered: Vec<_> =
        history.offered.iter().map(|tool| (&*tool.name, tool.words.join(" "), tool.calls)).collect();
    assert_eq!(offered, [("db.task.create", "make task".to_owned(), 1), ("help.list", String::new(), 0)]);
    let request = history.request.as_deref().unwrap();
    assert!(request.starts_with("Greet me.") && !request.contains("abcdefgh12345678"), "{request}");
    let steps: Vec<_> =
        history.steps.iter().map(|step| (step.attempt, step.what, step.outcome, span(step))).collect();
    assert_eq!(
        steps,
        [
            (1, StepKind::Turn, Outcome::Done, (101, Some(105))),
            (1, StepKind::Call, Outcome::CutOff, (105, Some(130))),
            (2, StepKind::Call, Outcome::Done, (131, Some(132))),
            (2, StepKind::Turn, Outcome::Done, (133, Some(135))),
        ]
    );
    let last = &history.steps[3];
    assert_eq!(
        (last.prompt_tokens, last.completion_tokens, last.cost_usd),
        (Some(130), Some(15), Some(0.75))
    );
    assert_eq!(
        (history.state, history.began_at, history.ended_at),
        (HandoffState::Answered, 100 * SECOND, Some(135 * SECOND))
    );
}

#[test]
fn calls_in_one_entry_ran_concurrently_and_before_the_turn() {
    let history = HandoffHistory::new(
        &run(vec![
            entry(100, vec![claimed(1, "one")]),
            entry(120, vec![result(0, 3000, "a"), result(1, 5000, "b"), turn(1, 10_000)]),
            entry(121, vec![intent(2)]),
        ]),
        125 * SECOND,
    );
    let spans: Vec<_> = history.steps.iter().map(span).collect();
    assert_eq!(spans, [(107, Some(110)), (105, Some(110)), (110, Some(120)), (121, None)]);
    assert_eq!((history.state, history.ended_at), (HandoffState::InWork, None));
    assert_eq!(history.usage.cost_usd, Some(0.5));
}

#[test]
fn handed_back_handoff_has_no_owner_until_it_is_claimed_again() {
    let mut messages = vec![
        entry(100, vec![claimed(1, "one")]),
        entry(105, vec![turn(0, 4000), intent(0), Record::Released]),
    ];
    let history = HandoffHistory::new(&run(messages.clone()), 120 * SECOND);
    assert_eq!((history.state, history.attempts[0].end), (HandoffState::HandedBack, AttemptEnd::Released));
    assert_eq!(history.attempts[0].ended_at, Some(105 * SECOND));
    messages.push(entry(110, vec![claimed(2, "two")]));
    let history = HandoffHistory::new(&run(messages), 120 * SECOND);
    let ends: Vec<_> = history.attempts.iter().map(|it| (&*it.instance, it.end)).collect();
    assert_eq!(ends, [("one", AttemptEnd::Released), ("two", AttemptEnd::Open)]);
    assert_eq!((history.state, history.attempts[1].found), (HandoffState::InWork, 1));
    let steps: Vec<_> = history.steps.iter().map(|step| (step.attempt, step.outcome)).collect();
    assert_eq!(steps, [(1, Outcome::Done), (1, Outcome::CutOff)], "the call was cut off with its attempt");
}

#[test]
fn text_that_looks_like_a_secret_is_not_shown() {
    let secret = "the key is ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
    let history = HandoffHistory::new(
        &run(vec![entry(100, vec![claimed(1, "one")]), entry(101, vec![result(0, 1, secret)])]),
        200 * SECOND,
    );
    assert_eq!((history.steps[0].excerpt.as_deref(), history.steps[0].holds_a_secret), (None, true));
}

#[test]
fn unreadable_entry_is_reported() {
    let newer = RunMessage { sequence: 9, content: RunContent::Unreadable(Unreadable::Newer(99)) };
    let history = HandoffHistory::new(&run(vec![newer]), 7);
    assert_eq!((history.state, history.began_at), (HandoffState::Unknown, 7));
    assert!(history.unreadable[0].newer && history.unreadable[0].why.contains("99"));
}
