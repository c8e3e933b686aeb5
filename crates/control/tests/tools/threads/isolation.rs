//! A user never reaches what is another's: every tool that names a user, with every thread and turn of
//! another one, answers as if there were none.

use contract::{
    Page, ToolContract, arguments,
    thread::{
        AnswerState, BeginOutcome, BeginTurn, BegunTurn, CancelTurn, Delete, Get, GetTurn, List,
        ListMessages, Rename, Thread,
    },
};
use sea_orm::EntityTrait;
use serde::Serialize;
use serde_json::Value;
use store::entity::{thread, turn, turn_cancel};
use subjects::{HandoffId, ScopeId};

use super::{answer, begin, call, end_as, request, request_in, user, with_keys};
use crate::stage::{Stage, on_both, orchestrator};

on_both![what_is_another_users_is_not_found, every_tool_that_names_a_user_is_tested];

fn eve() -> ScopeId {
    "eve".parse().unwrap()
}

/// A call of a tool for Eve about a thread or a turn.
fn about<T: ToolContract + Serialize>(input: &T) -> (&'static str, Value) {
    (T::NAME, Value::Object(arguments(input)))
}

/// Every call that names a thread.
fn calls_about(thread: &str) -> Vec<(&'static str, Value)> {
    let thread = || thread.to_owned();
    vec![
        about(&Get { user_id: eve(), thread: thread() }),
        about(&ListMessages { user_id: eve(), thread: thread(), limit: None, cursor: None }),
        about(&Rename { user_id: eve(), thread: thread(), title: "mine".to_owned() }),
        about(&Delete { user_id: eve(), thread: thread() }),
    ]
}

async fn what_is_another_users_is_not_found(stage: Stage) {
    with_keys(&stage).await;
    let mut of_ada = Vec::new();
    // One thread with an open turn, one with an answer, one with a question; named and not.
    of_ada.push(begin(&stage, &request_in("plans", "open")).await);
    of_ada.push(begin(&stage, &request(vec![user("answered")])).await);
    of_ada.push(begin(&stage, &request_in("party", "asked")).await);
    assert!(end_as(&stage, of_ada[1].handoff_id, answer(AnswerState::Completed, "secret")).await);
    assert!(end_as(&stage, of_ada[2].handoff_id, answer(AnswerState::Question, "secret?")).await);
    let rows = async || {
        let db = stage.store.read();
        (thread::Entity::find().all(db).await.unwrap(), turn::Entity::find().all(db).await.unwrap())
    };
    let calls_about_turn = |handoff_id| {
        [about(&GetTurn { user_id: eve(), handoff_id }), about(&CancelTurn { user_id: eve(), handoff_id })]
    };
    let before = rows().await;
    let mut checked = 0;
    for turn in &of_ada {
        for reference in ["plans", "party", turn.thread_id.as_str(), &turn.handoff_id.to_string()] {
            // As for a thread that no user has.
            let unknown = calls_about("no-such-thread");
            for ((tool, arguments), (_, of_none)) in calls_about(reference).into_iter().zip(unknown) {
                let (code, why) = stage.fails_for(&orchestrator(), tool, arguments).await;
                let (none_code, none_why) = stage.fails_for(&orchestrator(), tool, of_none).await;
                let none_why = none_why.replace("no-such-thread", reference);
                assert_eq!((code, why), (none_code, none_why), "{tool} {reference}");
                checked += 1;
            }
        }
        let none = HandoffId::now();
        let of_none = calls_about_turn(none);
        for ((tool, arguments), (_, of_none)) in calls_about_turn(turn.handoff_id).into_iter().zip(of_none) {
            let (code, why) = stage.fails_for(&orchestrator(), tool, arguments).await;
            let (none_code, none_why) = stage.fails_for(&orchestrator(), tool, of_none).await;
            let none_why = none_why.replace(&none.to_string(), &turn.handoff_id.to_string());
            assert_eq!((code, why), (none_code, none_why), "{tool}");
            checked += 1;
        }
    }
    assert_eq!(checked, 3 * (4 * 4 + 2));
    let cancels = turn_cancel::Entity::find().all(stage.store.read()).await.unwrap();
    assert!(cancels.is_empty(), "{cancels:?}");
    let listed: Page<Thread> = call(&stage, &List { user_id: eve(), limit: None, cursor: None }).await;
    assert!(listed.items.is_empty());
    assert_eq!(rows().await, before, "nothing was changed");
    // What Eve says under the same names, ids and words is hers alone: it waits for no turn of Ada.
    for reference in ["plans", "party", &of_ada[0].thread_id, &of_ada[1].thread_id] {
        for (request_key, is_retry) in [(None, true), (Some("r".to_owned() + reference), false)] {
            let begun: BegunTurn = call(
                &stage,
                &BeginTurn {
                    user_id: eve(),
                    key_id: "key-front-end".to_owned(),
                    request_key,
                    is_retry,
                    ..request_in(&format!("{reference}{is_retry}"), "open")
                },
            )
            .await;
            assert_eq!((begun.outcome, begun.turn.position), (BeginOutcome::Begun, 0));
            assert_eq!((begun.turn.user_id.as_str(), begun.turn.messages.len()), ("eve", 1));
            assert!(begun.turn.continues.is_none());
            assert!(of_ada.iter().all(|turn| turn.thread_id != begun.turn.thread_id));
        }
    }
    let (threads, turns) = rows().await;
    assert!(
        before.0.iter().all(|row| threads.contains(row)) && before.1.iter().all(|row| turns.contains(row))
    );
}

/// A new tool that names a user belongs into the test above.
async fn every_tool_that_names_a_user_is_tested(_stage: Stage) {
    let tools: Vec<&str> = control::all()
        .iter()
        .filter(|tool| tool.name.starts_with("thread."))
        .filter(|tool| tool.input["properties"].get("user_id").is_some())
        .map(|tool| tool.name)
        .collect();
    let mut tested: Vec<&str> = calls_about("x").into_iter().map(|(tool, _)| tool).collect();
    tested.extend([GetTurn::NAME, CancelTurn::NAME, List::NAME, BeginTurn::NAME]);
    assert!(tools.len() == tested.len() && tools.iter().all(|tool| tested.contains(tool)), "{tools:?}");
}
