//! Addresses of fetch tools and of upstreams.

use sea_orm::{ActiveModelTrait, ActiveValue::Set, Database, EntityTrait};
use serde_json::{Value, json};
use store::entity::upstream;
use testkit::{Answer, Gateway, GatewayProcess, Tool};

use super::scripted_upstream::{ScriptedUpstream, tool};

async fn fetcher() -> Gateway {
    let anything = json!({ "type": "object" });
    Gateway::start(vec![Tool::new("fetch", "Fetches.", anything, |_| Answer::text("page"))]).await
}

fn reason(answer: &Value) -> &str {
    answer["error"]["data"]["reason"].as_str().unwrap_or_default()
}

/// A rule about an address applies to every notation that a fetcher accepts for it, anywhere in the
/// arguments.
#[tokio::test]
async fn rule_is_not_evaded_by_another_notation() {
    let server = fetcher().await;
    let gateway = GatewayProcess::start().await;
    gateway.install("web", &server.url()).await;
    let manager = gateway.manager().await;
    let rule =
        json!({ "effect": "deny", "tool": "web.*", "argument": "/url", "matches": "https://intranet.*" });
    gateway.must("POST", "/api/v1/rules", Some(rule)).await;
    for url in [
        "https://intranet.example/x",
        "HTTPS://intranet.example/x",
        "https://Intranet.example/x",
        " https://intranet.example/x",
        "https:/intranet.example/x",
        "https:\\\\intranet.example\\x",
        "https://intra\tnet.example/x",
        "https://intranet\u{ff0e}example/x",
        "https://intranet.example:443/x",
        "https://%69ntranet.example/x",
    ] {
        for arguments in [
            json!({ "url": url }),
            json!({ "URL": url }),
            json!({ "urls": ["https://example.com/", url] }),
            json!({ "url": "https://example.com/", "options": { "then": [{ "go": url }] } }),
            json!({ "request": json!({ "target": url }).to_string() }),
        ] {
            let (_, answer) = gateway.post_call(&manager, "web.fetch", arguments.clone()).await;
            assert_eq!(reason(&answer), "rule", "{arguments}: {answer}");
        }
    }
    for text in ["intranet.example/x", "//Intranet.example/x", "intranet\u{3002}example"] {
        for arguments in [json!({ "url": text }), json!({ "target": text }), json!({ "a": [{ "b": text }] })]
        {
            let (_, answer) = gateway.post_call(&manager, "web.fetch", arguments.clone()).await;
            assert_eq!(reason(&answer), "rule", "{arguments}: {answer}");
        }
    }
    assert!(server.calls().is_empty(), "no call reached the upstream");
    let (_, answer) =
        gateway.post_call(&manager, "web.fetch", json!({ "url": "https://example.com/" })).await;
    assert_eq!(answer["result"]["content"][0]["text"], "page", "{answer}");
}

/// A rule that allows some addresses allows no others in the same call.
#[tokio::test]
async fn allowed_address_does_not_allow_another_in_the_same_call() {
    let server = fetcher().await;
    let gateway = GatewayProcess::start().await;
    gateway.install("web", &server.url()).await;
    let manager = gateway.manager().await;
    let allow = json!({
        "effect": "allow", "tool": "web.*", "argument": "/url", "matches": "https://*.example.com/*",
    });
    gateway.must("POST", "/api/v1/rules", Some(allow)).await;
    gateway.must("POST", "/api/v1/rules", Some(json!({ "effect": "deny", "tool": "web.*" }))).await;
    for arguments in [
        json!({ "url": "https://evil.example\\.example.com/x" }),
        json!({ "url": "https://evil.example/.example.com/x" }),
        json!({ "url": "https://www.example.com/x", "URL": "https://evil.example/" }),
        json!({ "url": "https://www.example.com/x", "mirrors": ["https://evil.example/"] }),
    ] {
        let (_, answer) = gateway.post_call(&manager, "web.fetch", arguments.clone()).await;
        assert_eq!(reason(&answer), "rule", "{arguments}: {answer}");
    }
    assert!(server.calls().is_empty());
    for url in ["https://www.example.com/x", "HTTPS://WWW.EXAMPLE.COM/x"] {
        let (_, answer) = gateway.post_call(&manager, "web.fetch", json!({ "url": url })).await;
        assert_eq!(answer["result"]["content"][0]["text"], "page", "{url}: {answer}");
    }
}

