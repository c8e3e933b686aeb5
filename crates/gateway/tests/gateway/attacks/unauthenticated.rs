//! Requests without a valid token.

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

/// The lowest limit: a slow machine sends more than that too.
const SLOWEST: &[(&str, &str)] = &[("unauthenticated.per_second", "1")];

fn call(tool: &str) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": tool, "arguments": {} } })
        .to_string()
}

/// Audit rows of requests without a valid token.
async fn rows(gateway: &GatewayProcess) -> Vec<Value> {
    gateway.audit("agent=unknown&limit=1000").await
}

fn count(rows: &[Value]) -> usize {
    let of = |row: &Value| row["tool"].as_str().and_then(|tool| tool.strip_prefix("requests:")?.parse().ok());
    rows.iter().map(|row| of(row).unwrap_or(1)).sum()
}

/// Requests without a token, with unknown tokens and with unreadable bodies are refused before anything is
/// written, and an agent at the same address is not affected.
#[tokio::test]
async fn unauthenticated_requests_are_rate_limited_and_counted() {
    let gateway = GatewayProcess::start_with(SLOWEST).await;
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
            assert_eq!(status, StatusCode::OK, "the agent is still served: {answer}");
            served += 1;
        }
    }
    assert!(slowed > MANY / 2, "{slowed} of {MANY} were rate-limited");
    assert_eq!(served, MANY / 50);
    let written = rows(&gateway).await.len() - before;
    assert!(written <= 10, "{written} rows for {MANY} requests");
    // A new agent is served meanwhile too.
    let fresh = gateway.manager().await;
    eventually_within(Duration::from_secs(5), "a new agent to be served", async || {
        gateway.post(None, call("x")).await;
        let (status, _) = gateway.post_call(&fresh, "db.project.list", json!({})).await;
        (status == StatusCode::OK).then_some(())
    })
    .await;
}

/// Agents do not use up the rate of their address, whether their token is cached or new.
#[tokio::test]
async fn agents_are_not_rate_limited_by_address() {
    let gateway = GatewayProcess::start_with(SLOWEST).await;
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

/// A revoked token counts as unauthenticated from then on, also if it was cached before.
#[tokio::test]
async fn revoked_token_is_rate_limited() {
    let gateway = GatewayProcess::start_with(SLOWEST).await;
    let (id, secret) = gateway.issue(json!({ "label": "gone", "agent": "project_manager" })).await;
    // Unauthenticated requests exhaust the rate of the address, so that valid tokens are recognised by the
    // cache.
    let slow = async || gateway.post(None, call("x")).await.0 == StatusCode::TOO_MANY_REQUESTS;
    eventually_within(Duration::from_secs(20), "unauthenticated requests to be rate-limited", async || {
        slow().await.then_some(())
    })
    .await;
    eventually_within(Duration::from_secs(20), "the token to be cached", async || {
        let (status, _) = gateway.post_call(&secret, "db.project.list", json!({})).await;
        (status == StatusCode::OK).then_some(())
    })
    .await;
    gateway.must("DELETE", &format!("/api/v1/tokens/{id}"), None).await;
    eventually_within(Duration::from_secs(30), "the revoked token to be rate-limited", async || {
        let (status, _) = gateway.post_call(&secret, "db.project.list", json!({})).await;
        assert_ne!(status, StatusCode::OK);
        (status == StatusCode::TOO_MANY_REQUESTS).then_some(())
    })
    .await;
}

/// Requests without their own row are counted in one row per address.
#[tokio::test]
async fn refused_requests_have_one_row_per_address_and_interval() {
    let gateway = GatewayProcess::start_with(&[("unauthenticated.report_every", "1s")]).await;
    let began = Instant::now();
    for _ in 0..300 {
        gateway.post(None, call("db.project.list")).await;
    }
    let found = eventually_within(Duration::from_secs(20), "all requests to be counted", async || {
        let found = rows(&gateway).await;
        (count(&found) == 300).then_some(found)
    })
    .await;
    // Two kinds of refusal: each has one row of its own, and at most one in each interval.
    let intervals = usize::try_from(began.elapsed().as_secs()).unwrap() + 2;
    assert!(found.len() <= 2 + 2 * intervals, "{} rows in {intervals} intervals", found.len());
    assert!(found.iter().all(|row| row["subject"] == "127.0.0.1" && row["decision"] == "deny"), "{found:?}");
    assert_eq!(gateway.must("GET", "/api/v1/audit/verify", None).await["ok"], true);
}

/// Counts that are not yet written are written when the gateway stops.
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

/// The administration listener rate-limits unauthenticated clients too, and serves administrators at the same
/// address.
#[tokio::test]
async fn unauthenticated_requests_are_rate_limited_on_the_admin_listener() {
    let gateway = GatewayProcess::start_with(SLOWEST).await;
    let mut slowed = 0;
    for number in 0..400 {
        let status = gateway.ask_as(&format!("cyn_{number:043}"), "GET", "/api/v1/tools", None).await.status;
        assert!(status == 401 || status == 429, "{status}");
        slowed += usize::from(status == 429);
    }
    assert!(slowed > 100, "{slowed}");
    gateway.must("GET", "/api/v1/tools", None).await;
    // Sign-in attempts have a stricter limit, and a valid token still works.
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

/// A request head that is never finished, and a connection without data, are closed on both listeners.
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
    // Served, then idle.
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let body = call("db.project.list");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {manager}\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         content-length: {}\r\n\r\n",
        gateway.address(),
        body.len(),
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(Duration::from_secs(20), stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // One byte at a time, each well within the idle timeout.
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

/// Connections are bounded. Unauthenticated ones are closed first, so that an agent can connect.
#[tokio::test]
async fn unauthenticated_clients_cannot_hold_all_connections() {
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
fn limits_have_defaults_and_invalid_ones_are_refused_by_name() {
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
        "unauthenticated.per_second = 20",
        "unauthenticated.report_every = \"60s\"",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    for wrong in [
        "connections.max=1",
        "connections.header_timeout=0s",
        "connections.idle_timeout=soon",
        "unauthenticated.per_second=0",
        "unauthenticated.report_every=0s",
    ] {
        let refused = config(&[wrong]);
        let key = wrong.split('=').next().unwrap();
        assert_eq!(refused.code, 64, "{refused:?}");
        assert!(refused.stderr.contains(key), "{refused:?}");
    }
}
