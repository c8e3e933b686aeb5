//! `thread.turn.begin`: which thread a request continues, which turn it repeats, and when it has to wait.

use contract::thread::{
    AnswerState, BeginOutcome, BeginTurn, BegunTurn, Delete, Deleted, MAX_MESSAGES_BYTES, Turn, TurnOptions,
};
use futures_util::future::join_all;
use policy::{AgentKind, Lease};
use sea_orm::{ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter, QueryOrder};
use store::{
    clock,
    entity::{project, thread, token, turn},
};
use subjects::{ChatMessage, ChatRole};

use super::{
    HOUR, answer, assistant, begin, call, complete, contents, end_as, fails, key, message, request,
    request_in, user, with_keys,
};
use crate::stage::{Stage, on_both};

on_both![
    first_request_makes_a_thread,
    lease_is_for_a_manager_the_user_and_the_handoff,
    thread_is_named_or_found_by_its_id,
    request_that_repeats_a_conversation_continues_its_thread,
    of_two_equal_conversations_the_one_with_the_same_answer_continues,
    request_after_a_branch_makes_a_thread,
    single_message_gets_the_history_before_it,
    instructions_hold_until_there_are_others,
    busy_thread_takes_no_second_turn,
    request_follows_the_last_turn_of_its_thread_only,
    of_concurrent_requests_that_follow_a_turn_one_begins,
    named_request_is_made_once,
    retry_joins_the_last_request_with_the_same_body,
    retry_in_another_thread_does_not_join,
    message_after_a_question_continues_it,
    turn_that_cannot_be_answered_any_more_does_not_block,
    wrong_requests_are_refused,
    key_that_is_not_valid_begins_nothing,
    front_end_names_its_users,
    concurrent_requests_make_one_turn,
];

async fn rows(stage: &Stage) -> (usize, usize) {
    let db = stage.store.read();
    let threads = thread::Entity::find().all(db).await.unwrap().len();
    (threads, turn::Entity::find().all(db).await.unwrap().len())
}

async fn first_request_makes_a_thread(stage: Stage) {
    with_keys(&stage).await;
    let options =
        TurnOptions { temperature: Some(0.5), max_tokens: Some(9), project_id: None, background: true };
    let messages = vec![
        message(ChatRole::System, "Be brief."),
        user("  Plan\nthe move "),
        assistant("How?"),
        user("Fast."),
    ];
    let request = BeginTurn { options: options.clone(), ..request(messages.clone()) };
    let turn = begin(&stage, &request).await;
    assert_eq!((turn.position, &turn.messages, &turn.options), (0, &messages, &options));
    assert_eq!((turn.user_id.as_str(), turn.key_id.as_str()), ("ada", "key-ada"));
    assert_eq!((&turn.sent_at, &turn.answer, &turn.continues), (&None, &None, &None));
    let found = thread::Entity::find_by_id(&turn.thread_id).one(stage.store.read()).await.unwrap().unwrap();
    assert_eq!((found.title.as_str(), found.turn_count, found.name), ("Plan the move", 1, None));
    assert_eq!(found.open_turn, Some(turn.handoff_id.to_string()));
    // The same request again is another conversation.
    assert_ne!(begin(&stage, &request).await.thread_id, turn.thread_id);
}

