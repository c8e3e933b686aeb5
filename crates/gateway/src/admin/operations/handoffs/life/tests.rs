use operate::run::Page;
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

fn entry(second: i64, records: Vec<Record>) -> Page {
    let at = clock::from_micros(second * SECOND);
    let entry = Entry { at: Timestamp::new(at).unwrap(), ..Entry::new(records) };
    Page { sequence: u64::try_from(second).unwrap(), said: Said::Entry(entry) }
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
    })
}

fn turn(number: u32, ms: u64) -> Record {
    let reply = Reply {
        content: "well".into(),
        calls: Vec::new(),
        finish: Finish::Stop,
        tokens: Tokens { prompt: 100, completion: 10 },
        model: "m".into(),
        tries: 1,
        cost_usd: Some(0.5),
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

fn run(pages: Vec<Page>) -> Run {
    let id = "0193f2c0-5a00-7000-8000-0000000000aa".parse().unwrap();
    Run { id, role: Role::ProjectManager, pages }
}

fn answer(second: i64, steps: Value) -> Page {
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
        usage: Usage {
            prompt_tokens: 230,
            completion_tokens: 25,
            model_calls: 2,
            tool_calls: 1,
            cost_usd: Some(1.25),
        },
        trace: Trace { steps: serde_json::from_value(steps).unwrap(), ..Trace::ended("t", Stop::GoalMet) },
        attempts: 2,
        instance: "two".parse().unwrap(),
        error: None,
    };
    let answer = Box::new(Answer::Completion(completion));
    let at = clock::from_micros(second * SECOND);
    Page { sequence: u64::try_from(second).unwrap(), said: Said::Answer { at, answer } }
}

fn span(did: &Did) -> (i64, Option<i64>) {
    (did.began_at / SECOND, did.ended_at.map(|at| at / SECOND))
}

#[test]
fn a_life_with_a_death_in_it_has_both_attempts() {
    let steps = json!([
        { "index": 0, "act": "model", "name": "m", "outcome": "ok", "ms": 4000 },
        { "index": 1, "act": "tool", "name": "db.task.create", "outcome": "ok", "ms": 1000 },
        { "index": 2, "act": "model", "name": "m", "outcome": "ok", "ms": 2000 },
    ]);
    let life = Life::of(
        &run(vec![
            entry(100, vec![claimed(1, "one")]),
            entry(105, vec![turn(0, 4000), intent(0)]),
            entry(130, vec![claimed(2, "two")]),
            entry(132, vec![result(0, 1000, "made")]),
            answer(135, steps),
        ]),
        999 * SECOND,
    );
    let ends: Vec<_> = life.attempts.iter().map(|it| (it.number, &*it.instance, it.end, it.found)).collect();
    assert_eq!(ends, [(1, "one", AttemptEnd::Lost, 0), (2, "two", AttemptEnd::Answered, 1)]);
    assert_eq!((life.attempts[0].last_at, life.attempts[0].ended_at), (105 * SECOND, Some(130 * SECOND)));
    let did: Vec<_> = life.steps.iter().map(|did| (did.attempt, did.what, did.outcome, span(did))).collect();
    assert_eq!(
        did,
        [
            (1, DidWhat::Turn, Outcome::Done, (101, Some(105))),
            (1, DidWhat::Call, Outcome::CutOff, (105, Some(130))),
            (2, DidWhat::Call, Outcome::Done, (131, Some(132))),
            (2, DidWhat::Turn, Outcome::Done, (133, Some(135))),
        ]
    );
    let last = &life.steps[3];
    assert_eq!(
        (last.prompt_tokens, last.completion_tokens, last.cost_usd),
        (Some(130), Some(15), Some(0.75))
    );
    assert_eq!(
        (life.state, life.began_at, life.ended_at),
        (LifeState::Answered, 100 * SECOND, Some(135 * SECOND))
    );
}

#[test]
fn calls_that_were_written_together_ran_at_the_same_time_and_before_the_turn() {
    let life = Life::of(
        &run(vec![
            entry(100, vec![claimed(1, "one")]),
            entry(120, vec![result(0, 3000, "a"), result(1, 5000, "b"), turn(1, 10_000)]),
            entry(121, vec![intent(2)]),
        ]),
        125 * SECOND,
    );
    let spans: Vec<_> = life.steps.iter().map(span).collect();
    assert_eq!(spans, [(107, Some(110)), (105, Some(110)), (110, Some(120)), (121, None)]);
    assert_eq!((life.state, life.ended_at), (LifeState::InWork, None));
    assert_eq!(life.usage.cost_usd, Some(0.5));
}

#[test]
fn what_was_handed_back_is_nobodys_until_it_is_taken_up_again() {
    let mut pages = vec![
        entry(100, vec![claimed(1, "one")]),
        entry(105, vec![turn(0, 4000), intent(0), Record::Released]),
    ];
    let life = Life::of(&run(pages.clone()), 120 * SECOND);
    assert_eq!((life.state, life.attempts[0].end), (LifeState::HandedBack, AttemptEnd::Released));
    assert_eq!(life.attempts[0].ended_at, Some(105 * SECOND));
    pages.push(entry(110, vec![claimed(2, "two")]));
    let life = Life::of(&run(pages), 120 * SECOND);
    let ends: Vec<_> = life.attempts.iter().map(|it| (&*it.instance, it.end)).collect();
    assert_eq!(ends, [("one", AttemptEnd::Released), ("two", AttemptEnd::Open)]);
    assert_eq!((life.state, life.attempts[1].found), (LifeState::InWork, 1));
    let did: Vec<_> = life.steps.iter().map(|did| (did.attempt, did.outcome)).collect();
    assert_eq!(did, [(1, Outcome::Done), (1, Outcome::CutOff)], "the call was cut off with its attempt");
}

#[test]
fn what_looks_like_a_secret_is_not_told() {
    let secret = "the key is ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8";
    let life = Life::of(
        &run(vec![entry(100, vec![claimed(1, "one")]), entry(101, vec![result(0, 1, secret)])]),
        200 * SECOND,
    );
    assert_eq!((life.steps[0].said.as_deref(), life.steps[0].holds_a_secret), (None, true));
}

#[test]
fn what_cannot_be_read_is_told_as_such() {
    let newer = Page { sequence: 9, said: Said::Unreadable(Unreadable::Newer(99)) };
    let life = Life::of(&run(vec![newer]), 7);
    assert_eq!((life.state, life.began_at), (LifeState::Unknown, 7));
    assert!(life.unreadable[0].newer && life.unreadable[0].why.contains("99"));
}
