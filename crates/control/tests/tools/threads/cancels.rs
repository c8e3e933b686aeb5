//! Cancels of turns: stored, and listed again and again until the turn has its answer.

use contract::thread::{
    AnswerState, BeginOutcome, BeginTurn, BegunTurn, CancelTurn, CancelledTurn, Delete, Deleted, DueCancel,
    EndTurn, EndedTurn, GetTurn, LeaveTurn, LeftTurn, ListUnsent, MarkSent, MarkedSent, Turn, TurnAnswer,
    Unsent,
};
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};
use serde_json::json;
use store::entity::{lease, outbox, turn_cancel};
use subjects::HandoffId;

use super::{answer, begin, call, end_as, fails, request_in, with_keys};
use crate::{
    sandbox::{is_to_end, job_under, manager_under, task},
    stage::{Stage, on_both},
};

on_both![
    cancelled_turn_has_no_lease_and_is_due_until_it_is_answered,
    jobs_of_a_cancelled_turn_are_cancelled,
    answered_turn_has_no_lease_unless_it_failed,
    turn_that_is_cancelled_before_it_was_sent_ends_and_stays_due,
    turn_of_a_deleted_thread_is_due_until_its_late_answer,
    abandoned_turn_is_cancelled_if_that_is_wanted,
    turn_that_ends_although_a_worker_may_have_it_is_cancelled,
    cancel_outlives_an_end_that_no_worker_gave,
    cancel_is_forgotten_when_its_turn_cannot_be_answered_any_more,
    open_turns_end_when_they_cannot_be_answered_any_more,
    cancel_revokes_many_leases_and_those_under_them,
];

fn cancel_of(user: &str, id: HandoffId) -> CancelTurn {
    CancelTurn { user_id: user.parse().unwrap(), handoff_id: id }
}

/// Cancels a turn of Ada. Returns whether it is open.
async fn cancel(stage: &Stage, id: HandoffId) -> bool {
    let cancelled: CancelledTurn = call(stage, &cancel_of("ada", id)).await;
    cancelled.is_open
}

/// Begins a turn in a thread and marks it as sent.
async fn begin_sent(stage: &Stage, thread: &str) -> HandoffId {
    let id = begin(stage, &request_in(thread, "go on")).await.handoff_id;
    let marked: MarkedSent = call(stage, &MarkSent { handoff_ids: vec![id] }).await;
    assert_eq!(marked.marked, 1);
    id
}

async fn listed(stage: &Stage) -> Unsent {
    call(stage, &ListUnsent { older_than_seconds: 0, limit: 50 }).await
}

/// Returns the handoffs of the cancels that are due at a time.
async fn due_at(stage: &Stage, time: &str) -> Vec<HandoffId> {
    stage.set_time(&format!("2026-01-{time}Z"));
    listed(stage).await.cancels.into_iter().map(|cancel| cancel.handoff_id).collect()
}

async fn valid_leases(stage: &Stage, id: HandoffId) -> u64 {
    let of_handoff = lease::Entity::find().filter(lease::Column::HandoffId.eq(id.to_string()));
    of_handoff.filter(lease::Column::RevokedAt.is_null()).count(stage.store.read()).await.unwrap()
}

