//! Several gateways at work.

use std::{collections::BTreeMap, time::Duration};

use futures_util::future::join_all;
use sea_orm::ConnectionTrait;
use serde_json::{Value, json};
use store::{Durability, Options, Store};
use testkit::{Answer, Gateway, Postgres, Tool, eventually};
use tokio::task::JoinSet;

use super::support::{assert_audit_is_whole, call, complaints, effects, gateways, outcomes, text};

const SCHEMA: &str = r#"{"type":"object","properties":{"text":{"type":"string"}}}"#;

async fn echo() -> Gateway {
    let tool = Tool::new("say", "Says it.", serde_json::from_str(SCHEMA).unwrap(), |arguments| {
        Answer::text(arguments.get("text").and_then(Value::as_str).unwrap_or_default())
    });
    Gateway::start(vec![tool]).await
}

/// Calls without a key: each is answered with its own result, runs once, and has one row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_on_postgres_lose_no_call() {
    const CALLERS: usize = 24;
    const EACH: usize = 15;
    const CALLS: usize = CALLERS * EACH;
    let postgres = Postgres::start();
    let (url, server) = (postgres.database(), echo().await);
    let gateways = gateways(2, &url, &[]).await;
    gateways[0].install_within("echo", &server.url(), "30s").await;
    let manager = gateways[0].manager().await;
    // Sequential per caller, so that calls start and end at the same time throughout.
    let callers = (0..CALLERS).map(async |caller| {
        let mut answers = Vec::new();
        for number in caller * EACH..(caller + 1) * EACH {
            let body = call("echo.say", &json!({ "text": format!("n{number}") }), None);
            answers.push(gateways[caller % 2].post(Some(&manager), body).await);
        }
        answers
    });
    let answers = join_all(callers).await.concat();
    let wrong: Vec<_> = answers
        .iter()
        .enumerate()
        .filter(|(number, (_, answer))| text(answer) != Ok(format!("n{number}")))
        .map(|(number, (_, answer))| format!("{number}: {answer}"))
        .collect();
    let rows = outcomes(&gateways[1], "echo.say").await;
    assert!(
        wrong.is_empty(),
        "{} of {CALLS} calls lost; audit {rows:?}; first {:?}",
        wrong.len(),
        wrong.first()
    );
    assert_eq!(rows, BTreeMap::from([("allow/success/-".to_owned(), CALLS)]));
    let effects = effects(&server);
    assert!(effects.len() == CALLS && effects.values().all(|times| *times == 1), "{effects:?}");
    assert_audit_is_whole(&gateways[0]).await;
}

/// The same keys at every gateway at the same time, in a different order at each, together with built-in
/// tools, calls without a key and denied calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_gateways_on_postgres_give_each_key_one_effect() {
    const KEYS: usize = 30;
    let postgres = Postgres::start();
    let (url, server) = (postgres.database(), echo().await);
    let gateways = gateways(4, &url, &[]).await;
    gateways[0].install_within("echo", &server.url(), "30s").await;
    let manager = gateways[0].manager().await;
    let mut calls = Vec::new();
    for (at, gateway) in gateways.iter().enumerate() {
        for number in 0..KEYS {
            // Odd gateways in reverse: groups that claim the same keys in another order must not block each
            // other.
            let number = if at % 2 == 0 { number } else { KEYS - 1 - number };
            let said = json!({ "text": format!("k{number}") });
            let keyed = call("echo.say", &said, Some(&format!("run/{number}")));
            let title = json!({ "title": format!("Task {number}") });
            let own = call("db.task.create", &title, Some(&format!("own/{number}")));
            let plain = call("echo.say", &json!({ "text": format!("p{at}-{number}") }), None);
            let denied = call("no.such", &json!({}), None);
            for (what, body) in [("keyed", keyed), ("own", own), ("plain", plain), ("denied", denied)] {
                let manager = &manager;
                calls.push(async move { (what, number, gateway.post(Some(manager), body).await.1) });
            }
        }
    }
    let answers = join_all(calls).await;
    let mut tasks: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (what, number, answer) in &answers {
        match *what {
            "keyed" => assert_eq!(text(answer), Ok(format!("k{number}")), "{}", complaints(&gateways)),
            "plain" => assert!(
                text(answer).is_ok_and(|text| text.starts_with('p')),
                "{answer} {}",
                complaints(&gateways)
            ),
            "denied" => assert_eq!(answer["error"]["message"], "Unknown tool: no.such", "{answer}"),
            _ => {
                let id = answer["result"]["structuredContent"]["task_id"].as_str();
                let id = id.unwrap_or_else(|| panic!("{answer} {}", complaints(&gateways)));
                tasks.entry(*number).or_default().push(id.to_owned());
            }
        }
    }
    assert!(tasks.values().all(|ids| ids.len() == 4 && ids.iter().all(|id| *id == ids[0])), "{tasks:?}");
    let effects = effects(&server);
    assert!(effects.len() == KEYS * 5 && effects.values().all(|times| *times == 1), "{effects:?}");
    let expected = [("allow/success/-", KEYS * 5), ("allow/replayed/-", KEYS * 3)];
    let expected = expected.map(|(outcome, count)| (outcome.to_owned(), count)).into();
    assert_eq!(outcomes(&gateways[3], "echo.say").await, expected);
    assert_audit_is_whole(&gateways[2]).await;
}