async fn lease_is_for_a_manager_the_user_and_the_handoff(stage: Stage) {
    with_keys(&stage).await;
    let of = |owner: &str| project::Model {
        id: format!("project-{owner}"),
        name: owner.to_owned(),
        title: owner.to_owned(),
        description: String::new(),
        user_id: Some(owner.to_owned()),
        created_at: 1,
        updated_at: 1,
    };
    stage.given(of("ada")).await;
    stage.given(of("eve")).await;
    let in_project = |id: &str| {
        let options = TurnOptions { project_id: Some(id.parse().unwrap()), ..TurnOptions::default() };
        BeginTurn { options, request_key: Some("r".to_owned()), ..request(vec![user("hi")]) }
    };
    // Nothing is stored for a request that fails.
    assert_eq!(fails(&stage, &in_project("project-eve")).await.0, "invalid_arguments");
    assert_eq!(rows(&stage).await, (0, 0));
    let begun: BegunTurn = call(&stage, &in_project("project-ada")).await;
    let joined: BegunTurn = call(&stage, &in_project("project-ada")).await;
    assert_eq!((begun.outcome, joined.outcome), (BeginOutcome::Begun, BeginOutcome::Joined));
    let leases = [begun.lease.unwrap(), joined.lease.unwrap()].map(|text| Lease::read(&text).unwrap());
    for lease in &leases {
        assert_eq!((lease.agent, lease.user_id.as_str()), (AgentKind::ProjectManager, "ada"));
        assert_eq!(lease.project_id.as_deref(), Some("project-ada"));
        assert_eq!(lease.handoff_id, Some(begun.turn.handoff_id.to_string()));
    }
    assert_eq!(leases[0].lease_id, leases[1].lease_id);
}

async fn thread_is_named_or_found_by_its_id(stage: Stage) {
    with_keys(&stage).await;
    let first = begin(&stage, &request_in("chat 7/ä", "one")).await;
    complete(&stage, &first, "1").await;
    let by_name = begin(&stage, &request_in("chat 7/ä", "two")).await;
    complete(&stage, &by_name, "2").await;
    let by_id = begin(&stage, &request_in(&first.thread_id, "three")).await;
    assert_eq!([&by_name.thread_id, &by_id.thread_id], [&first.thread_id; 2]);
    assert_eq!([first.position, by_name.position, by_id.position], [0, 1, 2]);
    // The same name of another user is another thread, and so is the id of this one.
    for name in ["chat 7/ä", &first.thread_id] {
        let of_eve = BeginTurn {
            user_id: "eve".parse().unwrap(),
            key_id: "key-eve-1".to_owned(),
            ..request_in(name, "four")
        };
        let theirs = begin(&stage, &of_eve).await;
        assert_eq!((theirs.position, contents(&theirs.messages)), (0, vec!["four"]));
        assert_ne!(theirs.thread_id, first.thread_id);
    }
}

async fn request_that_repeats_a_conversation_continues_its_thread(stage: Stage) {
    with_keys(&stage).await;
    let system = || message(ChatRole::System, "Be brief.");
    let first = begin(&stage, &request(vec![system(), user("one")])).await;
    complete(&stage, &first, "1").await;
    // Clients change the form of answers.
    let second = begin(&stage, &request(vec![system(), user("one"), assistant("1."), user("two")])).await;
    assert_eq!((&second.thread_id, second.position), (&first.thread_id, 1));
    assert_eq!(contents(&second.messages), ["Be brief.", "one", "1.", "two"]);
    // The thread is busy with what the request goes on from.
    let third = vec![system(), user("one"), assistant("1"), user("two"), user("three")];
    let busy: BegunTurn = call(&stage, &request(third.clone())).await;
    assert_eq!((busy.outcome, busy.turn.handoff_id), (BeginOutcome::Busy, second.handoff_id));
    complete(&stage, &second, "2").await;
    assert_eq!(begin(&stage, &request(third)).await.thread_id, first.thread_id);
    // Another user who says the same has a conversation of their own.
    let of_eve = BeginTurn {
        user_id: "eve".parse().unwrap(),
        key_id: "key-eve-1".to_owned(),
        ..request(vec![system(), user("one"), assistant("1"), user("two"), assistant("2"), user("x")])
    };
    assert_ne!(begin(&stage, &of_eve).await.thread_id, first.thread_id);
}

