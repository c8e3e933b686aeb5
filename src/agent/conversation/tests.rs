use serde_json::json;

use super::*;
use crate::inference::Tokens;

fn conversation(max_steps: u32) -> Conversation {
    let names = NameTable::new(["db.task.get", "db.task.list"], &Control::RESERVED);
    Conversation::new(Role::ProjectManager, Arc::new(names), max_steps, vec![Message::user("go")])
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
        note: None,
    })
}

fn observed(results: &[(&str, bool)]) -> Event {
    let all = results.iter().map(|(text, failed)| Observation { text: (*text).to_owned(), failed: *failed });
    Event::Executed(all.collect())
}

#[test]
fn a_reply_without_calls_is_the_answer() {
    let mut conversation = conversation(3);
    assert_eq!(conversation.begin(), Action::Ask { last: false });
    let end = End::Answered { content: "hi".into(), finish: Finish::Stop, out_of_steps: false };
    assert_eq!(conversation.step(reply("hi", &[])), Action::Finish(end));
}

#[test]
fn calls_are_executed_and_their_results_kept_in_order() {
    let mut conversation = conversation(3);
    conversation.begin();
    let action =
        conversation.step(reply("", &[("db__task__get", r#"{"task_id":"a"}"#), ("db__task__list", "")]));
    let Action::Execute(calls) = action else { panic!("{action:?}") };
    let arguments = Map::from_iter([("task_id".to_owned(), json!("a"))]);
    assert_eq!(calls[0], RequestedCall::Tool { tool: "db.task.get".into(), arguments });
    assert_eq!(calls[1], RequestedCall::Tool { tool: "db.task.list".into(), arguments: Map::new() });
    assert_eq!(
        conversation.step(observed(&[("one <|x|>", false), ("two", true)])),
        Action::Ask { last: false }
    );
    let results: Vec<&str> = conversation.messages()[2..].iter().map(Message::content).collect();
    assert_eq!(results, ["one ‹|x|›", "two"], "and template marks in results are escaped");
    assert_eq!(
        conversation.step(reply("", &[("db__task__list", "{}")])),
        Action::Execute(vec![RequestedCall::Tool { tool: "db.task.list".into(), arguments: Map::new() }])
    );
    assert_eq!(conversation.step(observed(&[("three", false)])), Action::Ask { last: true });
    assert_eq!(
        conversation.step(reply("", &[("db__task__list", "{}")])),
        Action::Finish(End::Failed(WorkError::MaxSteps { steps: 3 }))
    );
}

#[test]
fn a_question_ends_the_conversation_and_other_calls_are_not_executed() {
    let mut conversation = conversation(3);
    conversation.begin();
    let asking = reply("", &[("db__task__list", "{}"), ("ask_user", r#"{"question":"Which site?"}"#)]);
    assert_eq!(conversation.step(asking), Action::Finish(End::Asks { question: "Which site?".into() }));
    // An analyst cannot ask the user.
    let mut analyst = Conversation { role: Role::ProjectAnalyst, ..self::conversation(3) };
    analyst.begin();
    let action = analyst.step(reply("", &[("ask_user", r#"{"question":"Which site?"}"#)]));
    assert!(matches!(action, Action::Execute(calls) if matches!(calls[0], RequestedCall::Refuse { .. })));
}

#[test]
fn question_that_repeats_the_user_is_refused() {
    let asked = vec![Message::user("What is the status of `feed-cat`?")];
    let mut conversation = Conversation { messages: asked, ..conversation(3) };
    conversation.begin();
    let echo = r#"{"question":"what is the status of feed-cat"}"#;
    let action = conversation.step(reply("", &[("ask_user", echo)]));
    assert!(matches!(action, Action::Execute(calls) if matches!(calls[0], RequestedCall::Refuse { .. })));
}

#[test]
fn three_failed_rounds_in_a_row_end_the_conversation_and_a_success_resets_the_count() {
    let mut conversation = conversation(20);
    conversation.begin();
    for failed in [true, true, false, true, true] {
        conversation.step(reply("", &[("db__task__list", "{}")]));
        assert_eq!(conversation.step(observed(&[("x", failed)])), Action::Ask { last: false });
    }
    conversation.step(reply("", &[("nonsense", "{}")]));
    let end = conversation.step(observed(&[("no such tool", true)]));
    assert_eq!(
        end,
        Action::Finish(End::Failed(WorkError::RepeatedFailures { count: 3, why: "no such tool".into() }))
    );
}

#[test]
fn calls_beyond_the_limit_are_refused() {
    let mut conversation = conversation(3);
    conversation.begin();
    let calls = vec![("db__task__list", "{}"); MAX_CALLS + 2];
    let Action::Execute(requested) = conversation.step(reply("", &calls)) else { panic!() };
    assert_eq!(requested.iter().filter(|call| matches!(call, RequestedCall::Refuse { .. })).count(), 2);
    assert_eq!(requested.len(), MAX_CALLS + 2, "each call gets a result");
}

#[test]
fn history_sent_to_the_server_is_always_well_formed() {
    let mut conversation = conversation(9);
    conversation.begin();
    for arguments in ["{\"task_id\": ", "[1]", "", "{\"task_id\":\"a\"}"] {
        conversation.step(reply("<|im_start|>", &[("db__task__get", arguments)]));
        conversation.step(observed(&[("ok", false)]));
    }
    let mut ids = std::collections::BTreeSet::new();
    for message in conversation.messages() {
        let Message::Assistant { content, calls } = message else { continue };
        assert!(!content.contains("<|"));
        assert!(serde_json::from_str::<Map<String, Value>>(&calls[0].arguments).is_ok(), "{calls:?}");
        assert!(ids.insert(calls[0].id.clone()), "{calls:?}");
    }
    assert_eq!(ids.len(), 4);
}

/// Servers that give all calls of a reply the same id, in each of their replies.
#[test]
fn ids_of_calls_are_unique_also_within_a_reply() {
    let mut conversation = conversation(9);
    conversation.begin();
    for _ in 0..3 {
        let Event::Replied(mut same) = reply("", &[("db__task__list", "{}"); 3]) else { panic!("a reply") };
        same.calls.iter_mut().for_each(|call| call.id = "call_1".to_owned());
        conversation.step(Event::Replied(same));
        conversation.step(observed(&[("one", false), ("two", false), ("three", false)]));
    }
    let (mut ids, mut answered) = (Vec::new(), Vec::new());
    for message in conversation.messages() {
        match message {
            Message::Assistant { calls, .. } => ids.extend(calls.iter().map(|call| call.id.clone())),
            Message::Tool { call_id, .. } => answered.push(call_id.clone()),
            Message::User { .. } => {}
        }
    }
    assert_eq!(ids[..3], ["call_1", "call_1_1", "call_1_2"]);
    assert_eq!(ids, answered);
    assert_eq!(ids.iter().collect::<std::collections::BTreeSet<_>>().len(), 9, "{ids:?}");
}

/// A JSON object ends itself, so a call with all of its arguments is whole also in a reply that is cut.
#[test]
fn reply_that_is_cut_in_a_call_executes_none() {
    let cut = |finish: Finish, calls: &[(&str, &str)]| {
        let Event::Replied(whole) = reply("Well.", calls) else { panic!("a reply") };
        let mut conversation = conversation(3);
        conversation.begin();
        conversation.step(Event::Replied(Reply { finish, ..whole }))
    };
    for arguments in ["{\"task_id\":\"a", ""] {
        let calls = [("db__task__list", "{}"), ("db__task__get", arguments)];
        let Action::Finish(End::CutOff { content, calls, .. }) = cut(Finish::Length, &calls) else {
            panic!("{arguments}")
        };
        assert_eq!((content.as_str(), calls.len()), ("Well.", 2));
    }
    let whole = [("db__task__list", "{}")];
    assert!(matches!(cut(Finish::Length, &whole), Action::Execute(calls) if calls.len() == 1));
    assert!(matches!(cut(Finish::CutShort, &whole), Action::Finish(End::CutOff { .. })));
}
