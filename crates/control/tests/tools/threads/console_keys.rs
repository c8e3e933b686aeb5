//! Turns that are begun with the keys of the console.

use contract::thread::{BeginOutcome, BeginTurn, BegunTurn};
use sea_orm::EntityTrait;
use store::entity::{token, turn};

use super::{begin, call, key, request, user, with_keys};
use crate::stage::{Stage, on_both};

on_both![names_count_for_all_keys_of_a_user_in_the_console];

/// The console gets another key for a user every few minutes, after a restart, and at another gateway.
async fn names_count_for_all_keys_of_a_user_in_the_console(stage: Stage) {
    with_keys(&stage).await;
    for (number, (id, user)) in [("c1", "ada"), ("c2", "ada"), ("c3", "eve")].into_iter().enumerate() {
        let created_by = format!("console:{number}");
        let hash = format!("{number:a>64}");
        stage.given(token::Model { hash, created_by, ..key(id, user) }).await;
    }
    let named = |key: &str| {
        let request = request(vec![user("one")]);
        BeginTurn { key_id: key.to_owned(), request_key: Some("msg-1".to_owned()), ..request }
    };
    let first = begin(&stage, &named("c1")).await;
    let again: BegunTurn = call(&stage, &named("c2")).await;
    assert_eq!((again.outcome, &again.turn), (BeginOutcome::Joined, &first));
    let full: BegunTurn =
        call(&stage, &BeginTurn { request_key: None, max_open: Some(1), ..named("c2") }).await;
    assert_eq!(full.outcome, BeginOutcome::TooManyOpen);
    // Not for other users, nor for keys of programs.
    let eves = BeginTurn { user_id: "eve".parse().unwrap(), max_open: Some(1), ..named("c3") };
    begin(&stage, &eves).await;
    begin(&stage, &named("key-ada")).await;
    let turns = turn::Entity::find().all(stage.store.read()).await.unwrap();
    assert_eq!(turns.len(), 3);
}
