//! Upstreams and their owners.

use sea_orm::EntityTrait;
use serde_json::{Value, json};
use store::entity::{tool_setting, upstream_tool};
use testkit::GatewayProcess;

use super::support::{UPSTREAMS, manager, offer, offered, seen, server, store, user};

fn with(mut base: Value, more: Value) -> Value {
    let (Some(base_map), Value::Object(more)) = (base.as_object_mut(), more) else { panic!("two objects") };
    base_map.extend(more);
    base
}

#[tokio::test]
async fn upstream_is_installed_changed_disabled_and_removed_with_its_tools() {
    let gateway = GatewayProcess::start().await;
    let added = gateway.must("POST", UPSTREAMS, Some(server("calendar"))).await;
    assert!(added["problem"].is_string() && added["refreshed"].is_null(), "no server listens there: {added}");
    assert_eq!(added["upstream"]["namespace"], "calendar");

    let db = store(&gateway).await;
    let hash = offer(&db, "calendar", "events", None, &offered("events", "Lists events.")).await;
    let approve = "/api/v1/quarantine/calendar/events/approve";
    gateway.must("POST", approve, Some(json!({ "hash": hash }))).await;
    let agent = manager(&gateway).await;
    let name = "calendar.events".to_owned();
    assert!(seen(&agent).await.contains(&name));
    gateway.must("PATCH", "/api/v1/tools/calendar.events", Some(json!({ "scope": "both" }))).await;

    let path = format!("{UPSTREAMS}/calendar");
    let change = json!({
        "call_timeout": "5s", "concurrency": 2,
        "transport": { "http": { "url": "http://127.0.0.1:2/?key=hidden" } },
    });
    let changed = gateway.must("PATCH", &path, Some(change)).await;
    assert_eq!((&changed["call_timeout"], &changed["concurrency"]), (&json!("5s"), &json!(2)));
    assert!(!changed.to_string().contains("hidden"), "{changed}");
    gateway.must("POST", &format!("{path}/disable"), None).await;
    assert!(!seen(&agent).await.contains(&name));
    gateway.must("POST", &format!("{path}/enable"), None).await;
    assert!(seen(&agent).await.contains(&name));
    assert_eq!(gateway.must("GET", &path, None).await["tools"]["approved"], 1);

    gateway.must("DELETE", &path, None).await;
    gateway.call(&agent, &name, json!({})).await.expect_err("it is gone");
    assert!(!seen(&agent).await.contains(&name));
    assert_eq!(gateway.ask("GET", "/api/v1/tools/calendar.events", None).await.status, 404);
    assert_eq!(gateway.ask("GET", &path, None).await.status, 404);
    assert!(upstream_tool::Entity::find().all(&db).await.expect("rows").is_empty());
    assert!(tool_setting::Entity::find().all(&db).await.expect("rows").is_empty());
}

#[tokio::test]
async fn invalid_upstreams_are_not_installed() {
    let gateway = GatewayProcess::start_with(&[("upstreams.stdio", "false")]).await;
    gateway.must("POST", UPSTREAMS, Some(server("billing"))).await;
    let at = |url: &str| with(server("notes"), json!({ "transport": { "http": { "url": url } } }));
    let stdio = |stdio: Value| with(server("notes"), json!({ "transport": { "stdio": stdio } }));
    for (new, status) in [
        (server("Billing"), 422),
        (server("bi11ing"), 422),
        (server("g1t"), 422),
        (server("x"), 422),
        (server("billing"), 409),
        (at("ftp://example.com"), 422),
        (at("http://user:word@example.com"), 422),
        (at("nonsense"), 422),
        (
            with(
                server("notes"),
                json!({ "transport": { "http": { "url": "http://a", "token_file": "here" } } }),
            ),
            422,
        ),
        (with(server("notes"), json!({ "call_timeout": "1year" })), 422),
        (with(server("notes"), json!({ "concurrency": 0 })), 422),
        (with(server("notes"), json!({ "transport": { "pigeon": {} } })), 400),
        (with(server("notes"), json!({ "colour": "red" })), 400),
        (stdio(json!({ "argv": ["/bin/cat"] })), 403),
    ] {
        let answered = gateway.ask("POST", UPSTREAMS, Some(new.clone())).await;
        assert_eq!(answered.status, status, "{new}: {answered:?}");
    }
    assert_eq!(
        gateway.ask("POST", UPSTREAMS, Some(server("git"))).await.status,
        201,
        "administrators may use this namespace"
    );
}