async fn cancelled_turn_has_no_lease_and_is_due_until_it_is_answered(stage: Stage) {
    with_keys(&stage).await;
    stage.set_time("2026-01-01T10:00:00Z");
    let (id, other) = (begin_sent(&stage, "a").await, begin_sent(&stage, "b").await);
    assert_eq!((valid_leases(&stage, id).await, valid_leases(&stage, other).await), (1, 1));
    assert_eq!(fails(&stage, &cancel_of("eve", id)).await.0, "not_found");
    assert!(cancel(&stage, id).await);
    assert!(cancel(&stage, id).await, "it is still open");
    assert_eq!((valid_leases(&stage, id).await, valid_leases(&stage, other).await), (0, 1));
    let sent_at = Some("2026-01-01T10:00:00Z".to_owned());
    assert_eq!(listed(&stage).await.cancels, [DueCancel { handoff_id: id, sent_at }]);
    // A retry of its request waits for its end.
    let retry = BeginTurn { is_retry: true, ..request_in("a", "go on") };
    let joined: BegunTurn = call(&stage, &retry).await;
    assert_eq!((joined.outcome, joined.turn.handoff_id), (BeginOutcome::Joined, id));
    assert_eq!((joined.lease, valid_leases(&stage, id).await), (None, 0));
    assert_eq!(due_at(&stage, "01T10:00:04").await, []);
    assert_eq!(due_at(&stage, "01T10:00:05").await, [id]);
    // It is not handed off again, and is still cancelled.
    stage.set_time("2026-01-01T10:20:00Z");
    let unsent = listed(&stage).await;
    assert_eq!(unsent.turns.iter().map(|it| it.turn.handoff_id).collect::<Vec<_>>(), [other]);
    assert_eq!((unsent.cancels.len(), unsent.cancels[0].handoff_id), (1, id));
    assert_eq!(due_at(&stage, "01T10:20:30").await, [], "the pauses grow");
    assert_eq!(due_at(&stage, "01T10:30:00").await, [id]);
    // A worker whose lease was refused before it heard of the cancel.
    assert!(end_as(&stage, id, answer(AnswerState::Failed, "lease revoked")).await);
    let ended: Turn = call(&stage, &GetTurn { user_id: "ada".parse().unwrap(), handoff_id: id }).await;
    let ended = ended.answer.unwrap();
    assert_eq!((ended.state, ended.error_code.as_deref()), (AnswerState::Cancelled, Some("cancelled")));
    assert_eq!(due_at(&stage, "01T11:00:00").await, []);
    assert!(!cancel(&stage, id).await);
    assert_eq!(due_at(&stage, "01T12:00:00").await, []);
    assert_eq!(valid_leases(&stage, id).await, 0);
}

async fn jobs_of_a_cancelled_turn_are_cancelled(stage: Stage) {
    with_keys(&stage).await;
    let begin_with_job = async |thread: &str| {
        let begun: BegunTurn = call(&stage, &request_in(thread, "go on")).await;
        (begun.turn.handoff_id, job_under(&stage, &begun.lease.unwrap()).await)
    };
    let ((id, job), (_, other)) = (begin_with_job("a").await, begin_with_job("b").await);
    assert!(cancel(&stage, id).await);
    assert_eq!((is_to_end(&stage, &job).await, is_to_end(&stage, &other).await), (true, false));
}

/// Those that its retries got end too; that of a verification is its analyst's, and its job goes on.
async fn answered_turn_has_no_lease_unless_it_failed(stage: Stage) {
    with_keys(&stage).await;
    for (thread, state, leases) in
        [("a", AnswerState::Completed, 0), ("b", AnswerState::Question, 0), ("c", AnswerState::Failed, 1)]
    {
        let begun: BegunTurn = call(&stage, &request_in(thread, "go on")).await;
        let (id, lease) = (begun.turn.handoff_id, begun.lease.unwrap());
        let retry = BeginTurn { is_retry: true, ..request_in(thread, "go on") };
        let _: BegunTurn = call(&stage, &retry).await;
        let job = job_under(&stage, &lease).await;
        let verification = HandoffId::now();
        let child = json!({
            "agent": "project_analyst", "task_id": task(&stage).await, "handoff_id": verification,
        });
        stage.call(&manager_under(&lease), "lease.issue", child).await.unwrap();
        assert!(end_as(&stage, id, answer(state, "done")).await);
        assert_eq!(valid_leases(&stage, id).await.min(1), leases, "{state:?}");
        assert_eq!(valid_leases(&stage, verification).await, 1, "{state:?}");
        assert!(!is_to_end(&stage, &job).await);
    }
}

