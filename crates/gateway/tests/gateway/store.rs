//! The same behaviour on SQLite and PostgreSQL: tokens, the hash chain of the audit, keys, recovery, and a
//! missing store.

mod world;

use policy::{Agent, LeaseMode, LeaseStanding, MemoryProfile, Standing, TokenBinding};
use std::{sync::Arc, time::Duration};

use self::world::{World, verified};
use access::tokens::{self, Holder};
use audit::{Announcement, Decision, Ledger, Record, Status};
use cynode_gateway::calls::Outcome;
use sea_orm::{ConnectionTrait, EntityTrait};
use serde_json::json;
use store::{clock, entity::in_flight};
use subjects::audit::ChainError;
use testkit::{Answer, Gateway, Postgres, Tool, eventually};

/// Runs each test on both databases. The tests on PostgreSQL have it in their name, for machines without a
/// server.
macro_rules! on_both {
    ($($(#[$about:meta])* $name:ident;)*) => {
        mod sqlite {
            $($(#[$about])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                super::$name(super::World::on_sqlite().await).await;
            })*
        }
        mod on_postgres {
            $($(#[$about])* #[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() {
                super::$name(super::World::on_postgres().await).await;
            })*
        }
    };
}

on_both! {
    token_is_valid_until_expired_or_revoked;
    rows_of_two_writers_form_one_chain;
    interrupted_call_gets_its_row;
    chain_verifies_after_old_rows_are_pruned;
    wrong_clock_of_a_node_keeps_no_row_and_deletes_none;
    /// Issue: 100 concurrent calls with one key have one effect.
    a_hundred_calls_with_one_key_have_one_effect;
    key_is_valid_for_one_call;
    call_without_a_known_outcome_is_in_doubt;
    safe_to_repeat_tool_is_called_again;
}

fn record(number: usize) -> Record {
    let mut record = Record::begin(format!("call-{number}"), clock::now(), &Standing::Unknown, "db.task.get");
    record.end(Decision::Deny, Status::Denied, Some("unknown_token"), clock::now());
    record
}

/// M116.
async fn token_is_valid_until_expired_or_revoked(world: World) {
    let bound = TokenBinding { user: "ada".into(), task: "task-1".into() };
    let holder = Holder::Agent(Agent::Analyst(Some(bound)));
    let issue = async |lives| tokens::issue(&world.store, "test", &holder, lives, "test").await.unwrap();
    let issued = issue(Duration::from_secs(60)).await;
    let standing = async |secret: &str| {
        tokens::look_up(&world.store, secret).await.unwrap().standing(
            clock::now(),
            LeaseStanding::Absent(LeaseMode::Optional),
            MemoryProfile::default(),
        )
    };
    let Standing::Valid(caller) = standing(&issued.secret).await else { panic!("expected a valid token") };
    assert_eq!(
        (caller.token.as_str(), &caller.agent),
        (
            issued.row.id.as_str(),
            &Agent::Analyst(Some(TokenBinding { user: "ada".into(), task: "task-1".into() }))
        )
    );
    assert!(!format!("{issued:?}").contains(&issued.secret), "Debug output contains no secret");
    assert!(!issued.row.hash.contains(&issued.secret) && issued.secret.len() > 40);
    // One character more or less is another token.
    assert_eq!(standing(&format!("{}x", issued.secret)).await, Standing::Unknown);
    assert_eq!(standing(&issued.secret[1..]).await, Standing::Unknown);
    let expired = issue(Duration::ZERO).await;
    assert!(matches!(standing(&expired.secret).await, Standing::Expired(_)));
    assert!(tokens::revoke(&world.store, &issued.row.id).await.unwrap());
    assert!(matches!(standing(&issued.secret).await, Standing::Revoked(_)));
    assert!(!tokens::revoke(&world.store, &issued.row.id).await.unwrap(), "revoking twice changes nothing");
    // Administrators and users do not call tools.
    let admin =
        tokens::issue(&world.store, "admin", &Holder::Admin, Duration::from_secs(60), "test").await.unwrap();
    assert_eq!(standing(&admin.secret).await, Standing::Unknown);
}

async fn rows_of_two_writers_form_one_chain(world: World) {
    // A second instance on the same store.
    let (second, writing) = Ledger::start(world.store.clone());
    world.tasks.spawn(writing);
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..400 {
        let ledger = if number % 2 == 0 { world.ledger.clone() } else { second.clone() };
        calls.spawn(async move { ledger.end(record(number), Announcement::None).await });
    }
    assert!(calls.join_all().await.into_iter().all(|written| written.is_ok()));
    assert_eq!(verified(&world.store).await, Ok(400));
    let rows = audit::rows_after(&world.store, 0, 1000).await.unwrap();
    let calls: std::collections::BTreeSet<_> = rows.iter().map(|row| row.call_id.clone()).collect();
    assert_eq!(calls.len(), 400, "each call has one row");
}

async fn interrupted_call_gets_its_row(world: World) {
    let mut begun = record(1);
    begun.set_decision(Decision::Allow);
    world.ledger.begin(begun.clone(), Duration::from_secs(60), None).await.unwrap();
    assert_eq!(verified(&world.store).await, Ok(0));
    // Another instance may still be running the call.
    assert_eq!(audit::recover(&world.store, false).await.unwrap(), 0);
    assert_eq!(audit::recover(&world.store, true).await.unwrap(), 1);
    let rows = audit::rows_after(&world.store, 0, 10).await.unwrap();
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(
        (row.call_id.as_str(), row.decision.as_str(), row.status.as_str()),
        ("call-1", "allow", "unknown")
    );
    assert_eq!(in_flight::Entity::find().all(world.store.read()).await.unwrap(), Vec::new());
    assert_eq!(audit::recover(&world.store, true).await.unwrap(), 0, "recovery writes no second row");
    assert_eq!(verified(&world.store).await, Ok(1));
}

async fn chain_verifies_after_old_rows_are_pruned(world: World) {
    for number in 0..10 {
        world.ledger.end(record(number), Announcement::None).await.unwrap();
    }
    let rows = audit::rows_after(&world.store, 0, 100).await.unwrap();
    assert_eq!(audit::prune(&world.store, rows[6].created_at).await.unwrap(), 6);
    let head = audit::bounds(world.store.read()).await.unwrap();
    assert_eq!((head.pruned_seq, head.pruned_hash.as_str(), head.seq), (6, rows[5].hash.as_str(), 10));
    assert_eq!(verified(&world.store).await, Ok(10));
    world.ledger.end(record(11), Announcement::None).await.unwrap();
    assert_eq!(verified(&world.store).await, Ok(11));
    // Rows that were not pruned cannot be removed unnoticed.
    ::store::entity::audit::Entity::delete_by_id(8).exec(world.store.read()).await.unwrap();
    assert_eq!(verified(&world.store).await, Err(ChainError::Missing(8)));
}

/// Rows of nodes have the time of a clock that may be far ahead or behind: the rows of the gateway tell which
/// are old.
async fn wrong_clock_of_a_node_keeps_no_row_and_deletes_none(world: World) {
    const DAY: i64 = 24 * 60 * 60 * 1_000_000;
    let today = clock::now();
    let write = async |number: usize, node: Option<&str>, at: i64| {
        let mut row = record(number);
        (row.created_at, row.node) = (at, node.map(str::to_owned));
        world.ledger.end(row, Announcement::None).await.unwrap();
    };
    // The node is ten years ahead in row 1, and ten years behind in rows 3, 5 and 6.
    write(1, Some("ahead"), today + 3650 * DAY).await;
    write(2, None, today - 50 * DAY).await;
    write(3, Some("behind"), today - 3650 * DAY).await;
    write(4, None, today - 40 * DAY).await;
    write(5, Some("behind"), today - 3650 * DAY).await;
    write(6, Some("behind"), today - 3650 * DAY).await;
    write(7, None, today - 10 * DAY).await;
    let kept = async || {
        let rows = audit::rows_after(&world.store, 0, 100).await.unwrap();
        rows.into_iter().map(|row| row.seq).collect::<Vec<_>>()
    };
    assert_eq!(audit::prune(&world.store, today - 60 * DAY).await.unwrap(), 0);
    assert_eq!(kept().await, [1, 2, 3, 4, 5, 6, 7], "no row of the gateway is that old");
    assert_eq!(audit::prune(&world.store, today - 30 * DAY).await.unwrap(), 4);
    assert_eq!(kept().await, [5, 6, 7], "rows after the last old one may be younger");
    assert_eq!(audit::prune(&world.store, today - 30 * DAY).await.unwrap(), 0);
    assert_eq!(verified(&world.store).await, Ok(7));
    // The last row stays, and so does one of a node after it.
    assert_eq!(audit::prune(&world.store, today).await.unwrap(), 2);
    assert_eq!(kept().await, [7]);
    write(8, Some("behind"), today - 3650 * DAY).await;
    assert_eq!(audit::prune(&world.store, today).await.unwrap(), 1);
    assert_eq!(kept().await, [8]);
    assert_eq!(verified(&world.store).await, Ok(8));
}

async fn counting(answer: impl Fn() -> Answer + Send + Sync + 'static) -> Gateway {
    let schema = json!({
        "type": "object", "properties": { "amount": { "type": "integer" } }, "required": ["amount"],
    });
    Gateway::start(vec![Tool::new("pay", "Pays.", schema, move |_| answer())]).await
}

async fn a_hundred_calls_with_one_key_have_one_effect(world: World) {
    let server = counting(|| Answer::after(Duration::from_millis(300), Answer::text("paid"))).await;
    world.install("bank", &server.url()).await;
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (handle, request) =
            (world.calls.clone(), world.request("bank.pay", json!({ "amount": 7 }), Some("handoff/1")).await);
        calls.spawn(async move { handle.call(request).await });
    }
    for outcome in calls.join_all().await {
        let Outcome::Answered(result) = outcome else { panic!("{outcome:?}") };
        assert_eq!(result.content[0].as_text().unwrap().text, "paid");
    }
    assert_eq!(server.calls().len(), 1, "one effect");
    let rows = audit::rows_after(&world.store, 0, 1000).await.unwrap();
    let with = |status: &str| rows.iter().filter(|row| row.status == status).count();
    assert_eq!((rows.len(), with("success"), with("replayed")), (100, 1, 99));
    assert_eq!(verified(&world.store).await, Ok(100));
    // Only the trace context is forwarded to the upstream.
    assert_eq!(
        (server.calls()[0].idempotency_key.clone(), server.calls()[0].authorization.clone()),
        (None, None)
    );
}

async fn key_is_valid_for_one_call(world: World) {
    let server = counting(|| Answer::text("paid")).await;
    world.install("bank", &server.url()).await;
    assert_eq!(world.call("bank.pay", json!({ "amount": 7 }), Some("k")).await, Ok("paid".into()));
    let other = world.call("bank.pay", json!({ "amount": 8 }), Some("k")).await;
    assert_eq!(other.unwrap_err(), "key_reused");
    // Invalid arguments use up no key.
    assert_eq!(
        world.call("bank.pay", json!({ "amount": "much" }), Some("l")).await.unwrap_err(),
        "invalid_arguments"
    );
    assert_eq!(world.call("bank.pay", json!({ "amount": 9 }), Some("l")).await, Ok("paid".into()));
    assert_eq!(server.calls().len(), 2);
}

async fn call_without_a_known_outcome_is_in_doubt(world: World) {
    let server = counting(Answer::hang).await;
    world.install_with_timeout("bank", &server.url(), Duration::from_secs(2)).await;
    let first = world.call("bank.pay", json!({ "amount": 7 }), Some("k")).await;
    assert_eq!(first.unwrap_err(), "upstream_timeout");
    let second = world.call("bank.pay", json!({ "amount": 7 }), Some("k")).await;
    assert_eq!(second.unwrap_err(), "in_doubt");
    assert_eq!(server.calls().len(), 1, "the tool is not called again");
    // An unreachable upstream had no effect: the key is free.
    drop(server);
    // The kept-alive connection breaks with the first call, whose outcome is unknown.
    assert!(world.call("bank.pay", json!({ "amount": 7 }), None).await.is_err());
    let refused = world.call("bank.pay", json!({ "amount": 7 }), Some("l")).await;
    assert_eq!(refused.unwrap_err(), "upstream_unavailable");
    let again = world.call("bank.pay", json!({ "amount": 7 }), Some("l")).await;
    assert_eq!(again.unwrap_err(), "upstream_unavailable");
}

async fn safe_to_repeat_tool_is_called_again(world: World) {
    let times = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let seen = times.clone();
    let server = counting(move || match seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => Answer::hang(),
        _ => Answer::text("paid"),
    })
    .await;
    world.install_with_timeout("bank", &server.url(), Duration::from_secs(2)).await;
    world.set_safe_to_repeat("bank.pay").await;
    assert_eq!(
        world.call("bank.pay", json!({ "amount": 7 }), Some("k")).await.unwrap_err(),
        "upstream_timeout"
    );
    assert_eq!(world.call("bank.pay", json!({ "amount": 7 }), Some("k")).await, Ok("paid".into()));
    assert_eq!(times.load(std::sync::atomic::Ordering::SeqCst), 2);
}

