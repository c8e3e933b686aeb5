//! The audit: rows, manipulation of rows, export and following.

use futures_util::{StreamExt, stream::FuturesUnordered};
use sea_orm::{
    ActiveModelTrait, ColumnTrait, DatabaseConnection, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder,
};
use serde_json::{Value, json};
use store::entity::audit;
use subjects::audit::Row;
use testkit::{Finished, GatewayProcess, Nats, eventually};

use super::support::{ctl, manager, parsed, store};

const SEAL: (&str, &str) = ("audit.seal_every", "50ms");
const FAILED: i32 = 1;

/// A gateway with some audit rows, all of them sealed.
async fn gateway_with_rows(settings: &[(&str, &str)]) -> GatewayProcess {
    let gateway = GatewayProcess::start_with(settings).await;
    let agent = manager(&gateway).await;
    for _ in 0..6 {
        gateway.call(&agent, "db.project.list", json!({})).await.expect("a permitted call");
    }
    sealed(&gateway, 7).await;
    gateway
}

async fn sealed(gateway: &GatewayProcess, seq: i64) {
    eventually("the head to be sealed", async || {
        let heads = gateway.must("GET", "/api/v1/audit/heads", None).await;
        let last = heads["heads"].as_array()?.last()?["seq"].as_i64()?;
        (last >= seq).then_some(())
    })
    .await;
}

async fn row(db: &DatabaseConnection, seq: i64) -> audit::Model {
    audit::Entity::find_by_id(seq).one(db).await.expect("read").expect("a row")
}

async fn put(db: &DatabaseConnection, row: audit::Model) {
    let row = row.into_active_model().reset_all();
    row.update(db).await.expect("written");
}

#[track_caller]
fn names_row(finished: &Finished, row: i64) {
    assert_eq!(finished.code, FAILED, "{finished:?}");
    let report = parsed(finished);
    assert_eq!((&report["ok"], &report["bad_row"]), (&json!(false), &json!(row)), "{report}");
}

#[tokio::test]
async fn changed_removed_or_moved_row_is_detected() {
    let gateway = gateway_with_rows(&[SEAL]).await;
    let db = store(&gateway).await;
    let verify = async || ctl(&gateway, &["--json", "audit", "verify"]).await;
    let whole = verify().await;
    assert_eq!(whole.code, 0, "{whole:?}");
    let report = parsed(&whole);
    assert_eq!((&report["ok"], &report["rows"]), (&json!(true), &json!(7)), "{report}");
    assert!(
        report["heads"].as_u64().expect("a count") > 0 && report["from_gateway"].as_u64() > Some(0),
        "{report}"
    );
    let warnings = report["warnings"].to_string();
    assert!(warnings.contains("outside the gateway") && warnings.contains("--key"), "{warnings}");
    let there = gateway.must("GET", "/api/v1/audit/verify", None).await;
    assert_eq!((&there["ok"], &there["rows"]), (&json!(true), &json!(7)));

    let (third, fifth) = (row(&db, 3).await, row(&db, 5).await);
    put(&db, audit::Model { status: "failure".to_owned(), ..third.clone() }).await;
    names_row(&verify().await, 3);
    assert_eq!(gateway.must("GET", "/api/v1/audit/verify", None).await["bad_row"], 3);
    let said = ctl(&gateway, &["audit", "verify"]).await;
    assert!(said.stdout.contains("NOT intact, from row 3 on"), "{said:?}");

    put(&db, audit::Model { seq: 3, ..fifth.clone() }).await;
    put(&db, audit::Model { seq: 5, ..third.clone() }).await;
    names_row(&verify().await, 3);
    put(&db, third.clone()).await;
    put(&db, fifth).await;
    assert_eq!(verify().await.code, 0, "the original rows verify");

    audit::Entity::delete_by_id(3).exec(&db).await.expect("deleted");
    names_row(&verify().await, 3);
    audit::Entity::insert(third.into_active_model()).exec(&db).await.expect("put back");
    audit::Entity::delete_by_id(7).exec(&db).await.expect("deleted");
    names_row(&verify().await, 7);
    assert_eq!(gateway.must("GET", "/api/v1/audit/verify", None).await["bad_row"], 7);
}