async fn of_two_equal_conversations_the_one_with_the_same_answer_continues(stage: Stage) {
    with_keys(&stage).await;
    let mut threads = Vec::new();
    for text in ["one", "two", "three"] {
        let turn = begin(&stage, &request(vec![user("hi")])).await;
        complete(&stage, &turn, text).await;
        threads.push(turn.thread_id);
    }
    for (said, expected) in [("two ", 1), ("one", 0), ("something else", 2)] {
        let turn = begin(&stage, &request(vec![user("hi"), assistant(said), user(said)])).await;
        assert_eq!(turn.thread_id, threads[expected], "{said}");
        complete(&stage, &turn, "done").await;
    }
}

async fn request_after_a_branch_makes_a_thread(stage: Stage) {
    with_keys(&stage).await;
    let first = begin(&stage, &request(vec![user("one")])).await;
    complete(&stage, &first, "1").await;
    let second = begin(&stage, &request(vec![user("one"), assistant("1"), user("two")])).await;
    // The client has edited its second message: the thread has gone on, open or not.
    let edited = request(vec![user("one"), assistant("1"), user("or three")]);
    let branch = begin(&stage, &edited).await;
    assert_eq!((branch.position, contents(&branch.messages)), (0, vec!["one", "1", "or three"]));
    complete(&stage, &second, "2").await;
    assert_ne!(begin(&stage, &edited).await.thread_id, first.thread_id);
}

async fn single_message_gets_the_history_before_it(stage: Stage) {
    with_keys(&stage).await;
    let system = |text| message(ChatRole::System, text);
    let named = |messages| BeginTurn { thread: Some("t".to_owned()), ..request(messages) };
    let first = begin(&stage, &named(vec![system("old"), user("one")])).await;
    complete(&stage, &first, "1").await;
    let failed = begin(&stage, &request_in("t", "two")).await;
    assert_eq!(contents(&failed.messages), ["old", "one", "1", "two"]);
    assert!(end_as(&stage, failed.handoff_id, answer(AnswerState::Failed, "broken")).await);
    let third = begin(&stage, &named(vec![system("new"), user("three")])).await;
    assert_eq!(contents(&third.messages), ["new", "one", "1", "two", "three"]);
    complete(&stage, &third, &"3".repeat(MAX_MESSAGES_BYTES / 2)).await;
    // Several messages of the user are a conversation already.
    let fourth = begin(&stage, &named(vec![user("three"), assistant("3"), user("four")])).await;
    assert_eq!(contents(&fourth.messages), ["three", "3", "four"]);
    complete(&stage, &fourth, "4").await;
    let fifth = begin(&stage, &request_in("t", &"5".repeat(MAX_MESSAGES_BYTES / 2))).await;
    let shown: Vec<&str> = fifth.messages.iter().map(|it| &it.content[..it.content.len().min(5)]).collect();
    assert_eq!(shown, ["new", "four", "4", "55555"], "the oldest are left out; the last instructions hold");
    // Afterwards a turn keeps only what was new in it.
    complete(&stage, &fifth, "done").await;
    let row = turn::Entity::find_by_id(fifth.handoff_id.to_string()).one(stage.store.read()).await.unwrap();
    let row = row.unwrap();
    assert_eq!((row.context, row.messages.len() < MAX_MESSAGES_BYTES / 2 + 100), (None, true));
}

