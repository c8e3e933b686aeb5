//! What becomes of turns and threads: published, ended, read, renamed, deleted; and the check of API keys.

use contract::{
    Page,
    key::{Check, Checked, OnDisconnect},
    thread::{
        AnswerState, BeginOutcome, BeginTurn, BegunTurn, Delete, Deleted, Get, GetTurn, List, ListMessages,
        ListUnsent, MAX_ANSWER_BYTES, MAX_MESSAGES_BYTES, MarkSent, MarkedSent, Rename, Thread,
        ThreadMessage, Turn, TurnOptions, Unsent,
    },
};
use policy::Lease;
use sea_orm::{ActiveValue::Set, EntityTrait, PaginatorTrait};
use store::{
    clock,
    entity::{lease, project, thread, token, turn},
};
use subjects::{ChatRole, HandoffId};

use super::{
    HOUR, answer, assistant, begin, call, complete, end_as, fails, key, request, request_in, user, with_keys,
};
use crate::stage::{Stage, on_both};

on_both![
    unsent_turns_are_listed_until_they_are_sent_or_ended,
    sent_turns_without_an_answer_are_listed_again,
    turn_that_is_listed_again_has_the_same_lease,
    turn_without_a_lease_fails_and_keeps_no_other_from_being_listed,
    retry_of_a_turn_without_a_lease_gets_its_failure,
    large_unsent_turns_come_in_several_lists,
    turn_is_ended_once,
    long_answer_is_kept_as_far_as_it_fits,
    messages_are_what_was_said_in_order,
    messages_come_in_pages_of_whole_turns,
    threads_are_listed_by_their_last_change,
    thread_is_renamed,
    deleted_thread_is_gone_with_its_turns,
    key_is_checked_by_its_hash,
];

async fn unsent(stage: &Stage, older_than_seconds: u64, limit: u64) -> Vec<HandoffId> {
    let unsent: Unsent = call(stage, &ListUnsent { older_than_seconds, limit }).await;
    for it in &unsent.turns {
        let lease = Lease::read(&it.lease).unwrap();
        assert_eq!(lease.handoff_id, Some(it.turn.handoff_id.to_string()));
    }
    unsent.turns.into_iter().map(|it| it.turn.handoff_id).collect()
}

async fn unsent_turns_are_listed_until_they_are_sent_or_ended(stage: Stage) {
    with_keys(&stage).await;
    let mut ids = Vec::new();
    for content in ["one", "two", "three"] {
        ids.push(begin(&stage, &request(vec![user(content)])).await.handoff_id);
    }
    assert_eq!(unsent(&stage, 60, 50).await, [], "they are new");
    assert_eq!(unsent(&stage, 0, 50).await, ids, "the oldest first");
    assert_eq!(unsent(&stage, 0, 2).await, ids[..2]);
    let unknown = HandoffId::now();
    let mark = MarkSent { handoff_ids: vec![ids[0], unknown, ids[0]] };
    let marked: MarkedSent = call(&stage, &mark).await;
    assert_eq!(marked.marked, 1);
    let marked: MarkedSent = call(&stage, &mark).await;
    assert_eq!(marked.marked, 0);
    assert_eq!(unsent(&stage, 0, 50).await, ids[1..]);
    // An answer says that the handoff was published.
    assert!(end_as(&stage, ids[1], answer(AnswerState::Completed, "2")).await);
    assert_eq!(unsent(&stage, 0, 50).await, ids[2..]);
    // Published too late, the handoff would be refused.
    let change =
        turn::ActiveModel { unsent_since: Set(Some(clock::now() - 8 * 24 * HOUR)), ..Default::default() };
    turn::Entity::update_many().set(change).exec(stage.store.read()).await.unwrap();
    assert_eq!(unsent(&stage, 0, 50).await, []);
    let none = MarkSent { handoff_ids: vec![unknown; 201] };
    assert_eq!(fails(&stage, &none).await.0, "invalid_arguments");
    let sent: Turn = call(&stage, &GetTurn { user_id: "ada".parse().unwrap(), handoff_id: ids[0] }).await;
    assert!(sent.sent_at.is_some());
}