/// A commit that fails, as on a full disk: later transactions work, and the file is not locked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_is_usable_after_a_failed_commit() {
    let world = World::on_sqlite().await;
    let prepare = [
        "CREATE TABLE parent (id INTEGER PRIMARY KEY)",
        "CREATE TABLE child (id INTEGER REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
    ];
    for statement in prepare {
        world.store.acquire_writer().await.execute_unprepared(statement).await.unwrap();
    }
    for round in 0..3 {
        world.store.acquire_writer().await.execute_unprepared("PRAGMA foreign_keys = ON").await.unwrap();
        let write = world.store.write().await.unwrap();
        // Deferred constraint: the commit checks it and fails.
        write.execute_unprepared("INSERT INTO child VALUES (7)").await.unwrap();
        if round == 1 {
            // On a full disk SQLite ends the transaction itself, and there is nothing to roll back.
            write.execute_unprepared("ROLLBACK").await.unwrap();
        }
        write.commit().await.expect_err("it cannot be committed");
        let token =
            tokens::issue(&world.store, "after", &Holder::Admin, Duration::from_secs(60), "test").await;
        let token = token.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        let seen = tokens::look_up(&world.store, &token.secret).await.unwrap();
        assert!(seen.row.is_some(), "round {round}: later writes are committed");
        // The audit has its own connection, and finds the file unlocked.
        let begun = std::time::Instant::now();
        world.ledger.end(record(round), Announcement::None).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5), "round {round}: {:?}", begun.elapsed());
    }
    assert_eq!(verified(&world.store).await, Ok(3));
}