#[tokio::test]
async fn users_manage_only_their_own_upstreams() {
    let gateway = GatewayProcess::start().await;
    // A host name that cannot be resolved.
    let outside = |namespace: &str| {
        with(server(namespace), json!({ "transport": { "http": { "url": "https://tools.invalid/mcp" } } }))
    };
    let (alice, bob) = (user(&gateway, "alice").await, user(&gateway, "bob").await);
    let answered = gateway.ask_as(&alice, "POST", UPSTREAMS, Some(outside("alices-notes"))).await;
    assert_eq!((answered.status, &answered.body["upstream"]["owner"]), (201, &json!("alice")));
    gateway.must("POST", UPSTREAMS, Some(server("shared"))).await;
    let program = json!({ "transport": { "stdio": { "argv": ["/bin/cat"] } } });
    let file = json!({ "transport": { "http": { "url": "http://a", "token_file": "/etc/passwd" } } });
    for (new, status) in [
        (outside("git"), 422),
        (outside("admin"), 422),
        (server("other"), 403),
        (with(outside("other"), program), 403),
        (with(outside("other"), file), 403),
        (with(outside("other"), json!({ "prefix": false })), 403),
        (with(outside("other"), json!({ "trust_first": true })), 403),
        (with(outside("other"), json!({ "owner": "bob" })), 403),
    ] {
        let answered = gateway.ask_as(&alice, "POST", UPSTREAMS, Some(new.clone())).await;
        assert_eq!(answered.status, status, "{new}: {answered:?}");
    }
    let refused = gateway.must("GET", "/api/v1/audit?agent=user&decision=deny", None).await;
    assert_eq!(refused.as_array().expect("rows").len(), 6, "attempts are recorded: {refused}");

    let db = store(&gateway).await;
    offer(&db, "alices-notes", "find", None, &offered("find", "Finds notes.")).await;
    let listed = gateway.ask_as(&alice, "GET", UPSTREAMS, None).await.body;
    assert_eq!(listed.as_array().expect("a list").len(), 1, "{listed}");
    let tools = gateway.ask_as(&alice, "GET", "/api/v1/tools", None).await.body;
    assert_eq!(tools.as_array().expect("a list").len(), 1, "{tools}");
    let tool = "/api/v1/tools/alices-notes.find";
    let set = gateway.ask_as(&alice, "PATCH", tool, Some(json!({ "scope": "sandbox" }))).await;
    assert_eq!((set.status, &set.body["scope"]), (200, &json!("sandbox")));
    assert_eq!(
        gateway.ask_as(&alice, "PATCH", tool, Some(json!({ "safe_to_repeat": true }))).await.status,
        403
    );
    for path in ["/api/v1/tools/db.project.list", &format!("{UPSTREAMS}/shared")] {
        assert_eq!(gateway.ask_as(&alice, "GET", path, None).await.status, 404, "{path}");
    }
    // An upstream of another user reads like one that does not exist.
    for (method, path) in [
        ("GET", "/api/v1/upstreams/alices-notes"),
        ("DELETE", "/api/v1/upstreams/alices-notes"),
        ("POST", "/api/v1/upstreams/alices-notes/refresh"),
        ("POST", "/api/v1/quarantine/alices-notes/find/reject"),
        ("GET", tool),
    ] {
        assert_eq!(gateway.ask_as(&bob, method, path, None).await.status, 404, "{method} {path}");
    }
    for path in
        ["tokens", "rules", "settings", "projects", "audit", "audit/export", "audit/tail", "audit/heads"]
    {
        let answered = gateway.ask_as(&bob, "GET", &format!("/api/v1/{path}"), None).await;
        assert_eq!(answered.status, 403, "{path}: {answered:?}");
    }
    assert_eq!(
        gateway.ask_as(&alice, "DELETE", &format!("{UPSTREAMS}/alices-notes"), None).await.status,
        204
    );
}
