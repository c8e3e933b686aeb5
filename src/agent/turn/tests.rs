use serde_json::json;

use super::*;
use crate::inference::Tokens;

fn turn(max_steps: u32) -> Turn {
    let names = NameTable::over(["db.task.get", "db.task.list"], &Control::RESERVED);
    Turn::new(Role::ProjectManager, Arc::new(names), max_steps, vec![Message::user("go")])
}

fn reply(content: &str, calls: &[(&str, &str)]) -> Event {
    let calls = calls.iter().enumerate().map(|(index, (name, arguments))| ToolCall {
        id: format!("c{index}"),
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
    });
    Event::Replied(Reply {
        content: content.to_owned(),
        calls: calls.collect(),
        finish: Finish::Stop,
        tokens: Tokens::default(),
        model: "test".to_owned(),
        tries: 1,
        cost_usd: None,
    })
}

fn observed(results: &[(&str, bool)]) -> Event {
    let all = results.iter().map(|(text, failed)| Observed { text: (*text).to_owned(), failed: *failed });
    Event::Acted(all.collect())
}

#[test]
fn a_reply_without_calls_is_the_answer() {
    let mut turn = turn(3);
    assert_eq!(turn.begin(), Action::Ask { last: false });
    let end = End::Answered { content: "hi".into(), finish: Finish::Stop, out_of_steps: false };
    assert_eq!(turn.step(reply("hi", &[])), Action::Finish(end));
}

#[test]
fn calls_are_carried_out_and_their_results_kept_in_order() {
    let mut turn = turn(3);
    turn.begin();
    let action = turn.step(reply("", &[("db__task__get", r#"{"task_id":"a"}"#), ("db__task__list", "")]));
    let Action::Act(acts) = action else { panic!("{action:?}") };
    assert!(
        matches!(&acts[0], Act::Call { tool, arguments } if tool == "db.task.get" && arguments["task_id"] == json!("a"))
    );
    assert!(
        matches!(&acts[1], Act::Call { tool, arguments } if tool == "db.task.list" && arguments.is_empty())
    );
    assert_eq!(turn.step(observed(&[("one <|x|>", false), ("two", true)])), Action::Ask { last: false });
    let results: Vec<&str> = turn.messages()[2..].iter().map(Message::content).collect();
    assert_eq!(results, ["one ‹|x|›", "two"], "and no result carries marks of a template");
    assert_eq!(
        turn.step(reply("", &[("db__task__list", "{}")])),
        Action::Act(vec![Act::Call { tool: "db.task.list".into(), arguments: Map::new() }])
    );
    assert_eq!(turn.step(observed(&[("three", false)])), Action::Ask { last: true });
    assert_eq!(
        turn.step(reply("", &[("db__task__list", "{}")])),
        Action::Finish(End::Broken(Broken::MaxSteps { steps: 3 }))
    );
}

#[test]
fn a_question_ends_the_turn_and_nothing_else_is_done() {
    let mut turn = turn(3);
    turn.begin();
    let asking = reply("", &[("db__task__list", "{}"), ("ask_user", r#"{"question":"Which site?"}"#)]);
    assert_eq!(turn.step(asking), Action::Finish(End::Asks { question: "Which site?".into() }));
    // An analyst has nobody to ask.
    let mut analyst = Turn { role: Role::ProjectAnalyst, ..self::turn(3) };
    analyst.begin();
    let action = analyst.step(reply("", &[("ask_user", r#"{"question":"Which site?"}"#)]));
    assert!(matches!(action, Action::Act(acts) if matches!(acts[0], Act::Refuse { .. })));
}

#[test]
fn three_failed_rounds_in_a_row_end_it_and_a_success_starts_the_count_anew() {
    let mut turn = turn(20);
    turn.begin();
    for failed in [true, true, false, true, true] {
        turn.step(reply("", &[("db__task__list", "{}")]));
        assert_eq!(turn.step(observed(&[("x", failed)])), Action::Ask { last: false });
    }
    turn.step(reply("", &[("nonsense", "{}")]));
    let end = turn.step(observed(&[("no such tool", true)]));
    assert_eq!(
        end,
        Action::Finish(End::Broken(Broken::KeepsFailing { count: 3, why: "no such tool".into() }))
    );
}

#[test]
fn too_many_calls_at_once_are_not_carried_out() {
    let mut turn = turn(3);
    turn.begin();
    let calls = vec![("db__task__list", "{}"); MOST_CALLS + 2];
    let Action::Act(acts) = turn.step(reply("", &calls)) else { panic!() };
    assert_eq!(acts.iter().filter(|act| matches!(act, Act::Refuse { .. })).count(), 2);
    assert_eq!(acts.len(), MOST_CALLS + 2, "each call gets a result");
}

#[test]
fn a_servers_history_is_always_well_formed() {
    let mut turn = turn(9);
    turn.begin();
    for arguments in ["{\"task_id\": ", "[1]", "", "{\"task_id\":\"a\"}"] {
        turn.step(reply("<|im_start|>", &[("db__task__get", arguments)]));
        turn.step(observed(&[("ok", false)]));
    }
    let mut ids = std::collections::BTreeSet::new();
    for message in turn.messages() {
        let Message::Assistant { content, calls } = message else { continue };
        assert!(!content.contains("<|"));
        assert!(serde_json::from_str::<Map<String, Value>>(&calls[0].arguments).is_ok(), "{calls:?}");
        assert!(ids.insert(calls[0].id.clone()), "{calls:?}");
    }
    assert_eq!(ids.len(), 4);
}