/// Its handoff may be published all the same, by an orchestrator that died before it could mark it.
async fn turn_that_is_cancelled_before_it_was_sent_ends_and_stays_due(stage: Stage) {
    with_keys(&stage).await;
    stage.set_time("2026-01-01T10:00:00Z");
    let id = begin(&stage, &request_in("a", "go on")).await.handoff_id;
    assert!(cancel(&stage, id).await);
    let unsent = listed(&stage).await;
    assert!(unsent.turns.is_empty(), "{unsent:?}");
    assert_eq!(unsent.cancels, [DueCancel { handoff_id: id, sent_at: None }]);
    let ended: Turn = call(&stage, &GetTurn { user_id: "ada".parse().unwrap(), handoff_id: id }).await;
    let ended = ended.answer.unwrap();
    assert_eq!((ended.state, ended.error_code.as_deref()), (AnswerState::Cancelled, Some("cancelled")));
    begin(&stage, &request_in("a", "another")).await;
    assert_eq!(due_at(&stage, "01T10:00:05").await, [id]);
    assert!(!end_as(&stage, id, answer(AnswerState::Completed, "late")).await);
    assert_eq!(due_at(&stage, "01T11:00:00").await, []);
}

async fn turn_of_a_deleted_thread_is_due_until_its_late_answer(stage: Stage) {
    with_keys(&stage).await;
    stage.set_time("2026-01-01T10:00:00Z");
    let id = begin_sent(&stage, "a").await;
    let delete = Delete { user_id: "ada".parse().unwrap(), thread: "a".to_owned() };
    let deleted: Deleted = call(&stage, &delete).await;
    assert_eq!(deleted.open_turn, Some(id));
    assert_eq!(valid_leases(&stage, id).await, 0);
    assert_eq!(listed(&stage).await.cancels, [DueCancel { handoff_id: id, sent_at: None }]);
    assert_eq!(due_at(&stage, "01T10:00:05").await, [id]);
    assert!(!end_as(&stage, id, answer(AnswerState::Cancelled, "cancelled by request")).await);
    assert_eq!(due_at(&stage, "01T11:00:00").await, []);
}

async fn abandoned_turn_is_cancelled_if_that_is_wanted(stage: Stage) {
    with_keys(&stage).await;
    stage.set_time("2026-01-01T10:00:00Z");
    let (id, kept) = (begin_sent(&stage, "a").await, begin_sent(&stage, "b").await);
    let retry = BeginTurn { is_retry: true, ..request_in("a", "go on") };
    let _: BegunTurn = call(&stage, &retry).await;
    let leave = LeaveTurn { handoff_id: id, wait_id: None, cancel: true };
    let left: LeftTurn = call(&stage, &leave).await;
    assert!(!left.is_abandoned, "another request waits");
    let stay = LeaveTurn { handoff_id: kept, wait_id: None, cancel: false };
    let left: LeftTurn = call(&stage, &stay).await;
    assert!(left.is_abandoned);
    assert!(listed(&stage).await.cancels.is_empty());
    let left: LeftTurn = call(&stage, &leave).await;
    assert!(left.is_abandoned);
    assert_eq!(due_at(&stage, "01T10:00:00").await, [id]);
    assert_eq!((valid_leases(&stage, id).await, valid_leases(&stage, kept).await), (0, 1));
}

/// Ends a turn that no worker answers, as far as an orchestrator knows. Returns whether it was open.
async fn end_unanswered(stage: &Stage, id: HandoffId, answer: TurnAnswer) -> bool {
    let ended: EndedTurn = call(stage, &EndTurn { handoff_id: id, answer, is_work_over: false }).await;
    ended.ended
}

async fn answer_of(stage: &Stage, id: HandoffId) -> TurnAnswer {
    let turn: Turn = call(stage, &GetTurn { user_id: "ada".parse().unwrap(), handoff_id: id }).await;
    turn.answer.unwrap()
}

async fn turn_that_ends_although_a_worker_may_have_it_is_cancelled(stage: Stage) {
    with_keys(&stage).await;
    stage.set_time("2026-01-01T10:00:00Z");
    let id = begin_sent(&stage, "a").await;
    let refused = answer(AnswerState::Failed, "the workers refused it");
    assert!(end_unanswered(&stage, id, refused.clone()).await);
    assert_eq!(answer_of(&stage, id).await, refused, "nobody had cancelled it");
    assert_eq!(valid_leases(&stage, id).await, 0);
    assert_eq!(due_at(&stage, "01T10:00:00").await, [id]);
    begin(&stage, &request_in("a", "another")).await;
    // Another orchestrator has found the same.
    assert!(!end_unanswered(&stage, id, answer(AnswerState::Failed, "again")).await);
    assert_eq!(due_at(&stage, "01T10:00:05").await, [id]);
    assert!(!end_as(&stage, id, answer(AnswerState::Cancelled, "late")).await);
    assert_eq!(due_at(&stage, "01T11:00:00").await, []);
    assert_eq!(answer_of(&stage, id).await, refused);
}