/// The same when a transaction that SQLite ended itself is dropped without a commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_is_usable_after_a_transaction_ended_by_sqlite() {
    let world = World::on_sqlite().await;
    for round in 0..3 {
        let write = world.store.write().await.unwrap();
        write.execute_unprepared("ROLLBACK").await.unwrap();
        drop(write);
        let token =
            tokens::issue(&world.store, "after", &Holder::Admin, Duration::from_secs(60), "test").await;
        let token = token.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        assert!(tokens::look_up(&world.store, &token.secret).await.unwrap().row.is_some(), "round {round}");
        let begun = std::time::Instant::now();
        world.ledger.end(record(round), Announcement::None).await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(5), "round {round}: {:?}", begun.elapsed());
    }
    assert_eq!(verified(&world.store).await, Ok(3));
}

/// M117: calls that cannot be resolved or recorded are denied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_are_denied_without_postgres() {
    let mut postgres = Postgres::start();
    let world = World::on(&postgres.database(), Duration::from_secs(2)).await;
    let server = counting(|| Answer::text("paid")).await;
    world.install("bank", &server.url()).await;
    assert_eq!(world.call("bank.pay", json!({ "amount": 1 }), None).await, Ok("paid".into()));
    let request = world.request("bank.pay", json!({ "amount": 2 }), None).await;
    postgres.kill();
    assert!(matches!(world.calls.call(request.clone()).await, Outcome::Unavailable));
    assert_eq!(server.calls().len(), 1, "no call is made without a record");
    assert!(tokens::look_up(&world.store, "anything").await.is_err());
    postgres.start_again();
    eventually("the store to be back", async || tokens::look_up(&world.store, "anything").await.ok()).await;
    let request = world.request("bank.pay", json!({ "amount": 2 }), None).await;
    assert!(matches!(world.calls.call(request).await, Outcome::Answered(_)));
    let rows = ::store::entity::audit::Entity::find().all(world.store.read()).await.unwrap();
    let (allowed, denied): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.decision == "allow");
    assert_eq!(allowed.len(), 2, "{rows:?}");
    // A row whose commit was under way when the server died may be written later. It says that nothing ran.
    assert!(denied.len() <= 1 && denied.iter().all(|row| row.status == "failure"), "{rows:?}");
    assert_eq!(verified(&world.store).await, Ok(i64::try_from(rows.len()).unwrap()));
}