/// No internal address reaches a fetcher, under any argument name and at any depth.
#[tokio::test]
async fn address_guard_checks_every_string() {
    let server = fetcher().await;
    let gateway = GatewayProcess::start().await;
    gateway.install("web", &server.url()).await;
    let manager = gateway.manager().await;
    for url in
        ["http://127.0.0.1:8791/api/v1/tokens", "HTTP://LocalHost/", "http:\\\\10.0.0.8\\", "//10.0.0.8/x"]
    {
        for arguments in [
            json!({ "URL": url }),
            json!({ "urls": ["https://example.com/", url] }),
            json!({ "a": { "b": [[{ "c": url }]] } }),
            json!({ "request": json!({ "go": url }).to_string() }),
        ] {
            let (_, answer) = gateway.post_call(&manager, "web.fetch", arguments.clone()).await;
            assert_eq!(reason(&answer), "forbidden_address", "{arguments}: {answer}");
        }
    }
    assert!(server.calls().is_empty());
}

/// The address of a user's upstream is resolved and checked on each connection. A name that resolves to an
/// internal address by then is refused.
#[tokio::test]
async fn address_of_a_users_upstream_is_checked_on_each_connection() {
    let inside = ScriptedUpstream::start(json!([tool("steal")])).await;
    let gateway = GatewayProcess::start().await;
    let ada = gateway.issue(json!({ "label": "ada", "agent": "user", "user_id": "ada" })).await.1;
    let new = json!({ "namespace": "mine", "transport": { "http": { "url": "https://tools.invalid/mcp" } } });
    let added = gateway.ask_as(&ada, "POST", "/api/v1/upstreams", Some(new.clone())).await;
    assert_eq!(added.status, 201, "{added:?}");
    // The name now resolves to this machine. Nothing in the text of a name shows that, so the test puts such
    // a name into the row.
    let port = inside.server.url().rsplit_once(':').unwrap().1.split('/').next().unwrap().to_owned();
    for host in ["localhost", "127.0.0.1", "[::ffff:127.0.0.1]"] {
        let db = Database::connect(gateway.store_url()).await.unwrap();
        let row = upstream::Entity::find_by_id("mine").one(&db).await.unwrap().unwrap();
        let mut transport: Value = serde_json::from_str(&row.transport).unwrap();
        transport["http"]["url"] = json!(format!("http://{host}:{port}/mcp"));
        let mut change = upstream::ActiveModel::from(row);
        change.transport = Set(transport.to_string());
        change.update(&db).await.unwrap();
        db.close().await.unwrap();
        let asked = gateway.ask("POST", "/api/v1/upstreams/mine/refresh", None).await;
        assert_eq!(asked.status, 502, "{host}: {asked:?}");
        assert!(
            inside.server.seen().is_empty(),
            "{host}: the internal server was reached: {:?}",
            inside.server.seen()
        );
    }
    // A user cannot ask for a wider reach.
    let anywhere = json!({ "http": { "url": "https://tools.invalid/mcp", "reach": "anywhere" } });
    let asked =
        gateway.ask_as(&ada, "PATCH", "/api/v1/upstreams/mine", Some(json!({ "transport": anywhere }))).await;
    assert_eq!(asked.status, 403, "{asked:?}");
    // An administrator may install an internal upstream, also for a user.
    let theirs = json!({
        "namespace": "theirs", "owner": "ada",
        "transport": { "http": { "url": format!("http://localhost:{port}/mcp") } },
    });
    let added = gateway.must("POST", "/api/v1/upstreams", Some(theirs)).await;
    assert!(added["problem"].is_null(), "{added}");
    assert!(!inside.server.seen().is_empty());
}
