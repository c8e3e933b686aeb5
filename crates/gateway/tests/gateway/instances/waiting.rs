//! Calls that wait for another one with the same key.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use testkit::{Answer, Gateway, GatewayProcess, Postgres, TestClock, Tool, eventually};
use tokio::time::{Instant, sleep};

use super::support::{assert_audit_is_whole, call, gateways, outcomes, text};

const WAITERS: usize = 40;
/// Length of the measurement, while calls only wait.
const WINDOW: Duration = Duration::from_secs(2);
/// Commits that happen anyway in that time and the second before: statistics are delayed. Without back-off
/// there were several hundred.
const MAX_COMMITS: u64 = 100;

async fn slow() -> Gateway {
    let answer = || Answer::after(Duration::from_secs(6), Answer::text("paid"));
    Gateway::start(vec![Tool::new("pay", "Pays.", json!({ "type": "object" }), move |_| answer())]).await
}

async fn install(gateway: &GatewayProcess, server: &Gateway) {
    let new = json!({
        "namespace": "bank", "transport": { "http": { "url": server.url() } }, "trust_first": true,
        "call_timeout": "30s", "concurrency": 8,
    });
    gateway.must("POST", "/api/v1/upstreams", Some(new)).await;
}

/// Sends forty calls with one key, distributed over the gateways; returns the number of commits per window
/// while they wait.
async fn commits_while_waiting(
    gateways: &[GatewayProcess],
    server: &Gateway,
    commits: impl AsyncFn() -> u64,
) -> u64 {
    install(&gateways[0], server).await;
    let manager = gateways[0].manager().await;
    let calls = (0..WAITERS).map(|number| {
        let body = call("bank.pay", &json!({}), Some("run/1"));
        gateways[number % gateways.len()].post(Some(&manager), body)
    });
    let measured = async {
        eventually("the tool to run", async || (server.calls().len() == 1).then_some(())).await;
        // All forty have arrived when none of them writes any more, or after a time limit.
        sleep(Duration::from_millis(1500)).await;
        let before = commits().await;
        sleep(WINDOW).await;
        commits().await - before
    };
    let begun = Instant::now();
    let (answers, measured) = tokio::join!(join_all(calls), measured);
    for (_, answer) in &answers {
        assert_eq!(text(answer), Ok("paid".to_owned()));
    }
    println!("{measured} commits in {WINDOW:?}; all answered after {:?}", begun.elapsed());
    assert_eq!(server.calls().len(), 1, "one effect");
    let rows = outcomes(&gateways[0], "bank.pay").await;
    assert_eq!((rows["allow/success/-"], rows["allow/replayed/-"]), (1, WAITERS - 1), "{rows:?}");
    assert_audit_is_whole(&gateways[0]).await;
    measured
}

/// Within one process the first call wakes the others; they do not query the store meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_waiters_on_one_key_commit_nothing() {
    let (gateway, server) = (GatewayProcess::start().await, slow().await);
    let gateways = [gateway];
    let commits = async || {
        let metrics = gateways[0].metrics().await;
        let line = metrics.lines().find(|line| line.starts_with("gateway_audit_group_size_count"));
        let count = line.and_then(|line| line.split_whitespace().last()).expect("a number");
        count.parse().expect("a number")
    };
    let measured = commits_while_waiting(&gateways, &server, commits).await;
    assert_eq!(measured, 0, "commits of the audit while forty calls waited for {WINDOW:?}");
}

/// PostgreSQL counts every statement outside a transaction as a commit, also those that only read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forty_waiters_at_two_gateways_on_postgres_poll_with_back_off() {
    let (postgres, server) = (Postgres::start(), slow().await);
    let url = postgres.database();
    let gateways = gateways(2, &url, &[("audit.seal_every", "1h")]).await;
    let count = "SELECT pg_stat_clear_snapshot(); \
                 SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()";
    let commits = async || {
        let told = postgres.sql(&url, count);
        told.lines().last().and_then(|line| line.parse().ok()).expect("a number")
    };
    let measured = commits_while_waiting(&gateways, &server, commits).await;
    assert!(measured <= MAX_COMMITS, "{measured} commits while forty calls waited for {WINDOW:?}");
}

/// A gateway that starts with a clock an hour ahead takes no call that runs at another one for lost: a call
/// with its key waits, and the audit says how it ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_calls_are_not_lost_for_a_gateway_on_postgres_whose_clock_is_ahead() {
    let (postgres, server) = (Postgres::start(), slow().await);
    let (url, start) = (postgres.database(), "2026-11-18T10:00:00Z");
    let (clock, ahead) = (TestClock::at(start), TestClock::at("2026-11-18T11:00:00Z"));
    let settings = [("store.url", url.as_str()), ("store.patience", "30s")];
    let first = GatewayProcess::start_with_variables(&settings, &[clock.variable_of_machine()]).await;
    install(&first, &server).await;
    let manager = first.manager().await;
    let running = first.post(Some(&manager), call("bank.pay", &json!({}), Some("run/1")));
    let repeated = async {
        eventually("the tool to run", async || (server.calls().len() == 1).then_some(())).await;
        let second = GatewayProcess::start_with_variables(&settings, &[ahead.variable_of_machine()]).await;
        let (_, answer) = second.post(Some(&manager), call("bank.pay", &json!({}), Some("run/1"))).await;
        (second, answer)
    };
    let ((_, answer), (_second, repeated)) = tokio::join!(running, repeated);
    assert_eq!((text(&answer), text(&repeated)), (Ok("paid".to_owned()), Ok("paid".to_owned())));
    assert_eq!(server.calls().len(), 1, "one effect");
    let rows = outcomes(&first, "bank.pay").await;
    assert_eq!((rows["allow/success/-"], rows["allow/replayed/-"]), (1, 1), "{rows:?}");
    assert_audit_is_whole(&first).await;
}