async fn instructions_hold_until_there_are_others(stage: Stage) {
    with_keys(&stage).await;
    let system = |text| message(ChatRole::System, text);
    let named = |messages| BeginTurn { thread: Some("t".to_owned()), ..request(messages) };
    let asked = [
        (vec![system("a"), user("one")], vec!["a", "one"]),
        (vec![system("b"), user("two")], vec!["b", "one", "!", "two"]),
        (vec![user("three")], vec!["b", "one", "!", "two", "!", "three"]),
        (vec![system("b"), user("four")], vec!["b", "one", "!", "two", "!", "three", "!", "four"]),
        // A client that sends what was said, as it remembers it.
        (vec![system("c"), user("1"), assistant("!"), user("five")], vec!["c", "1", "!", "five"]),
        (vec![user("six")], vec!["c", "one", "!", "two", "!", "three", "!", "four", "!", "five", "!", "six"]),
    ];
    for (messages, expected) in asked {
        let turn = begin(&stage, &named(messages)).await;
        assert_eq!(contents(&turn.messages), expected);
        complete(&stage, &turn, "!").await;
    }
    // They are kept once, with the request that brought them.
    let rows = turn::Entity::find().order_by_asc(turn::Column::Position).all(stage.store.read()).await;
    let rows = rows.unwrap();
    let kept: Vec<Vec<ChatMessage>> =
        rows.iter().map(|row| serde_json::from_str(&row.messages).unwrap()).collect();
    let kept: Vec<Vec<&str>> = kept.iter().map(|messages| contents(messages)).collect();
    let expected =
        [vec!["a", "one"], vec!["b", "two"], vec!["three"], vec!["four"], vec!["c", "five"], vec!["six"]];
    assert_eq!(kept, expected);
}

async fn busy_thread_takes_no_second_turn(stage: Stage) {
    with_keys(&stage).await;
    let first = begin(&stage, &request_in("t", "one")).await;
    let busy: BegunTurn = call(&stage, &request_in("t", "two")).await;
    assert_eq!((busy.outcome, busy.lease, &busy.turn), (BeginOutcome::Busy, None, &first));
    assert_eq!(rows(&stage).await, (1, 1));
    // Another thread of the user is not affected.
    begin(&stage, &request_in("u", "two")).await;
    complete(&stage, &first, "1").await;
    assert_eq!(begin(&stage, &request_in("t", "two")).await.position, 1);
}

async fn named_request_is_made_once(stage: Stage) {
    with_keys(&stage).await;
    let named = |content: &str| {
        let request = request(vec![user(content)]);
        BeginTurn { request_key: Some("msg-1".to_owned()), ..request }
    };
    let first = begin(&stage, &named("one")).await;
    let joined: BegunTurn = call(&stage, &named("one")).await;
    assert_eq!((joined.outcome, &joined.turn), (BeginOutcome::Joined, &first));
    assert!(joined.lease.is_some());
    let reused: BegunTurn = call(&stage, &named("two")).await;
    assert_eq!((reused.outcome, reused.lease, &reused.turn), (BeginOutcome::KeyReused, None, &first));
    complete(&stage, &first, "1").await;
    let ended: BegunTurn = call(&stage, &named("one")).await;
    assert_eq!((ended.outcome, ended.lease), (BeginOutcome::Joined, None));
    assert_eq!(ended.turn.answer.unwrap().text, "1");
    assert_eq!(rows(&stage).await, (1, 1));
    // The names of another API key are its own.
    stage.given(token::Model { hash: "2".repeat(64), ..key("key-ada-2", "ada") }).await;
    begin(&stage, &BeginTurn { key_id: "key-ada-2".to_owned(), ..named("one") }).await;
}