/// As after a restore of streams to a moment before the turn was published.
async fn sent_turns_without_an_answer_are_listed_again(stage: Stage) {
    with_keys(&stage).await;
    stage.set_time("2026-01-01T10:00:00Z");
    let slow = begin(&stage, &request(vec![user("one")])).await.handoff_id;
    let answered = begin(&stage, &request(vec![user("two")])).await.handoff_id;
    let mark = MarkSent { handoff_ids: vec![slow, answered] };
    let marked: MarkedSent = call(&stage, &mark).await;
    assert_eq!(marked.marked, 2);
    assert!(end_as(&stage, answered, answer(AnswerState::Completed, "2")).await);
    for (time, is_listed) in [
        ("10:04:59", false),
        ("10:05:00", true),
        ("10:05:10", false),
        ("10:09:59", false),
        ("10:10:00", true),
        ("10:19:59", false),
        ("10:20:00", true),
    ] {
        stage.set_time(&format!("2026-01-01T{time}Z"));
        let expected = if is_listed { vec![slow] } else { Vec::new() };
        assert_eq!(unsent(&stage, 0, 50).await, expected, "{time}");
    }
    let marked: MarkedSent = call(&stage, &mark).await;
    assert_eq!(marked.marked, 0);
    let sent: Turn = call(&stage, &GetTurn { user_id: "ada".parse().unwrap(), handoff_id: slow }).await;
    assert_eq!(sent.sent_at.as_deref(), Some("2026-01-01T10:20:00Z"));
    assert_eq!(unsent(&stage, 0, 50).await, []);
    // Published so late, the handoff would be refused.
    stage.set_time("2026-01-08T10:00:00Z");
    assert_eq!(unsent(&stage, 0, 50).await, []);
}

/// Such as while the queue refuses its handoff.
async fn turn_that_is_listed_again_has_the_same_lease(stage: Stage) {
    with_keys(&stage).await;
    begin(&stage, &request_in("a", "one")).await;
    let listed_lease = async || {
        let unsent: Unsent = call(&stage, &ListUnsent { older_than_seconds: 0, limit: 50 }).await;
        Lease::read(&unsent.turns[0].lease).unwrap().lease_id
    };
    let change_all = async |change: lease::ActiveModel| {
        lease::Entity::update_many().set(change).exec(stage.store.read()).await.unwrap();
    };
    let first = listed_lease().await;
    assert_eq!(listed_lease().await, first);
    assert_eq!(lease::Entity::find().count(stage.store.read()).await.unwrap(), 1);
    // It can be renewed also after it has expired, but not for long any more.
    let renewable_until = Set(clock::of_leases() + HOUR);
    change_all(lease::ActiveModel { renewable_until, ..Default::default() }).await;
    let second = listed_lease().await;
    assert_ne!(second, first);
    change_all(lease::ActiveModel { revoked_at: Set(Some(clock::now())), ..Default::default() }).await;
    let third = listed_lease().await;
    assert!(third != second && third != first);
    assert_eq!(listed_lease().await, third);
}

/// Begins two turns of Ada in the threads `a` and `b`, the first for a project that is given to Eve then.
async fn begin_for_a_lost_project(stage: &Stage) -> (BeginTurn, [Turn; 2]) {
    with_keys(stage).await;
    let row = project::Model {
        id: "project-1".to_owned(),
        name: "shop".to_owned(),
        title: "Shop".to_owned(),
        description: String::new(),
        user_id: Some("ada".to_owned()),
        created_at: 1,
        updated_at: 1,
    };
    stage.given(row).await;
    let options = TurnOptions { project_id: Some("project-1".parse().unwrap()), ..TurnOptions::default() };
    let request = BeginTurn { options, ..request_in("a", "one") };
    let turns = [begin(stage, &request).await, begin(stage, &request_in("b", "two")).await];
    let given_away = project::ActiveModel { user_id: Set(Some("eve".to_owned())), ..Default::default() };
    project::Entity::update_many().set(given_away).exec(stage.store.read()).await.unwrap();
    (request, turns)
}