/// A gateway that is killed during calls affects no call of the others, and its own calls get their rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateway_on_postgres_does_not_affect_the_others() {
    let postgres = Postgres::start();
    let (url, server) = (postgres.database(), echo().await);
    let mut gateways = gateways(2, &url, &[("store.patience", "5s")]).await;
    gateways[0].install_within("echo", &server.url(), "30s").await;
    let manager = gateways[0].manager().await;
    let mut dying = gateways.pop().expect("two gateways");
    let staying = gateways.pop().expect("two gateways");
    for round in 0..5_u64 {
        let send = |number: usize| {
            let body = call("echo.say", &json!({ "text": format!("{round}-{number}") }), None);
            staying.post(Some(&manager), body)
        };
        let doomed = (0..40).map(|number| {
            let request = dying.http().post(dying.url()).bearer_auth(&manager);
            let request = request.header("content-type", "application/json");
            let request = request.header("accept", "application/json, text/event-stream");
            request.body(call("echo.say", &json!({ "text": format!("d{round}-{number}") }), None)).send()
        });
        let mut sent = JoinSet::new();
        sent.spawn(join_all(doomed.collect::<Vec<_>>()));
        let answered = join_all((0..40).map(send));
        let (answers, ()) = tokio::join!(answered, async {
            tokio::time::sleep(Duration::from_millis(3 * round)).await;
            dying.kill();
        });
        for (number, (_, answer)) in answers.iter().enumerate() {
            assert_eq!(text(answer), Ok(format!("{round}-{number}")));
        }
        drop(sent.join_next().await);
        dying.start_again().await;
    }
    let denied = staying.audit("tool=echo.say&decision=deny&limit=1000").await;
    assert!(denied.is_empty(), "{denied:?}");
    assert_audit_is_whole(&staying).await;
}

/// A gateway hangs while it holds the lock that all others need: the server ends its transaction in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hanging_transaction_is_ended_by_postgres() {
    let postgres = Postgres::start();
    let (url, server) = (postgres.database(), echo().await);
    let gateways = gateways(1, &url, &[("store.patience", "20s")]).await;
    gateways[0].install_within("echo", &server.url(), "30s").await;
    let manager = gateways[0].manager().await;
    // Opened the way a gateway opens it.
    let options = Options {
        url: url.clone(),
        max_connections: 2,
        patience: Duration::from_secs(4),
        durability: Durability::Process,
    };
    let frozen = Store::open(&options).await.unwrap();
    let held = frozen.write().await.unwrap();
    held.execute_unprepared("LOCK TABLE audit, in_flight IN SHARE ROW EXCLUSIVE MODE").await.unwrap();
    let body = call("echo.say", &json!({ "text": "hello" }), None);
    let (_, answer) = gateways[0].post(Some(&manager), body).await;
    assert_eq!(text(&answer), Ok("hello".to_owned()));
    assert!(held.commit().await.is_err(), "the transaction was ended");
}

/// A frozen gateway, also in the middle of a transaction, delays the others for less than their patience.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_gateway_on_postgres_does_not_block_the_others() {
    let postgres = Postgres::start();
    let (url, server) = (postgres.database(), echo().await);
    let gateways = gateways(2, &url, &[("store.patience", "4s")]).await;
    gateways[0].install_within("echo", &server.url(), "30s").await;
    let manager = gateways[0].manager().await;
    let (frozen, other) = (&gateways[0], &gateways[1]);
    let mut held = 0;
    for round in 0..8_u64 {
        let busy = (0..20).map(|number| {
            let request = frozen.http().post(frozen.url()).bearer_auth(&manager);
            let request = request.header("content-type", "application/json");
            let request = request.header("accept", "application/json, text/event-stream");
            request.body(call("echo.say", &json!({ "text": format!("f{round}-{number}") }), None)).send()
        });
        let mut sent = JoinSet::new();
        sent.spawn(join_all(busy.collect::<Vec<_>>()));
        tokio::time::sleep(Duration::from_millis(2 + round)).await;
        frozen.process.freeze();
        let open = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
        held += usize::from(postgres.sql(&url, open) != "0");
        let answers = join_all((0..10).map(|number| {
            let body = call("echo.say", &json!({ "text": format!("o{round}-{number}") }), None);
            other.post(Some(&manager), body)
        }))
        .await;
        frozen.process.thaw();
        for (number, (_, answer)) in answers.iter().enumerate() {
            assert_eq!(text(answer), Ok(format!("o{round}-{number}")));
        }
        for answer in sent.join_next().await.expect("calls").expect("the calls end") {
            let answer: Value = serde_json::from_str(&answer.unwrap().text().await.unwrap()).unwrap();
            // A call whose transaction the server ended meanwhile may be in doubt; none is denied or lost.
            let reason = &answer["error"]["data"]["reason"];
            assert!(text(&answer).is_ok() || reason == "in_doubt", "{answer}");
        }
    }
    println!("frozen during a transaction {held} times");
    eventually("every call to have its row", async || {
        (outcomes(other, "echo.say").await.values().sum::<usize>() == 8 * 30).then_some(())
    })
    .await;
    let denied = other.audit("tool=echo.say&decision=deny&limit=1000").await;
    assert!(denied.is_empty(), "{denied:?}");
    assert_audit_is_whole(other).await;
}
