//! Audit equals traffic (M107–M110): whatever happens to a call and to the gateway, every answered call has
//! one row.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use reqwest::Client;
use sea_orm::{ColumnTrait, Database, EntityTrait, QueryFilter, sea_query::Expr};
use serde_json::{Value, json};
use store::entity::audit;
use testkit::{Answer, Gateway, GatewayProcess, Tool, cynodectl, run};
use tokio::{
    io::AsyncWriteExt,
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

const CALLS: usize = 10_000;
const CONNECTIONS: usize = 64;
const SCHEMA: &str = r#"{"type":"object","properties":{"text":{"type":"string"}}}"#;

/// A call, and whether it was answered. It is identified by its trace id, or, if the gateway does not read
/// that, by the name of the tool.
#[derive(Clone, Debug)]
struct Sent {
    by: By,
    answered: bool,
}

#[derive(Clone, Debug)]
enum By {
    Trace(String),
    Tool(String),
    /// Counted with other requests of its address.
    Number,
    Nothing,
}

struct Storm {
    url: String,
    address: String,
    manager: String,
    analyst: String,
    done: AtomicUsize,
}

impl Storm {
    /// Makes one call of one of many kinds.
    async fn call(&self, client: &Client, number: usize) -> Sent {
        let trace = format!("{:032x}", number + 1);
        // Half of them take the fast path without rmcp.
        let is_plain = (number / 10).is_multiple_of(2);
        let body = |tool: &str, arguments: Value| {
            let meta = json!({ "traceparent": format!("00-{trace}-00000000000000aa-01") });
            let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
            json!({ "jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params }).to_string()
        };
        let unknown = format!("storm.tool{number}");
        let traced = By::Trace(trace.clone());
        let (by, token, body) = match number % 10 {
            0 | 1 => (traced, &self.manager[..], body("db.project.list", json!({}))),
            2 | 3 => (traced, &self.manager[..], body("echo.say", json!({ "text": "hello" }))),
            4 => (traced, &self.manager[..], body("echo.fail", json!({}))),
            // Denied: not on the allowlist, unknown tool, unknown token, another user's task.
            5 => (traced, &self.analyst[..], body("db.task.create", json!({ "title": "no" }))),
            6 => (By::Tool(unknown.clone()), &self.manager[..], body(&unknown, json!({}))),
            7 => (By::Number, "cyn_nobody", body(&unknown, json!({}))),
            8 if number % 20 == 8 => {
                (traced, &self.analyst[..], body("db.task.get", json!({ "task_id": "task-9" })))
            }
            8 => (
                By::Nothing,
                &self.manager[..],
                r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","#.to_owned(),
            ),
            // A caller that does not wait for the answer.
            _ => {
                self.hang_up(&body("echo.slow", json!({})), is_plain).await;
                return Sent { by: traced, answered: false };
            }
        };
        let request = client
            .post(&self.url)
            .bearer_auth(token)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        let request = if is_plain { request.header("mcp-protocol-version", "2025-11-25") } else { request };
        let request = request.body(body);
        let answered = match request.send().await {
            Ok(response) => response.bytes().await.is_ok(),
            Err(_) => false,
        };
        Sent { by, answered }
    }

    async fn hang_up(&self, body: &str, is_plain: bool) {
        let Ok(mut stream) = TcpStream::connect(&self.address).await else { return };
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\n{}content-length: {}\r\n\r\n{body}",
            self.address,
            self.manager,
            if is_plain { "mcp-protocol-version: 2025-11-25\r\n" } else { "" },
            body.len()
        );
        // It does not matter whether the request arrived.
        drop(stream.write_all(head.as_bytes()).await);
        drop(stream.flush().await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answered_call_has_one_row() {
    let schema = || serde_json::from_str(SCHEMA).unwrap();
    let server = Gateway::start(vec![
        Tool::new("say", "Says it.", schema(), |_| Answer::text("said")),
        Tool::new("fail", "Fails.", schema(), |_| Answer::error("broken")),
        Tool::new("slow", "Takes its time.", schema(), |_| {
            Answer::after(Duration::from_millis(20), Answer::text("done"))
        }),
    ])
    .await;
    let mut gateway = GatewayProcess::start().await;
    gateway.install("echo", &server.url()).await;
    let storm = Arc::new(Storm {
        url: gateway.url(),
        address: gateway.address().to_owned(),
        manager: gateway.manager().await,
        analyst: gateway.bound("project_analyst", "ada", "task-1").await,
        done: AtomicUsize::new(0),
    });
    let mut callers = JoinSet::new();
    for caller in 0..CONNECTIONS {
        let storm = storm.clone();
        callers.spawn(async move {
            let client = Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap();
            let mut sent = Vec::new();
            for number in (caller..CALLS).step_by(CONNECTIONS) {
                let one = storm.call(&client, number).await;
                storm.done.fetch_add(1, Ordering::Relaxed);
                // While the gateway is down, there is no point in failing as fast as possible.
                if !one.answered && !matches!(number % 10, 9) {
                    sleep(Duration::from_millis(50)).await;
                }
                sent.push(one);
            }
            sent
        });
    }
    let halfway = async {
        while storm.done.load(Ordering::Relaxed) < CALLS / 2 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(240), halfway).await.expect("half of the calls in time");
    gateway.start_again().await;
    let sent: Vec<Sent> = callers.join_all().await.into_iter().flatten().collect();
    assert_eq!(sent.len(), CALLS);

    // Calls whose caller did not wait may still run; the gateway finishes them before it stops.
    gateway.process.terminate();
    assert!(gateway.process.wait(Duration::from_secs(60)).success());
    gateway.start_again().await;
    let rows = all_rows(&gateway).await;
    let mut traces: BTreeMap<&str, usize> = BTreeMap::new();
    let mut tools: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &rows {
        *traces.entry(row["trace_id"].as_str().unwrap_or_default()).or_default() += 1;
        *tools.entry(row["tool"].as_str().unwrap()).or_default() += 1;
    }
    let (mut answered, mut malformed) = (0, 0);
    for one in &sent {
        let found = match &one.by {
            By::Trace(trace) => traces.get(trace.as_str()).copied().unwrap_or(0),
            By::Tool(tool) => tools.get(tool.as_str()).copied().unwrap_or(0),
            // It is unknown which of them were counted before the kill.
            By::Number => usize::from(one.answered),
            By::Nothing => {
                malformed += usize::from(one.answered);
                usize::from(one.answered)
            }
        };
        answered += usize::from(one.answered);
        assert!(found <= 1, "{one:?} has {found} rows");
        assert!(!one.answered || found == 1, "{one:?} was answered and has no row");
    }
    let strangers: Vec<&Value> = rows.iter().filter(|row| row["agent"] == "unknown").collect();
    let number =
        |row: &&Value| row["tool"].as_str().and_then(|tool| tool.strip_prefix("requests:")?.parse().ok());
    let counted: usize = strangers.iter().map(|row| number(row).unwrap_or(1)).sum();
    let sent_strangers = sent.iter().filter(|one| matches!(one.by, By::Number)).count();
    assert!((1..=sent_strangers).contains(&counted), "{counted} of {sent_strangers}");
    assert!(strangers.len() <= 20, "{} rows for {sent_strangers} unauthenticated requests", strangers.len());
    let unreadable = rows.iter().filter(|row| row["error_type"] == "malformed").count();
    let sent_malformed = sent.iter().filter(|one| matches!(one.by, By::Nothing)).count();
    assert!((malformed..=sent_malformed).contains(&unreadable), "{malformed} {unreadable} {sent_malformed}");
    let cut_off = rows.iter().filter(|row| row["status"] == "unknown").count();
    println!("{CALLS} calls, {answered} answered, {} rows, {cut_off} interrupted by the kill", rows.len());
    assert!(answered > CALLS * 7 / 10, "{answered}");
    // M110: neither arguments nor results.
    let text = serde_json::to_string(&rows).unwrap();
    for secret in ["hello", "said", "broken", &storm.manager] {
        assert!(!text.contains(secret), "the audit contains {secret}");
    }
    check_first_bad_row_is_named(&gateway).await;
}

async fn all_rows(gateway: &GatewayProcess) -> Vec<Value> {
    let mut rows: Vec<Value> = Vec::new();
    loop {
        let last = rows.last().map_or(0, |row| row["seq"].as_i64().unwrap());
        let more = gateway.audit(&format!("after={last}&limit=1000")).await;
        if more.is_empty() {
            return rows;
        }
        rows.extend(more);
    }
}

/// Output of `cynodectl audit verify`, and whether it succeeded.
fn verify(gateway: &GatewayProcess) -> (bool, String) {
    let (url, token) = (gateway.admin_url(), gateway.admin_token_file().display().to_string());
    let arguments = ["audit", "verify", "--gateway", &url, "--admin-token-file", &token];
    let finished = run(&cynodectl(), gateway.folder(), &arguments, &[]);
    (finished.code == 0, format!("{}{}", finished.stdout, finished.stderr))
}

/// Changes, moves and removes rows directly in the database.
async fn check_first_bad_row_is_named(gateway: &GatewayProcess) {
    let (fine, said) = verify(gateway);
    assert!(fine, "{said}");
    let db = Database::connect(format!("sqlite://{}", gateway.database().display())).await.unwrap();
    let at = async |seq: i64| audit::Entity::find_by_id(seq).one(&db).await.unwrap().unwrap();
    let edit = async |seq: i64, status: &str| {
        audit::Entity::update_many()
            .col_expr(audit::Column::Status, Expr::value(status))
            .filter(audit::Column::Seq.eq(seq))
            .exec(&db)
            .await
            .unwrap();
    };
    let expect_bad = async |seq: i64| {
        let (fine, said) = verify(gateway);
        assert!(!fine && said.contains(&format!("row {seq} ")), "row {seq}: {said}");
        // The gateway reports the same.
        let verified = gateway.ask("GET", "/api/v1/audit/verify", None).await.body;
        assert!(verified.to_string().contains(&format!("row {seq} ")), "{verified}");
    };
    let before = at(777).await.status;
    edit(777, "replayed").await;
    expect_bad(777).await;
    edit(777, &before).await;
    assert!(verify(gateway).0, "the original rows verify");

    // Two rows are swapped.
    let renumber = async |from: i64, to: i64| {
        audit::Entity::update_many()
            .col_expr(audit::Column::Seq, Expr::value(to))
            .filter(audit::Column::Seq.eq(from))
            .exec(&db)
            .await
            .unwrap();
    };
    for (from, to) in [(500, -1), (501, 500), (-1, 501)] {
        renumber(from, to).await;
    }
    expect_bad(500).await;
    for (from, to) in [(501, -1), (500, 501), (-1, 500)] {
        renumber(from, to).await;
    }
    assert!(verify(gateway).0, "the original rows verify");

    let row = at(1234).await;
    audit::Entity::delete_by_id(1234).exec(&db).await.unwrap();
    expect_bad(1234).await;
    audit::Entity::insert(audit::ActiveModel::from(row)).exec(&db).await.unwrap();
    assert!(verify(gateway).0, "the original rows verify");

    // The last rows are removed. Only the signed heads reveal it.
    let last = all_rows(gateway).await.len() as i64;
    audit::Entity::delete_many().filter(audit::Column::Seq.gt(last - 5)).exec(&db).await.unwrap();
    let (fine, said) = verify(gateway);
    assert!(!fine, "{said}");
}