async fn turn_without_a_lease_fails_and_keeps_no_other_from_being_listed(stage: Stage) {
    let (_, [refused, other]) = begin_for_a_lost_project(&stage).await;
    assert_eq!(unsent(&stage, 0, 1).await, [], "it has failed");
    assert_eq!(unsent(&stage, 0, 1).await, [other.handoff_id]);
    let get = GetTurn { user_id: "ada".parse().unwrap(), handoff_id: refused.handoff_id };
    let failed: Turn = call(&stage, &get).await;
    let answer = failed.answer.unwrap();
    assert_eq!((answer.state, answer.error_code.as_deref()), (AnswerState::Failed, Some("scope_mismatch")));
    assert!(answer.text.contains("the project belongs to a user other than"), "{}", answer.text);
    // Its thread takes the next request.
    begin(&stage, &request_in("a", "three")).await;
}

async fn retry_of_a_turn_without_a_lease_gets_its_failure(stage: Stage) {
    let (request, [refused, _]) = begin_for_a_lost_project(&stage).await;
    let joined: BegunTurn = call(&stage, &BeginTurn { is_retry: true, ..request }).await;
    assert_eq!((joined.outcome, joined.turn.handoff_id), (BeginOutcome::Joined, refused.handoff_id));
    assert_eq!(joined.turn.answer.map(|answer| answer.state), Some(AnswerState::Failed));
    assert_eq!(joined.lease, None);
}

async fn large_unsent_turns_come_in_several_lists(stage: Stage) {
    with_keys(&stage).await;
    let mut ids = Vec::new();
    for number in 0..4 {
        let content = format!("{number}{}", "x".repeat(MAX_MESSAGES_BYTES / 2 - 1_000));
        ids.push(begin(&stage, &request(vec![user(&content)])).await.handoff_id);
    }
    assert_eq!(unsent(&stage, 0, 50).await, ids[..2]);
}

async fn turn_is_ended_once(stage: Stage) {
    with_keys(&stage).await;
    let turn = begin(&stage, &request_in("t", "one")).await;
    let given = answer(AnswerState::Completed, "1");
    assert!(end_as(&stage, turn.handoff_id, given.clone()).await);
    assert!(!end_as(&stage, turn.handoff_id, answer(AnswerState::Failed, "another")).await);
    let ended: Turn =
        call(&stage, &GetTurn { user_id: "ada".parse().unwrap(), handoff_id: turn.handoff_id }).await;
    assert_eq!(ended.answer, Some(given));
    assert!(!end_as(&stage, HandoffId::now(), answer(AnswerState::Completed, "of none")).await);
    // An answer that comes again does not end the next turn.
    let next = begin(&stage, &request_in("t", "two")).await;
    assert!(!end_as(&stage, turn.handoff_id, answer(AnswerState::Question, "again?")).await);
    let thread: Thread = call(&stage, &Get { user_id: "ada".parse().unwrap(), thread: "t".to_owned() }).await;
    assert_eq!((thread.open_turn, thread.open_question), (Some(next.handoff_id), None));
}

async fn long_answer_is_kept_as_far_as_it_fits(stage: Stage) {
    with_keys(&stage).await;
    let turn = begin(&stage, &request(vec![user("go")])).await;
    complete(&stage, &turn, &"é".repeat(MAX_ANSWER_BYTES)).await;
    let ended: Turn =
        call(&stage, &GetTurn { user_id: "ada".parse().unwrap(), handoff_id: turn.handoff_id }).await;
    let kept = ended.answer.unwrap();
    assert!(kept.is_cut && kept.text.len() == MAX_ANSWER_BYTES, "{}", kept.text.len());
}

async fn messages(
    stage: &Stage,
    thread: &str,
    limit: Option<u64>,
    cursor: Option<String>,
) -> Page<ThreadMessage> {
    let (user_id, thread) = ("ada".parse().unwrap(), thread.to_owned());
    call(stage, &ListMessages { user_id, thread, limit, cursor }).await
}

