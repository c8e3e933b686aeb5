//! Identity of the caller.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use testkit::{Answer, Gateway, GatewayProcess, Tool};

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}"#;

/// 1: tokens for another audience, unsigned, or with an algorithm of the caller's choice.
#[tokio::test]
async fn attack_01_foreign_tokens_are_refused() {
    let gateway = GatewayProcess::start().await;
    let good = gateway.manager().await;
    // {"alg":"none"}.{"iss":…,"aud":…,"agent":"project_manager"}.
    let unsigned = "eyJhbGciOiJub25lIn0.eyJpc3MiOiJjeW5vZGUiLCJhdWQiOiJjeW5vZGUtZ2F0ZXdheSIsImFn\
                    ZW50IjoicHJvamVjdF9tYW5hZ2VyIn0.";
    let signed = "eyJhbGciOiJIUzI1NiIsImtpZCI6Ii4uLy4uL2Rldi9udWxsIn0.eyJhdWQiOiJvdGhlciJ9.AAAA";
    let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    for token in [
        unsigned,
        signed,
        hash,
        "",
        "cyn_",
        &good[..good.len() - 1],
        &good.to_lowercase(),
        &gateway.admin_token(),
    ] {
        let (status, _) = gateway.post(Some(token), LIST).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{token}");
    }
    let basic =
        gateway.http().post(gateway.url()).basic_auth("x", Some(&good)).body(LIST).send().await.unwrap();
    assert_eq!(basic.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(gateway.post(None, LIST).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(gateway.post(Some(&good), LIST).await.0, StatusCode::OK);
}

/// 2: a token that is used after its revocation or expiry.
#[tokio::test]
async fn attack_02_a_revoked_token_is_refused_at_once() {
    let mut gateway = GatewayProcess::start().await;
    let issued = gateway
        .must(
            "POST",
            "/api/v1/tokens",
            Some(json!({ "label": "run", "agent": "sandbox", "user_id": "ada", "task_id": "t" })),
        )
        .await;
    let (id, secret) = (issued["id"].as_str().unwrap(), issued["secret"].as_str().unwrap());
    assert_eq!(gateway.post(Some(secret), LIST).await.0, StatusCode::OK);
    gateway.must("DELETE", &format!("/api/v1/tokens/{id}"), None).await;
    assert_eq!(gateway.post(Some(secret), LIST).await.0, StatusCode::UNAUTHORIZED);
    let brief = gateway.issue(json!({ "label": "brief", "agent": "project_manager", "lives": "1s" })).await.1;
    assert_eq!(gateway.post(Some(&brief), LIST).await.0, StatusCode::OK);
    testkit::eventually("the token to expire", async || {
        (gateway.post(Some(&brief), LIST).await.0 == StatusCode::UNAUTHORIZED).then_some(())
    })
    .await;
    // A restart does not make it valid again.
    gateway.start_again().await;
    assert_eq!(gateway.post(Some(secret), LIST).await.0, StatusCode::UNAUTHORIZED);
    let (_, _) = gateway.post_call(secret, "artifact.list", json!({ "task_id": "t" })).await;
    let rows = gateway.audit("tool=artifact.list").await;
    assert_eq!(
        (rows[0]["error_type"].as_str(), rows[0]["agent"].as_str()),
        (Some("revoked_token"), Some("sandbox"))
    );
}

/// 3: the caller's token must not reach an upstream, which has its own credential.
#[tokio::test]
async fn attack_03_no_token_is_forwarded() {
    let server = Gateway::start(vec![Tool::new("say", "Says it.", json!({"type": "object"}), |_| {
        Answer::text("said")
    })])
    .await;
    server.require_token("the-servers-own");
    let gateway = GatewayProcess::start().await;
    let file = gateway.folder().join("server.token");
    std::fs::write(&file, "the-servers-own\n").unwrap();
    let new = json!({
        "namespace": "said", "trust_first": true,
        "transport": { "http": { "url": server.url(), "token_file": file.display().to_string() } },
    });
    gateway.must("POST", "/api/v1/upstreams", Some(new)).await;
    let manager = gateway.manager().await;
    let (_, answer) = gateway.post_call(&manager, "said.say", json!({})).await;
    assert_eq!(answer["result"]["content"][0]["text"], "said", "{answer}");
    let seen = format!("{:?}", server.calls());
    assert!(!seen.contains(&manager), "{seen}");
    assert_eq!(server.calls()[0].authorization.as_deref(), Some("Bearer the-servers-own"));
    // Nor does the log contain it.
    assert!(!gateway.log().contains("the-servers-own") && !gateway.log().contains(&manager));
}

/// 4: a header cannot set the identity.
#[tokio::test]
async fn attack_04_headers_do_not_set_the_identity() {
    let gateway = GatewayProcess::start().await;
    let sandbox = gateway.bound("sandbox", "ada", "task-1").await;
    let forged = |token: Option<&str>| {
        let mut request = gateway
            .http()
            .post(gateway.url())
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("x-user", "root")
            .header("x-agent-type", "project_manager")
            .header("x-forwarded-user", "root")
            .header("x-forwarded-for", "127.0.0.1")
            .header("forwarded", "for=127.0.0.1;host=localhost")
            .header("cookie", "session=admin")
            .header("mcp-session-id", "somebody-elses");
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        request.body(LIST).send()
    };
    assert_eq!(forged(None).await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let answer: Value =
        serde_json::from_str(&forged(Some(&sandbox)).await.unwrap().text().await.unwrap()).unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap();
    let listed: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(!listed.contains(&"db.task.create") && listed.contains(&"artifact.get"), "{listed:?}");
}

/// 7 and 8: there are no sessions to hijack, to end for another caller, or to exhaust memory with.
#[tokio::test]
async fn attack_07_08_there_are_no_sessions() {
    let gateway = GatewayProcess::start().await;
    let manager = gateway.manager().await;
    let initialize = json!({
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": { "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "x", "version": "1" } },
    });
    for _ in 0..200 {
        let request = gateway
            .http()
            .post(gateway.url())
            .bearer_auth(&manager)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(initialize.to_string());
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert!(response.headers().get("mcp-session-id").is_none(), "no session is created");
    }
    for method in [Method::GET, Method::DELETE] {
        let request = gateway.http().request(method.clone(), gateway.url()).bearer_auth(&manager);
        let response = request
            .header("mcp-session-id", "any")
            .header("accept", "text/event-stream")
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{method}");
    }
}

/// 22: lists differ by caller and must not be cached by intermediaries.
#[tokio::test]
async fn attack_22_lists_are_private() {
    let gateway = GatewayProcess::start().await;
    let (manager, analyst) =
        (gateway.manager().await, gateway.bound("project_analyst", "ada", "task-1").await);
    for _ in 0..3 {
        let (all, few) = (gateway.tools(&manager).await, gateway.tools(&analyst).await);
        assert!(all.len() > few.len() && few.contains(&"db.project.get".to_owned()));
        assert!(!few.contains(&"node.list".to_owned()), "{few:?}");
    }
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "x", "version": "1" },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } });
    let request = gateway
        .http()
        .post(gateway.url())
        .bearer_auth(&analyst)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/list");
    let answer: Value =
        serde_json::from_str(&request.body(body.to_string()).send().await.unwrap().text().await.unwrap())
            .unwrap();
    assert_eq!(
        (&answer["result"]["cacheScope"], &answer["result"]["ttlMs"]),
        (&json!("private"), &json!(0)),
        "{answer}"
    );
}
