//! What is known of the requests that wait for a turn: who has its answer, who left, how many are open.

use contract::thread::{
    BeginOutcome, BeginTurn, BegunTurn, LeaveTurn, LeftTurn, MarkDelivered, MarkedDelivered, Turn,
};
use futures_util::future::join_all;
use sea_orm::{ActiveValue::Set, ColumnTrait, EntityTrait, QueryFilter};
use store::{clock, entity::turn};
use subjects::{HandoffId, Timestamp};

use super::{begin, call, complete, fails, request, request_in, user, with_keys};
use crate::stage::{Stage, on_both};

on_both![
    retry_does_not_join_a_request_whose_answer_was_delivered,
    retry_joins_an_open_turn_however_old,
    retry_joins_a_turn_that_ended_recently_however_old,
    request_joins_its_retry_that_overtook_it,
    turn_is_abandoned_when_all_its_requests_left,
    request_waits_once_however_often_its_calls_are_repeated,
    open_turns_of_a_key_are_limited,
    concurrent_requests_keep_the_limit_of_open_turns,
];

async fn mark_delivered(stage: &Stage, ids: &[HandoffId]) -> u64 {
    let marked: MarkedDelivered = call(stage, &MarkDelivered { handoff_ids: ids.to_vec() }).await;
    marked.marked
}

async fn retry_does_not_join_a_request_whose_answer_was_delivered(stage: Stage) {
    with_keys(&stage).await;
    let retry = || BeginTurn { is_retry: true, ..request(vec![user("go on")]) };
    let first = begin(&stage, &request(vec![user("go on")])).await;
    complete(&stage, &first, "done").await;
    assert_eq!(mark_delivered(&stage, &[first.handoff_id, HandoffId::now()]).await, 1);
    assert_eq!(mark_delivered(&stage, &[first.handoff_id]).await, 0);
    // The last bytes of the answer may be lost on their way.
    let joined: BegunTurn = call(&stage, &retry()).await;
    assert_eq!((joined.outcome, joined.turn.handoff_id), (BeginOutcome::Joined, first.handoff_id));
    let delivered_at = Set(Some(clock::now() - 31_000_000));
    let change = turn::ActiveModel { delivered_at, ..Default::default() };
    let update = turn::Entity::update_many().set(change);
    let update = update.filter(turn::Column::Id.eq(first.handoff_id.to_string()));
    update.exec(stage.store.read()).await.unwrap();
    let second = begin(&stage, &retry()).await;
    // Its own retry joins it.
    let joined: BegunTurn = call(&stage, &retry()).await;
    assert_eq!((joined.outcome, joined.turn.handoff_id), (BeginOutcome::Joined, second.handoff_id));
}

async fn retry_joins_an_open_turn_however_old(stage: Stage) {
    with_keys(&stage).await;
    stage.set_time("2026-01-01T10:00:00Z");
    let unnamed = begin(&stage, &request(vec![user("one")])).await;
    let named = begin(&stage, &request_in("t", "two")).await;
    for (time, is_joined) in [
        ("01T10:19:00", true),
        ("01T18:00:00", true),
        ("08T09:59:59", true),
        // They cannot be answered any more.
        ("08T10:00:01", false),
    ] {
        stage.set_time(&format!("2026-01-{time}Z"));
        for (turn, request) in [(&unnamed, request(vec![user("one")])), (&named, request_in("t", "two"))] {
            let again: BegunTurn = call(&stage, &BeginTurn { is_retry: true, ..request }).await;
            let expected = if is_joined { BeginOutcome::Joined } else { BeginOutcome::Begun };
            assert_eq!(again.outcome, expected, "{time}");
            assert_eq!(again.turn.handoff_id == turn.handoff_id, is_joined, "{time}");
        }
    }
}

async fn retry_joins_a_turn_that_ended_recently_however_old(stage: Stage) {
    with_keys(&stage).await;
    stage.set_time("2026-01-01T10:00:00Z");
    let retry = || BeginTurn { is_retry: true, ..request(vec![user("go on")]) };
    let first = begin(&stage, &request(vec![user("go on")])).await;
    stage.set_time("2026-01-01T12:00:00Z");
    complete(&stage, &first, "done").await;
    stage.set_time("2026-01-01T12:14:59Z");
    let joined: BegunTurn = call(&stage, &retry()).await;
    assert_eq!((joined.outcome, joined.turn.handoff_id), (BeginOutcome::Joined, first.handoff_id));
    stage.set_time("2026-01-01T12:15:01Z");
    assert_ne!(begin(&stage, &retry()).await.handoff_id, first.handoff_id);
}

/// A gateway stands still with a request, and its client repeats it at another one.
async fn request_joins_its_retry_that_overtook_it(stage: Stage) {
    with_keys(&stage).await;
    let first = |content: &str, received_at| BeginTurn {
        request_key: Some(format!("request-{}", HandoffId::now())),
        received_at: Some(received_at),
        ..request(vec![user(content)])
    };
    let at = |ago: i64| Timestamp::new(clock::from_micros(clock::now() - ago)).unwrap();
    let received_at = at(0);
    let retry = begin(&stage, &BeginTurn { is_retry: true, ..request(vec![user("go on")]) }).await;
    let joined: BegunTurn = call(&stage, &first("go on", received_at)).await;
    assert_eq!((joined.outcome, joined.turn.handoff_id), (BeginOutcome::Joined, retry.handoff_id));
    // Another text, and the same asked again later, are other requests.
    begin(&stage, &first("stop", at(0))).await;
    begin(&stage, &first("go on", at(-10_000_000))).await;
    // A first request never joins another first one.
    begin(&stage, &first("wait", at(0))).await;
    begin(&stage, &first("wait", at(1_000_000))).await;
}