async fn messages_are_what_was_said_in_order(stage: Stage) {
    with_keys(&stage).await;
    let named = |messages| BeginTurn { thread: Some("t".to_owned()), ..request(messages) };
    let imported = vec![user("a"), assistant("b"), user("c")];
    let first = begin(&stage, &named(imported.clone())).await;
    complete(&stage, &first, "d").await;
    let failed = begin(&stage, &named([imported, vec![assistant("d"), user("e")]].concat())).await;
    assert!(end_as(&stage, failed.handoff_id, answer(AnswerState::Failed, "broken")).await);
    begin(&stage, &named(vec![user("a"), assistant("d"), user("e"), user("f"), user("g")])).await;
    let page = messages(&stage, "t", None, None).await;
    let said: Vec<_> = page.items.iter().map(|it| (it.role, it.content.as_str(), it.state)).collect();
    let (by_user, by_manager) = (ChatRole::User, ChatRole::Assistant);
    assert_eq!(
        said,
        [
            (by_user, "a", None),
            (by_manager, "b", None),
            (by_user, "c", None),
            (by_manager, "d", Some(AnswerState::Completed)),
            (by_user, "e", None),
            (by_manager, "broken", Some(AnswerState::Failed)),
            (by_user, "f", None),
            (by_user, "g", None),
        ]
    );
    assert_eq!(page.next_cursor, None);
    assert_eq!(page.items[3].handoff_id, first.handoff_id);
}