async fn cancel_outlives_an_end_that_no_worker_gave(stage: Stage) {
    with_keys(&stage).await;
    stage.set_time("2026-01-01T10:00:00Z");
    let id = begin_sent(&stage, "a").await;
    assert!(cancel(&stage, id).await);
    assert!(end_unanswered(&stage, id, answer(AnswerState::Failed, "lost")).await);
    assert_eq!(answer_of(&stage, id).await.state, AnswerState::Cancelled);
    assert_eq!(due_at(&stage, "01T10:00:00").await, [id]);
    assert_eq!(due_at(&stage, "01T10:00:05").await, [id]);
    assert!(!end_as(&stage, id, answer(AnswerState::Cancelled, "late")).await);
    assert_eq!(due_at(&stage, "01T11:00:00").await, []);
}

async fn cancel_is_forgotten_when_its_turn_cannot_be_answered_any_more(stage: Stage) {
    with_keys(&stage).await;
    stage.set_time("2026-01-01T10:00:00Z");
    let id = begin_sent(&stage, "a").await;
    assert!(cancel(&stage, id).await);
    assert_eq!(due_at(&stage, "08T09:59:59").await, [id]);
    assert_eq!(due_at(&stage, "08T11:00:00").await, []);
    assert_eq!(turn_cancel::Entity::find().count(stage.store.read()).await.unwrap(), 0);
}

async fn open_turns_end_when_they_cannot_be_answered_any_more(stage: Stage) {
    with_keys(&stage).await;
    stage.set_time("2026-01-01T10:00:00Z");
    let unsent = begin(&stage, &request_in("a", "go on")).await.handoff_id;
    let (sent, cancelled) = (begin_sent(&stage, "b").await, begin_sent(&stage, "c").await);
    stage.set_time("2026-01-01T10:00:01Z");
    let younger = begin_sent(&stage, "d").await;
    // The worker that took it last may still be at it.
    stage.set_time("2026-01-08T10:59:59Z");
    assert!(listed(&stage).await.turns.is_empty());
    assert!(cancel(&stage, cancelled).await, "it is open");
    stage.set_time("2026-01-08T11:00:00Z");
    let listed = listed(&stage).await;
    assert!(listed.turns.is_empty() && listed.cancels.is_empty(), "{listed:?}");
    for (id, state, code) in [
        (unsent, AnswerState::Failed, "stale_handoff"),
        (sent, AnswerState::Failed, "stale_handoff"),
        (cancelled, AnswerState::Cancelled, "cancelled"),
    ] {
        let ended = answer_of(&stage, id).await;
        assert_eq!((ended.state, ended.error_code.as_deref()), (state, Some(code)));
    }
    let open: Turn = call(&stage, &GetTurn { user_id: "ada".parse().unwrap(), handoff_id: younger }).await;
    assert_eq!(open.answer, None);
    // Their threads take the next request.
    begin(&stage, &request_in("b", "another")).await;
}

/// As of a handoff that waited for days while each list of an earlier build had another lease.
async fn cancel_revokes_many_leases_and_those_under_them(stage: Stage) {
    with_keys(&stage).await;
    let id = begin_sent(&stage, "a").await;
    let issued = lease::Entity::find().one(stage.store.read()).await.unwrap().unwrap();
    for number in 0..600 {
        stage.given(lease::Model { id: format!("lease-{number}"), ..issued.clone() }).await;
    }
    let parent_id = Some("lease-599".to_owned());
    stage.given(lease::Model { id: "under".to_owned(), parent_id, handoff_id: None, ..issued }).await;
    assert!(cancel(&stage, id).await);
    let valid = lease::Entity::find().filter(lease::Column::RevokedAt.is_null());
    assert_eq!(valid.count(stage.store.read()).await.unwrap(), 0);
    assert_eq!(outbox::Entity::find().count(stage.store.read()).await.unwrap(), 602, "each is reported");
}
