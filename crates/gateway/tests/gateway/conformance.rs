//! The official MCP conformance suite against the gateway, with an upstream that has the tools which the
//! suite calls. Known failures are listed with their reason in `conformance/*.yaml`; the suite fails for any
//! other, and for a listed one that now passes.

use std::path::Path;

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode},
    response::{IntoResponse, Response},
    routing::any,
};
use reqwest::Client;
use serde_json::json;
use testkit::{ConformanceUpstream, GatewayProcess, conformance_suite, loopback_preload, run, workspace};
use tokio::{net::TcpListener, task::JoinSet};

/// A proxy that adds the token, since the suite cannot present one; it changes nothing else.
struct TokenProxy {
    url: String,
    _serving: JoinSet<()>,
}

#[derive(Clone)]
struct ProxyState {
    client: Client,
    url: String,
    token: String,
}

impl TokenProxy {
    async fn start(gateway: &GatewayProcess) -> Self {
        let client = Client::builder().no_proxy().build().unwrap();
        let proxy = ProxyState { client, url: gateway.url(), token: gateway.manager().await };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let app = Router::new().route("/mcp", any(pass)).with_state(proxy);
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, _serving: serving }
    }
}

async fn pass(
    State(proxy): State<ProxyState>,
    method: Method,
    mut headers: HeaderMap,
    body: Bytes,
) -> Response {
    headers.remove("content-length");
    headers.remove("transfer-encoding");
    let request =
        proxy.client.request(method, &proxy.url).headers(headers).bearer_auth(&proxy.token).body(body);
    let Ok(answer) = request.send().await else { return StatusCode::BAD_GATEWAY.into_response() };
    let (status, mut headers) = (answer.status(), answer.headers().clone());
    headers.remove("content-length");
    headers.remove("transfer-encoding");
    let body = axum::body::Body::from_stream(answer.bytes_stream());
    (status, headers, body).into_response()
}

async fn check(era: &str, expected: &str, must_pass: &[&str]) {
    let upstream = ConformanceUpstream::start().await;
    // The suite sends the origin of the address that it calls, and expects it to be allowed.
    let gateway =
        GatewayProcess::start_with(&[("mcp.origins", "[\"http://127.0.0.1:*\",\"http://localhost:*\"]")])
            .await;
    let new = json!({
        "namespace": "fixture", "transport": { "http": { "url": upstream.url() } }, "prefix": false,
        "trust_first": true,
    });
    let added = gateway.must("POST", "/api/v1/upstreams", Some(new)).await;
    assert!(added["problem"].is_null(), "{added}");
    let doorman = TokenProxy::start(&gateway).await;
    let folder = tempfile::tempdir().unwrap();
    let expected =
        workspace().join("crates/gateway/tests/gateway/conformance").join(expected).canonicalize().unwrap();
    let (finished, said) = suite(folder.path(), era, &doorman.url, &expected);
    assert_eq!(finished, 0, "{said}");
    for scenario in must_pass {
        let line = said.lines().find(|line| line.contains(&format!("{scenario}: ")));
        let line = line.unwrap_or_else(|| panic!("{scenario} was not run: {said}"));
        assert!(line.contains(", 0 failed") && !line.contains(" 0 passed"), "{line}");
    }
}

fn suite(folder: &Path, era: &str, url: &str, expected: &Path) -> (i32, String) {
    let (node, script) = conformance_suite();
    let (preload, script) = (loopback_preload().display().to_string(), script.display().to_string());
    let expected = expected.display().to_string();
    let start = ["--require", &preload, &script, "server", "--url", url, "--suite", "all"];
    let judged = ["--spec-version", era, "--expected-failures", &expected, "-o", "out"];
    let finished = run(&node, folder, &[start.as_slice(), &judged].concat(), &[("NO_COLOR", "1")]);
    let said = format!("{}\n{}\n{}", finished.stdout, finished.stderr, failures(&folder.join("out")));
    (finished.code, said)
}

/// Every check that did not succeed, as reported by the suite.
fn failures(out: &Path) -> String {
    let mut told = String::new();
    for entry in std::fs::read_dir(out).unwrap() {
        let checks = std::fs::read(entry.unwrap().path().join("checks.json")).unwrap();
        let checks: Vec<serde_json::Value> = serde_json::from_slice(&checks).unwrap();
        for check in
            checks.iter().filter(|check| check["status"] == "FAILURE" || check["status"] == "WARNING")
        {
            told.push_str(&format!("{} {}: {}\n", check["status"], check["id"], check["errorMessage"]));
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_of_the_gateway_in_the_older_era() {
    let must = [
        "server-initialize",
        "tools-list",
        "tools-call-image",
        "tools-call-mixed-content",
        "tools-call-with-progress",
    ];
    check(
        "2025-11-25",
        "older.yaml",
        &[&must[..], &["json-schema-2020-12", "dns-rebinding-protection"]].concat(),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conformance_of_the_gateway_in_the_newer_era() {
    let must = ["tools-list", "tools-call-image", "tools-call-with-progress"];
    check(
        "2026-07-28",
        "newer.yaml",
        &[&must[..], &["http-custom-header-server-validation", "dns-rebinding-protection"]].concat(),
    )
    .await;
}
