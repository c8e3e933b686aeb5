use std::time::{Duration, Instant};

use reqwest::StatusCode;
use serde_json::{Value, json};
use testkit::{GatewayProcess, binary, eventually_within, run};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const MANY: usize = 1_500;

fn call(tool: &str) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": tool, "arguments": {} } })
        .to_string()
}

/// Audit rows about requests without a good token.
async fn rows(gateway: &GatewayProcess) -> Vec<Value> {
    gateway.audit("agent=unknown&limit=1000").await
}

fn count(rows: &[Value]) -> usize {
    let of = |row: &Value| row["tool"].as_str().and_then(|tool| tool.strip_prefix("requests:")?.parse().ok());
    rows.iter().map(|row| of(row).unwrap_or(1)).sum()
}

/// Requests without a token, with tokens that were never issued and with bodies that cannot be read are refused before anything
/// is written, and an agent at the same address does not notice.
#[tokio::test]
async fn strangers_are_paced_and_counted() {
    let gateway = GatewayProcess::start().await;
    let manager = gateway.manager().await;
    let before = rows(&gateway).await.len();
    let (mut slowed, mut served) = (0, 0);
    for number in 0..MANY {
        let fake = format!("cyn_{number:043}");
        let (token, body) = match number % 3 {
            0 => (None, call("db.project.list")),
            1 => (Some(fake.as_str()), call("db.project.list")),
            _ => (None, "{\"jsonrpc\":".to_owned()),
        };
        let (status, answer) = gateway.post(token, body).await;
        assert!(status.is_client_error(), "{status} {answer}");
        slowed += usize::from(status == StatusCode::TOO_MANY_REQUESTS);
        if number % 50 == 0 {
            let (status, answer) = gateway.post_call(&manager, "db.project.list", json!({})).await;
            assert_eq!(status, StatusCode::OK, "the agent is served all the same: {answer}");
            served += 1;
        }
    }
    assert!(slowed > MANY / 2, "{slowed} of {MANY} were slowed down");
    assert_eq!(served, MANY / 50);
    let written = rows(&gateway).await.len() - before;
    assert!(written <= 10, "{written} rows for {MANY} requests");
    // One that is new is served as well, in the middle of it.
    let fresh = gateway.manager().await;
    eventually_within(Duration::from_secs(5), "a new agent is served", async || {
        gateway.post(None, call("x")).await;
        let (status, _) = gateway.post_call(&fresh, "db.project.list", json!({})).await;
        (status == StatusCode::OK).then_some(())
    })
    .await;
}

/// Agents do not use up the pace of their address, neither old ones nor new ones.
#[tokio::test]
async fn agents_have_no_pace_by_address() {
    let gateway = GatewayProcess::start_with(&[("strangers.per_second", "1")]).await;
    let mut agents = Vec::new();
    for _ in 0..5 {
        agents.push(gateway.manager().await);
        for agent in &agents {
            for _ in 0..10 {
                let (status, answer) = gateway.post_call(agent, "db.project.list", json!({})).await;
                assert_eq!(status, StatusCode::OK, "{answer}");
            }
        }
    }
}

/// A token that is revoked is a stranger's from then on, also if it was known before.
#[tokio::test]
async fn a_revoked_token_is_paced_like_a_strangers() {
    let gateway = GatewayProcess::start().await;
    let (id, secret) = gateway.issue(json!({ "label": "gone", "agent": "project_manager" })).await;
    // Strangers exhaust the pace of the address, so that good tokens are told by what is in memory.
    let slow = async || gateway.post(None, call("x")).await.0 == StatusCode::TOO_MANY_REQUESTS;
    eventually_within(Duration::from_secs(20), "strangers are slowed down", async || {
        slow().await.then_some(())
    })
    .await;
    eventually_within(Duration::from_secs(20), "the token is known", async || {
        let (status, _) = gateway.post_call(&secret, "db.project.list", json!({})).await;
        (status == StatusCode::OK).then_some(())
    })
    .await;
    gateway.must("DELETE", &format!("/api/v1/tokens/{id}"), None).await;
    eventually_within(Duration::from_secs(30), "the revoked token is slowed down", async || {
        let (status, _) = gateway.post_call(&secret, "db.project.list", json!({})).await;
        assert_ne!(status, StatusCode::OK);
        (status == StatusCode::TOO_MANY_REQUESTS).then_some(())
    })
    .await;
}

/// What was not written one by one is written as a number, by address.
#[tokio::test]
async fn refused_strangers_have_one_row_for_each_address_and_interval() {
    let gateway = GatewayProcess::start_with(&[("strangers.report_every", "1s")]).await;
    for _ in 0..300 {
        gateway.post(None, call("db.project.list")).await;
    }
    let found = eventually_within(Duration::from_secs(20), "all are counted", async || {
        let found = rows(&gateway).await;
        (count(&found) == 300).then_some(found)
    })
    .await;
    assert!(found.len() <= 12, "{} rows", found.len());
    assert!(found.iter().all(|row| row["subject"] == "127.0.0.1" && row["decision"] == "deny"), "{found:?}");
    assert_eq!(gateway.must("GET", "/api/v1/audit/verify", None).await["ok"], true);
}