async fn retry_joins_the_last_request_with_the_same_body(stage: Stage) {
    with_keys(&stage).await;
    let retry = |content: &str| BeginTurn { is_retry: true, ..request(vec![user(content)]) };
    let set_age = async |id: &str, age: i64| {
        let change = turn::ActiveModel { created_at: Set(clock::now() - age), ..Default::default() };
        let update = turn::Entity::update_many().set(change).filter(turn::Column::Id.eq(id));
        update.exec(stage.store.read()).await.unwrap();
    };
    let older = begin(&stage, &request(vec![user("one")])).await;
    set_age(&older.handoff_id.to_string(), HOUR / 60).await;
    let newer = begin(&stage, &request(vec![user("one")])).await;
    let joined: BegunTurn = call(&stage, &retry("one")).await;
    assert_eq!((joined.outcome, joined.turn.handoff_id), (BeginOutcome::Joined, newer.handoff_id));
    assert!(joined.lease.is_some());
    complete(&stage, &newer, "1").await;
    let joined: BegunTurn = call(&stage, &retry("one")).await;
    assert_eq!((joined.turn.answer.unwrap().text.as_str(), joined.lease), ("1", None));
    // Another body, another user and another key are other requests.
    begin(&stage, &retry("two")).await;
    let of_eve =
        BeginTurn { user_id: "eve".parse().unwrap(), key_id: "key-eve-1".to_owned(), ..retry("one") };
    begin(&stage, &of_eve).await;
    // A request that was made and answered long ago is not joined.
    complete(&stage, &older, "0").await;
    let long_ago = clock::now() - HOUR / 4 - 1_000_000;
    let change =
        turn::ActiveModel { created_at: Set(long_ago), ended_at: Set(Some(long_ago)), ..Default::default() };
    let ended = turn::Entity::update_many().set(change).filter(turn::Column::State.is_not_null());
    ended.exec(stage.store.read()).await.unwrap();
    begin(&stage, &retry("one")).await;
}

async fn retry_in_another_thread_does_not_join(stage: Stage) {
    with_keys(&stage).await;
    let retry_in = |thread: &str| BeginTurn { is_retry: true, ..request_in(thread, "go on") };
    let first = begin(&stage, &request_in("a", "go on")).await;
    begin(&stage, &retry_in("b")).await;
    for thread in ["a", &first.thread_id] {
        let joined: BegunTurn = call(&stage, &retry_in(thread)).await;
        assert_eq!((joined.outcome, joined.turn.handoff_id), (BeginOutcome::Joined, first.handoff_id));
    }
}

/// A request in the thread `t` that follows a turn.
fn after(turn: &Turn, content: &str) -> BeginTurn {
    BeginTurn { follows: Some(turn.handoff_id), ..request_in("t", content) }
}

async fn request_follows_the_last_turn_of_its_thread_only(stage: Stage) {
    with_keys(&stage).await;
    let first = begin(&stage, &request_in("t", "one")).await;
    let busy: BegunTurn = call(&stage, &after(&first, "two")).await;
    assert_eq!((busy.outcome, busy.turn.handoff_id), (BeginOutcome::Busy, first.handoff_id));
    complete(&stage, &first, "1").await;
    let second = begin(&stage, &after(&first, "two")).await;
    assert_eq!(contents(&second.messages), ["one", "1", "two"]);
    let is_moved = async || {
        let moved: BegunTurn = call(&stage, &after(&first, "another two")).await;
        assert_eq!((moved.outcome, moved.turn.handoff_id), (BeginOutcome::Moved, second.handoff_id));
        assert_eq!((moved.lease, rows(&stage).await), (None, (1, 2)));
    };
    // While the thread is busy with the other turn, and afterwards.
    is_moved().await;
    complete(&stage, &second, "2").await;
    is_moved().await;
    // A retry joins what it repeats, although its thread has gone on.
    let joined: BegunTurn = call(&stage, &BeginTurn { is_retry: true, ..after(&first, "two") }).await;
    assert_eq!((joined.outcome, joined.turn.handoff_id), (BeginOutcome::Joined, second.handoff_id));
    let unnamed = BeginTurn { thread: None, ..after(&second, "three") };
    assert_eq!(fails(&stage, &unnamed).await.0, "invalid_arguments");
    let delete = Delete { user_id: "ada".parse().unwrap(), thread: "t".to_owned() };
    let _: Deleted = call(&stage, &delete).await;
    assert_eq!(fails(&stage, &after(&second, "three")).await.0, "conflict");
    assert_eq!(rows(&stage).await, (0, 0), "no thread is created for it");
}