/// With access to the store and the gateway's files, a consistent new chain can be written. The published
/// heads reveal it.
#[tokio::test]
async fn rewritten_chain_is_detected_by_the_heads_in_nats() {
    let nats = Nats::start();
    let url = nats.url();
    let gateway = gateway_with_rows(&[SEAL, ("nats.url", &url)]).await;
    let db = store(&gateway).await;
    let key =
        gateway.must("GET", "/api/v1/audit/heads", None).await["key"].as_str().expect("a key").to_owned();
    let verify = async |more: &[&str]| {
        let mut line = vec!["--json", "--server", &url, "audit", "verify"];
        line.extend(more);
        ctl(&gateway, &line).await
    };
    let whole = parsed(&verify(&["--key", &key]).await);
    assert_eq!(whole["ok"], true, "{whole}");
    assert!(whole["from_nats"].as_u64() > Some(0) && whole["warnings"] == json!([]), "{whole}");
    let another = nkeys::KeyPair::new_user().public_key();
    let refused = verify(&["--key", &another]).await;
    assert_eq!(refused.code, FAILED, "{refused:?}");
    assert!(refused.stdout.contains("no head is signed by"), "{refused:?}");

    let mut rows = audit::Entity::find().order_by_asc(audit::Column::Seq).all(&db).await.expect("rows");
    rows[1].tool = "db.project.get".to_owned();
    let mut hash = String::new();
    for row in rows {
        let mut chained: Row = serde_json::from_value(as_json(&row)).expect("a row");
        chained.hash = chained.hash_after(&hash);
        hash.clone_from(&chained.hash);
        put(&db, audit::Model { hash: chained.hash, ..row }).await;
    }
    std::fs::write(gateway.folder().join("audit-heads.jsonl"), "").expect("the file is emptied");
    assert_eq!(parsed(&ctl(&gateway, &["--json", "audit", "verify"]).await)["from_nats"], 0);
    let found = verify(&["--nats", "--key", &key]).await;
    assert_eq!(found.code, FAILED, "{found:?}");
    assert!(
        parsed(&found)["problem"].as_str().expect("a problem").contains("signed audit head"),
        "{found:?}"
    );
}

fn as_json(row: &audit::Model) -> Value {
    json!({
        "seq": row.seq, "created_at": row.created_at, "call_id": row.call_id, "agent": row.agent,
        "subject": row.subject, "user_id": row.user_id, "task_id": row.task_id, "project_id": row.project_id,
        "run_id": row.run_id, "job_id": row.job_id, "tool": row.tool, "decision": row.decision,
        "status": row.status,
        "error_type": row.error_type, "duration_us": row.duration_us,
        "arguments_digest": row.arguments_digest,
        "trace_id": row.trace_id, "hash": row.hash,
    })
}

#[tokio::test]
async fn an_export_is_verified_without_the_gateway() {
    let mut gateway = gateway_with_rows(&[SEAL]).await;
    let file = gateway.folder().join("export.ndjson").display().to_string();
    let heads = gateway.folder().join("audit-heads.jsonl").display().to_string();
    let exported = ctl(&gateway, &["audit", "export", "--out", &file]).await;
    assert_eq!(exported.code, 0, "{exported:?}");
    assert_eq!(
        ctl(&gateway, &["audit", "export", "--out", &file]).await.code,
        64,
        "an existing file is not overwritten"
    );
    gateway.must("PUT", "/api/v1/settings/a", Some(json!({ "value": 1 }))).await;
    sealed(&gateway, 8).await;
    gateway.kill();

    let verify = async |more: &[&str]| {
        let mut line = vec!["--json", "audit", "verify", "--file", &file];
        line.extend(more);
        ctl(&gateway, &line).await
    };
    let alone = verify(&[]).await;
    assert_eq!(alone.code, 0, "{alone:?}");
    assert!(parsed(&alone)["warnings"].to_string().contains("no signed heads"), "{alone:?}");
    // The heads cover a row that the export does not contain.
    names_row(&verify(&["--heads", &heads]).await, 8);
    let older = parsed(&verify(&["--heads", &heads, "--older"]).await);
    assert_eq!((&older["ok"], &older["rows"]), (&json!(true), &json!(7)), "{older}");
    assert!(older["from_file"].as_u64() > Some(0), "{older}");

    let text = std::fs::read_to_string(&file).expect("the export");
    assert!(text.lines().next().expect("a line").starts_with("{\"pruned_seq\":0"));
    let edited = text.replacen("\"seq\":4,", "\"seq\":4,\"trace_id\":\"x\",", 1);
    std::fs::write(&file, &edited).expect("edited");
    assert_ne!(verify(&[]).await.code, 0);
    let late: Vec<&str> =
        text.lines().enumerate().filter(|(at, _)| !(1..=2).contains(at)).map(|(_, line)| line).collect();
    let third: Row = serde_json::from_str(late[1]).expect("a row");
    let before: Row = serde_json::from_str(text.lines().nth(2).expect("a line")).expect("a row");
    assert_eq!(third.seq, 3);
    let begin = json!({ "pruned_seq": 2, "pruned_hash": before.hash }).to_string();
    std::fs::write(&file, format!("{begin}\n{}\n", late[1..].join("\n"))).expect("edited");
    names_row(&verify(&["--heads", &heads, "--older"]).await, 2);
}