async fn is_abandoned(stage: &Stage, turn: &Turn) -> bool {
    let left: LeftTurn = call(stage, &leave(turn, None)).await;
    left.is_abandoned
}

fn leave(turn: &Turn, wait: Option<&str>) -> LeaveTurn {
    LeaveTurn { handoff_id: turn.handoff_id, wait_id: wait.map(str::to_owned), cancel: false }
}

async fn turn_is_abandoned_when_all_its_requests_left(stage: Stage) {
    with_keys(&stage).await;
    let named = BeginTurn { request_key: Some("one".to_owned()), ..request(vec![user("one")]) };
    let first = begin(&stage, &named).await;
    let joined: BegunTurn = call(&stage, &named).await;
    assert_eq!(joined.outcome, BeginOutcome::Joined);
    assert!(!is_abandoned(&stage, &first).await, "the other one waits");
    assert!(is_abandoned(&stage, &first).await);
    // It is not if it is joined again, or answered.
    let _: BegunTurn = call(&stage, &named).await;
    let _: BegunTurn = call(&stage, &named).await;
    assert!(!is_abandoned(&stage, &first).await);
    complete(&stage, &first, "1").await;
    assert!(!is_abandoned(&stage, &first).await);
    let unknown = LeaveTurn { handoff_id: HandoffId::now(), wait_id: None, cancel: true };
    let unknown: LeftTurn = call(&stage, &unknown).await;
    assert!(!unknown.is_abandoned);
}

/// The gateway's answers to a begin or a leave may be lost, and a begin may come late.
async fn request_waits_once_however_often_its_calls_are_repeated(stage: Stage) {
    with_keys(&stage).await;
    let with_wait = |wait: Option<&str>| BeginTurn {
        request_key: Some("one".to_owned()),
        wait_id: wait.map(str::to_owned),
        ..request(vec![user("one")])
    };
    let join = async |wait: Option<&str>| {
        let joined: BegunTurn = call(&stage, &with_wait(wait)).await;
        assert_eq!(joined.outcome, BeginOutcome::Joined);
    };
    let turn = begin(&stage, &with_wait(Some("wait-1"))).await;
    let is_abandoned_after = async |wait: Option<&str>| {
        let left: LeftTurn = call(&stage, &leave(&turn, wait)).await;
        left.is_abandoned
    };
    join(Some("wait-1")).await;
    join(Some("wait-2")).await;
    assert!(!is_abandoned_after(Some("wait-2")).await, "the first one waits");
    assert!(!is_abandoned_after(Some("wait-2")).await, "it left once");
    assert!(is_abandoned_after(Some("wait-1")).await);
    join(Some("wait-1")).await;
    assert!(is_abandoned_after(Some("wait-2")).await, "a begin that comes late is no new wait");
    // The requests of an orchestrator of an earlier build count besides.
    join(Some("wait-3")).await;
    join(None).await;
    assert!(!is_abandoned_after(Some("wait-3")).await);
    assert!(is_abandoned_after(None).await);
    let wrong = fails(&stage, &with_wait(Some(&"x".repeat(65)))).await;
    assert_eq!(wrong.0, "too_large");
}

async fn open_turns_of_a_key_are_limited(stage: Stage) {
    with_keys(&stage).await;
    let limited = |thread: &str| BeginTurn { max_open: Some(2), ..request_in(thread, "go on") };
    let first = begin(&stage, &limited("a")).await;
    begin(&stage, &limited("b")).await;
    let refused: BegunTurn = call(&stage, &limited("c")).await;
    assert_eq!((refused.outcome, refused.turn.handoff_id), (BeginOutcome::TooManyOpen, first.handoff_id));
    // A retry of an open turn is no new one, and other keys have limits of their own.
    let joined: BegunTurn = call(&stage, &BeginTurn { is_retry: true, ..limited("a") }).await;
    assert_eq!(joined.outcome, BeginOutcome::Joined);
    let of_eve =
        BeginTurn { user_id: "eve".parse().unwrap(), key_id: "key-eve-1".to_owned(), ..limited("a") };
    begin(&stage, &of_eve).await;
    complete(&stage, &first, "done").await;
    begin(&stage, &limited("c")).await;
}

async fn concurrent_requests_keep_the_limit_of_open_turns(stage: Stage) {
    with_keys(&stage).await;
    let requests: Vec<BeginTurn> = (0..12)
        .map(|at| BeginTurn { max_open: Some(3), ..request_in(&format!("thread-{at}"), "go on") })
        .collect();
    let begun: Vec<BegunTurn> = join_all(requests.iter().map(|request| call(&stage, request))).await;
    let count = |outcome| begun.iter().filter(|begun| begun.outcome == outcome).count();
    assert_eq!((count(BeginOutcome::Begun), count(BeginOutcome::TooManyOpen)), (3, 9));
}