async fn messages_come_in_pages_of_whole_turns(stage: Stage) {
    with_keys(&stage).await;
    for number in 0..25 {
        let turn = begin(&stage, &request_in("t", &format!("q{number}"))).await;
        let answer = if number == 20 { "x".repeat(300 * 1024) } else { format!("a{number}") };
        complete(&stage, &turn, &answer).await;
    }
    let (mut found, mut pages, mut cursor) = (Vec::new(), Vec::new(), None);
    loop {
        let page = messages(&stage, "t", Some(5), cursor).await;
        pages.push(page.items.len());
        found.extend(page.items.into_iter().map(|it| it.content));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert!(pages.iter().all(|items| items.is_multiple_of(2)), "{pages:?}");
    assert_eq!(found.len(), 50, "{pages:?}");
    assert_eq!((found[0].as_str(), found[38].as_str(), found[49].as_str()), ("q0", "q19", "a24"));
    let whole = messages(&stage, "t", Some(200), None).await;
    assert_eq!((whole.items.len(), whole.next_cursor.as_deref()), (40, Some("20")), "a page is bounded");
}

async fn threads(stage: &Stage, limit: Option<u64>, cursor: Option<String>) -> Page<Thread> {
    call(stage, &List { user_id: "ada".parse().unwrap(), limit, cursor }).await
}

async fn threads_are_listed_by_their_last_change(stage: Stage) {
    with_keys(&stage).await;
    assert!(threads(&stage, None, None).await.items.is_empty());
    let mut turns = Vec::new();
    for name in ["a", "b", "c"] {
        turns.push(begin(&stage, &request_in(name, &format!("about {name}"))).await);
    }
    complete(&stage, &turns[0], "1").await;
    let names = |page: &Page<Thread>| -> Vec<String> {
        page.items.iter().map(|thread| thread.name.clone().unwrap()).collect()
    };
    let first = threads(&stage, Some(2), None).await;
    assert_eq!(names(&first), ["a", "c"]);
    let rest = threads(&stage, Some(2), first.next_cursor).await;
    assert_eq!((names(&rest), rest.next_cursor), (vec!["b".to_owned()], None));
    let thread = &first.items[0];
    assert_eq!((thread.title.as_str(), thread.turns, thread.open_turn), ("about a", 1, None));
    assert_eq!(thread.user_id, "ada");
    assert!(thread.updated_at > thread.created_at);
    assert_eq!(first.items[1].open_turn, Some(turns[2].handoff_id));
}

async fn thread_is_renamed(stage: Stage) {
    with_keys(&stage).await;
    let turn = begin(&stage, &request_in("t", "one")).await;
    let rename = |thread: &str, title: &str| Rename {
        user_id: "ada".parse().unwrap(),
        thread: thread.to_owned(),
        title: title.to_owned(),
    };
    for thread in ["t", &turn.thread_id] {
        let renamed: Thread = call(&stage, &rename(thread, &format!("as {thread}"))).await;
        assert_eq!((renamed.title, renamed.open_turn), (format!("as {thread}"), Some(turn.handoff_id)));
    }
    for wrong in ["", "a\0b"] {
        assert_eq!(fails(&stage, &rename("t", wrong)).await.0, "invalid_arguments");
    }
    assert_eq!(fails(&stage, &rename("t", &"x".repeat(257))).await.0, "too_large");
    assert_eq!(fails(&stage, &rename("u", "x")).await, ("not_found".into(), "thread u not found".into()));
}

async fn deleted_thread_is_gone_with_its_turns(stage: Stage) {
    with_keys(&stage).await;
    let kept = begin(&stage, &request_in("kept", "one")).await;
    let first = begin(&stage, &request_in("t", "one")).await;
    complete(&stage, &first, "1").await;
    let open = begin(&stage, &request_in("t", "two")).await;
    let delete = Delete { user_id: "ada".parse().unwrap(), thread: "t".to_owned() };
    let deleted: Deleted = call(&stage, &delete).await;
    assert_eq!((deleted.thread_id, deleted.open_turn), (first.thread_id.clone(), Some(open.handoff_id)));
    assert_eq!(fails(&stage, &delete).await.0, "not_found");
    let db = stage.store.read();
    let turns: Vec<String> =
        turn::Entity::find().all(db).await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(turns, [kept.handoff_id.to_string()]);
    assert_eq!(thread::Entity::find().all(db).await.unwrap().len(), 1);
    // A late answer has no place any more, and the name can be used again.
    assert!(!end_as(&stage, open.handoff_id, answer(AnswerState::Completed, "2")).await);
    let again: BegunTurn = call(&stage, &request_in("t", "three")).await;
    assert_eq!((again.outcome, again.turn.position), (BeginOutcome::Begun, 0));
}

async fn key_is_checked_by_its_hash(stage: Stage) {
    let hash = |digit: &str| digit.repeat(64);
    let good = token::Model { hash: hash("a"), ..key("good", "ada") };
    for row in [
        good.clone(),
        token::Model {
            hash: hash("b"),
            is_front_end: true,
            on_disconnect: "cancel".to_owned(),
            ..key("front-end", "web")
        },
        token::Model { hash: hash("c"), revoked_at: Some(1), ..key("revoked", "ada") },
        token::Model { hash: hash("d"), expires_at: clock::now(), ..key("expired", "ada") },
        token::Model { hash: hash("e"), agent: "admin".to_owned(), user_id: None, ..key("admin", "ada") },
        token::Model { hash: hash("f"), agent: "sandbox".to_owned(), ..key("sandbox", "ada") },
    ] {
        stage.given(row).await;
    }
    let checked: Checked = call(&stage, &Check { hash: hash("a") }).await;
    let key = checked.key.unwrap();
    assert_eq!((key.key_id.as_str(), key.user_id.as_str(), key.is_front_end), ("good", "ada", false));
    assert_eq!((key.on_disconnect, key.expires_at), (OnDisconnect::Continue, clock::text(good.expires_at)));
    let checked: Checked = call(&stage, &Check { hash: hash("b") }).await;
    let key = checked.key.unwrap();
    assert_eq!((key.is_front_end, key.on_disconnect), (true, OnDisconnect::Cancel));
    for digit in ["c", "d", "e", "f", "0"] {
        let checked: Checked = call(&stage, &Check { hash: hash(digit) }).await;
        assert_eq!(checked.key, None, "{digit}");
    }
    for wrong in ["", "a", &hash("A"), &hash("g"), &"a".repeat(65)] {
        assert_eq!(fails(&stage, &Check { hash: wrong.to_owned() }).await.0, "invalid_arguments");
    }
}