#[tokio::test]
async fn rows_are_queried_and_followed() {
    let gateway = gateway_with_rows(&[SEAL]).await;
    let query = async |line: &str| gateway.must("GET", &format!("/api/v1/audit{line}"), None).await;
    let seqs = |rows: &Value| -> Vec<i64> {
        rows.as_array().expect("rows").iter().filter_map(|row| row["seq"].as_i64()).collect()
    };
    assert_eq!(seqs(&query("?limit=2").await), [7, 6]);
    assert_eq!(seqs(&query("?tool=db.project.*&before=4").await), [3, 2]);
    assert_eq!(seqs(&query("?after=5").await), [6, 7]);
    assert_eq!(seqs(&query("?agent=admin").await), [1]);
    assert_eq!(seqs(&query("?decision=deny").await), [] as [i64; 0]);
    let said = ctl(&gateway, &["audit", "query", "--tool", "db.*", "--limit", "3", "--since", "1h"]).await;
    assert!(said.stdout.contains("project_manager") && said.stdout.contains("db.project.list"), "{said:?}");
    assert!(ctl(&gateway, &["audit", "query", "--decision", "deny"]).await.stdout.contains("no rows"));

    let tail = ctl(&gateway, &["--json", "audit", "tail", "--after", "5", "--for", "2s"]);
    let change = async {
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        gateway.must("PUT", "/api/v1/settings/a", Some(json!({ "value": 1 }))).await;
    };
    let (tail, ()) = tokio::join!(tail, change);
    let rows: Vec<Row> = tail.stdout.lines().map(|line| serde_json::from_str(line).expect("a row")).collect();
    let seen: Vec<i64> = rows.iter().map(|row| row.seq).collect();
    assert_eq!((tail.code, seen), (0, vec![6, 7, 8]), "{tail:?}");
    assert_eq!(rows[2].tool, "admin.setting.set");
    assert!(rows[2].arguments_digest.is_some());
}

/// A client that follows the audit never ends by itself; it must not keep the gateway from stopping.
#[tokio::test]
async fn gateway_stops_while_a_client_follows_the_audit() {
    let mut gateway = GatewayProcess::start().await;
    let watching = ctl(&gateway, &["audit", "tail"]);
    let ending = async {
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        gateway.process.terminate();
    };
    let (_, ()) = tokio::join!(watching, ending);
    let status =
        tokio::task::spawn_blocking(move || gateway.process.wait(std::time::Duration::from_secs(10)));
    assert!(status.await.expect("it ends").success());
}

/// A change and its row are one transaction: whenever the gateway is killed, there are as many rows as
/// changes.
#[tokio::test]
async fn every_change_has_its_row_after_a_kill() {
    let mut gateway = GatewayProcess::start().await;
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    for round in 1..=3 {
        let put = |at: usize| {
            let url = format!("{}/api/v1/settings/storm.{round}.{at}", gateway.admin_url());
            let request = http.put(url).bearer_auth(gateway.admin_token());
            request.header("content-type", "application/json").body(r#"{"value":1}"#).send()
        };
        let mut storm: FuturesUnordered<_> = (0..60).map(put).collect();
        for _ in 0..7 * round {
            storm.next().await.expect("one of them").expect("an answer");
        }
        gateway.kill();
        drop(storm);
        gateway.start_again().await;
    }
    let db = store(&gateway).await;
    let changes = store::entity::system_setting::Entity::find().all(&db).await.expect("rows").len();
    let rows = audit::Entity::find()
        .filter(audit::Column::Tool.eq("admin.setting.set"))
        .all(&db)
        .await
        .expect("rows");
    assert_eq!(rows.len(), changes);
    assert!(changes >= 7 + 14 + 21, "every answered change is stored: {changes}");
    assert_eq!(gateway.must("GET", "/api/v1/audit/verify", None).await["ok"], true);
}
