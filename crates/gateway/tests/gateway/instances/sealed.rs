//! The audit of gateways that share a database: each seals it with a key of its own.

use serde_json::{Value, json};
use testkit::{GatewayProcess, Nats, Postgres, eventually};

use crate::administration::support::{ctl, parsed};

/// Makes a call that is audited, and waits until the gateway has sealed its row. Returns the row.
async fn sealed_call(gateway: &GatewayProcess, manager: &mcp::Client) -> i64 {
    gateway.call(manager, "db.task.list", json!({})).await.expect("a reply");
    let newest = async || {
        let rows = gateway.audit("limit=1000").await;
        rows.iter().filter_map(|row| row["seq"].as_i64()).max()
    };
    let row = newest().await.expect("a row");
    eventually("the row is sealed", async || {
        let sealed = gateway.must("GET", "/api/v1/audit/heads", None).await;
        let (key, heads) = (&sealed["key"], sealed["heads"].as_array()?);
        let is_own = |head: &&Value| head["key"] == *key && head["seq"].as_i64() >= Some(row);
        heads.iter().any(|head| is_own(&head)).then_some(())
    })
    .await;
    row
}

/// Rows that only one gateway has sealed are missed when the audit is verified through another.
#[tokio::test]
async fn rows_that_another_gateway_sealed_are_missed_on_postgres() {
    let (postgres, nats) = (Postgres::start(), Nats::start());
    let (url, server) = (postgres.database(), nats.url());
    let settings = [("store.url", &*url), ("nats.url", &*server), ("audit.seal_every", "50ms")];
    let mut first = GatewayProcess::start_with(&settings).await;
    let mut second = GatewayProcess::start_with(&settings).await;
    let manager = second.agent(&second.manager().await);
    sealed_call(&second, &manager).await;
    first.kill();
    let last = sealed_call(&second, &manager).await;
    sealed_call(&second, &manager).await;
    second.kill();
    first.start_again().await;
    let verify = async || ctl(&first, &["--json", "--server", &server, "audit", "verify"]).await;
    let whole = verify().await;
    assert_eq!(whole.code, 0, "{whole:?}");
    postgres.sql(&url, &format!("DELETE FROM audit WHERE seq >= {last}"));
    let found = verify().await;
    assert_eq!((found.code, &parsed(&found)["bad_row"]), (1, &json!(last)), "{found:?}");
    assert!(parsed(&found)["problem"].as_str().unwrap().contains("signed audit head"), "{found:?}");
}