async fn of_concurrent_requests_that_follow_a_turn_one_begins(stage: Stage) {
    with_keys(&stage).await;
    let first = begin(&stage, &request_in("t", "one")).await;
    complete(&stage, &first, "1").await;
    let requests: Vec<BeginTurn> = (0..8).map(|number| after(&first, &format!("two {number}"))).collect();
    let begun: Vec<BegunTurn> = join_all(requests.iter().map(|request| call(&stage, request))).await;
    let count = |outcome| begun.iter().filter(|begun| begun.outcome == outcome).count();
    assert_eq!((count(BeginOutcome::Begun), count(BeginOutcome::Moved)), (1, 7), "{begun:?}");
    assert_eq!(rows(&stage).await, (1, 2));
}

async fn message_after_a_question_continues_it(stage: Stage) {
    with_keys(&stage).await;
    let asked = begin(&stage, &request_in("t", "paint it")).await;
    assert!(end_as(&stage, asked.handoff_id, answer(AnswerState::Question, "Which colour?")).await);
    let answered = begin(&stage, &request_in("t", "red")).await;
    assert_eq!(answered.continues, Some(asked.handoff_id));
    assert_eq!(contents(&answered.messages), ["paint it", "Which colour?", "red"]);
    complete(&stage, &answered, "Done.").await;
    assert_eq!(begin(&stage, &request_in("t", "thanks")).await.continues, None);
    // Also if the client repeats the conversation and names no thread.
    let asked = begin(&stage, &request(vec![user("paint that")])).await;
    assert!(end_as(&stage, asked.handoff_id, answer(AnswerState::Question, "Which colour?")).await);
    let messages = vec![user("paint that"), assistant("Which colour?"), user("blue")];
    assert_eq!(begin(&stage, &request(messages)).await.continues, Some(asked.handoff_id));
}

async fn turn_that_cannot_be_answered_any_more_does_not_block(stage: Stage) {
    with_keys(&stage).await;
    let lost = begin(&stage, &request_in("t", "one")).await;
    let age = 7 * 24 * HOUR + 1;
    let change = turn::ActiveModel { created_at: Set(clock::now() - age), ..Default::default() };
    turn::Entity::update_many().set(change).exec(stage.store.read()).await.unwrap();
    let next = begin(&stage, &request_in("t", "two")).await;
    assert_eq!((&next.thread_id, next.position), (&lost.thread_id, 1));
    assert!(!end_as(&stage, lost.handoff_id, answer(AnswerState::Completed, "late")).await);
    let row = turn::Entity::find_by_id(lost.handoff_id.to_string()).one(stage.store.read()).await.unwrap();
    assert!(row.unwrap().answer.unwrap().contains("stale_handoff"));
}

async fn wrong_requests_are_refused(stage: Stage) {
    with_keys(&stage).await;
    let good = || request(vec![user("hi")]);
    for (wrong, code) in [
        (BeginTurn { messages: vec![user("hi"), assistant("ho")], ..good() }, "invalid_arguments"),
        (BeginTurn { body_hash: "00".to_owned(), ..good() }, "invalid_arguments"),
        (BeginTurn { body_hash: "A".repeat(64), ..good() }, "invalid_arguments"),
        (BeginTurn { thread: Some(" ".to_owned()), ..good() }, "invalid_arguments"),
        (BeginTurn { thread: Some("a\0b".to_owned()), ..good() }, "invalid_arguments"),
        (BeginTurn { thread: Some("x".repeat(257)), ..good() }, "too_large"),
        (BeginTurn { request_key: Some("x".repeat(257)), ..good() }, "too_large"),
        (BeginTurn { request_key: Some(String::new()), ..good() }, "invalid_arguments"),
        (BeginTurn { messages: vec![user(&"x".repeat(MAX_MESSAGES_BYTES))], ..good() }, "too_large"),
        (BeginTurn { messages: vec![user("x"); 2_001], ..good() }, "invalid_arguments"),
    ] {
        assert_eq!(fails(&stage, &wrong).await.0, code);
    }
    assert_eq!(rows(&stage).await, (0, 0));
    // Anything may be said, also what a database cannot store as text.
    let odd = "\0\u{1}\u{202e}\"\\ 日本";
    assert_eq!(contents(&begin(&stage, &request(vec![user(odd)])).await.messages), [odd]);
}