/// What is counted and not yet written is written when the gateway is told to stop.
#[tokio::test]
async fn counts_are_written_when_the_gateway_stops() {
    let mut gateway = GatewayProcess::start().await;
    for _ in 0..120 {
        gateway.post(None, call("db.project.list")).await;
    }
    gateway.process.terminate();
    gateway.process.wait(Duration::from_secs(20));
    gateway.start_again().await;
    assert_eq!(count(&rows(&gateway).await), 120);
}

/// The administrators' listener paces strangers too, and lets administrators at the same address in.
#[tokio::test]
async fn strangers_are_paced_where_administrators_come_in() {
    let gateway = GatewayProcess::start().await;
    let mut slowed = 0;
    for number in 0..400 {
        let status = gateway.ask_as(&format!("cyn_{number:043}"), "GET", "/api/v1/tools", None).await.status;
        assert!(status == 401 || status == 429, "{status}");
        slowed += usize::from(status == 429);
    }
    assert!(slowed > 100, "{slowed}");
    gateway.must("GET", "/api/v1/tools", None).await;
    // Guessing at the console is paced more strictly, and a good token opens it nevertheless.
    let login = async |token: &str| {
        let url = format!("{}/console/login", gateway.admin_url());
        let form = format!("token={token}");
        let request =
            gateway.http().post(url).header("content-type", "application/x-www-form-urlencoded").body(form);
        request.send().await.unwrap().status()
    };
    let mut refused = 0;
    for number in 0..40 {
        refused += usize::from(login(&format!("cyn_{number:043}")).await == StatusCode::TOO_MANY_REQUESTS);
    }
    assert!(refused > 0, "{refused}");
    assert_eq!(login(&gateway.admin_token()).await, StatusCode::SEE_OTHER);
}

/// A head that is never finished, and a connection on which nothing comes, are closed: on both listeners.
#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let gateway = GatewayProcess::start().await;
    let admin = gateway.admin_url().trim_start_matches("http://").to_owned();
    for address in [gateway.address(), &admin] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"POST /mcp HTTP/1.1\r\nhost: x\r\nx-half").await.unwrap();
        let began = Instant::now();
        let mut rest = Vec::new();
        let closed = timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
        assert!(closed.is_ok(), "still open after {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_trickled_head_too() {
    let settings = [("connections.idle_timeout", "1s"), ("connections.header_timeout", "1s")];
    let gateway = GatewayProcess::start_with(&settings).await;
    let manager = gateway.manager().await;
    // Served, then silent.
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let body = call("db.project.list");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {manager}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\ncontent-length: {}\r\n\r\n",
        gateway.address(),
        body.len(),
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // One byte at a time, each well within the time for idle connections.
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let began = Instant::now();
    let mut sent = 0;
    while stream.write_all(b"G").await.is_ok() && began.elapsed() < Duration::from_secs(20) {
        sent += 1;
        let mut byte = [0; 1];
        if let Ok(Ok(0) | Err(_)) = timeout(Duration::from_millis(100), stream.read(&mut byte)).await {
            break;
        }
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{sent} bytes in {:?}", began.elapsed());
}

/// Connections are bounded. Those of strangers make room, so that an agent gets in.
#[tokio::test]
async fn strangers_cannot_hold_all_connections() {
    let settings = [("connections.max", "20"), ("connections.idle_timeout", "60s")];
    let gateway = GatewayProcess::start_with(&settings).await;
    let manager = gateway.manager().await;
    let mut held = Vec::new();
    for _ in 0..60 {
        held.push(TcpStream::connect(gateway.address()).await.unwrap());
    }
    for _ in 0..3 {
        let (status, answer) = gateway.post_call(&manager, "db.project.list", json!({})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
    }
    let mut open = 0;
    for stream in &mut held {
        let mut byte = [0; 1];
        open += usize::from(timeout(Duration::from_millis(50), stream.read(&mut byte)).await.is_err());
    }
    assert!(open <= 20, "{open} connections are open");
}

#[test]
fn limits_have_defaults_and_wrong_ones_are_refused_by_name() {
    let gateway = binary("cynode-gateway");
    let config = |settings: &[&str]| {
        let mut arguments = vec!["config".to_owned()];
        arguments.extend(settings.iter().flat_map(|setting| ["--set".to_owned(), (*setting).to_owned()]));
        run(&gateway, std::path::Path::new("/"), &arguments, &[])
    };
    let shown = config(&[]).stdout;
    for line in [
        "connections.max = 1024",
        "connections.header_timeout = \"10s\"",
        "connections.idle_timeout = \"75s\"",
        "strangers.per_second = 20",
        "strangers.report_every = \"60s\"",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    for wrong in [
        "connections.max=1",
        "connections.header_timeout=0s",
        "connections.idle_timeout=soon",
        "strangers.per_second=0",
        "strangers.report_every=0s",
    ] {
        let refused = config(&[wrong]);
        let key = wrong.split('=').next().unwrap();
        assert_eq!(refused.code, 64, "{refused:?}");
        assert!(refused.stderr.contains(key), "{refused:?}");
    }
}