async fn key_that_is_not_valid_begins_nothing(stage: Stage) {
    with_keys(&stage).await;
    for (number, row) in [
        token::Model { revoked_at: Some(1), ..key("revoked", "ada") },
        token::Model { expires_at: clock::now() - 1, ..key("expired", "ada") },
        token::Model { agent: "admin".to_owned(), ..key("administrator", "ada") },
        token::Model { agent: "project_manager".to_owned(), ..key("manager", "ada") },
    ]
    .into_iter()
    .enumerate()
    {
        stage.given(token::Model { hash: format!("{number:064}"), ..row }).await;
    }
    for id in ["revoked", "expired", "administrator", "manager", "unknown"] {
        let request = BeginTurn { key_id: id.to_owned(), ..request(vec![user("hi")]) };
        assert_eq!(
            fails(&stage, &request).await,
            ("not_found".to_owned(), format!("API key {id} not found"))
        );
    }
    let stolen = BeginTurn { key_id: "key-eve-1".to_owned(), ..request(vec![user("hi")]) };
    assert_eq!(fails(&stage, &stolen).await.0, "invalid_arguments");
    assert_eq!(rows(&stage).await, (0, 0));
}

async fn front_end_names_its_users(stage: Stage) {
    with_keys(&stage).await;
    let of = |user_id: &str| BeginTurn {
        user_id: user_id.parse().unwrap(),
        key_id: "key-front-end".to_owned(),
        request_key: Some("message-1".to_owned()),
        is_retry: true,
        ..request_in("chat", "hi")
    };
    let (ada, eve) = (begin(&stage, &of("ada")).await, begin(&stage, &of("eve")).await);
    assert_eq!((ada.user_id.as_str(), eve.user_id.as_str()), ("ada", "eve"));
    assert_ne!(ada.thread_id, eve.thread_id);
    let unnamed = |user_id: &str| BeginTurn { request_key: None, ..of(user_id) };
    let joined: BegunTurn = call(&stage, &unnamed("ada")).await;
    assert_eq!(joined.turn.handoff_id, ada.handoff_id);
}

/// The same named request, the same retry, and different requests in one thread, each many times at once.
async fn concurrent_requests_make_one_turn(stage: Stage) {
    with_keys(&stage).await;
    let conversation: Vec<ChatMessage> = vec![user("a"), assistant("b"), user("c")];
    let named = |number: usize| BeginTurn {
        request_key: Some("r".to_owned()),
        // Half of them name a thread, which all of them would create.
        thread: number.is_multiple_of(2).then(|| "named".to_owned()),
        ..request(conversation.clone())
    };
    let retry = |_: usize| BeginTurn { is_retry: true, ..request(vec![user("retried")]) };
    let in_thread = |number: usize| request_in("t", &format!("message {number}"));
    for (what, make) in [
        ("named", Box::new(named) as Box<dyn Fn(usize) -> BeginTurn>),
        ("retry", Box::new(retry)),
        ("thread", Box::new(in_thread)),
    ] {
        let (threads, turns) = rows(&stage).await;
        let requests: Vec<BeginTurn> = (0..8).map(make).collect();
        let begun: Vec<BegunTurn> = join_all(requests.iter().map(|request| call(&stage, request))).await;
        let count = |outcome| begun.iter().filter(|begun| begun.outcome == outcome).count();
        let others = if what == "thread" { BeginOutcome::Busy } else { BeginOutcome::Joined };
        assert_eq!((count(BeginOutcome::Begun), count(others)), (1, 7), "{what}: {begun:?}");
        assert!(begun.iter().all(|it| it.turn.handoff_id == begun[0].turn.handoff_id), "{what}");
        assert_eq!(rows(&stage).await, (threads + 1, turns + 1), "{what}");
    }
}
