//! Enabling, scopes, access rules, settings and catalogues.

use serde_json::{Value, json};
use testkit::GatewayProcess;

use super::support::{manager, seen};

const LIST: &str = "db.project.list";
const GET: &str = "db.project.get";

fn path(tool: &str) -> String {
    format!("/api/v1/tools/{tool}")
}

#[tokio::test]
async fn disabled_tool_is_neither_listed_nor_callable_at_once() {
    let gateway = GatewayProcess::start().await;
    let agent = manager(&gateway).await;
    assert!(seen(&agent).await.contains(&LIST.to_owned()));
    let tool = gateway.must("PATCH", &path(LIST), Some(json!({ "enabled": false }))).await;
    assert_eq!((&tool["enabled"], &tool["scope"]), (&json!(false), &json!("pm")));
    let error = gateway.call(&agent, LIST, json!({})).await.expect_err("it is off");
    assert!(
        error.to_string().contains("Unknown tool"),
        "a disabled tool reads like one that does not exist: {error}"
    );
    assert!(!seen(&agent).await.contains(&LIST.to_owned()));
    gateway.must("PATCH", &path(LIST), Some(json!({ "enabled": true }))).await;
    gateway.call(&agent, LIST, json!({})).await.expect("an enabled tool");
    assert_eq!(gateway.ask("PATCH", &path("no.such.tool"), Some(json!({}))).await.status, 404);
}

#[tokio::test]
async fn tool_is_only_for_agents_of_its_scope() {
    let gateway = GatewayProcess::start().await;
    let agent = manager(&gateway).await;
    gateway.must("PATCH", &path(LIST), Some(json!({ "scope": "sandbox" }))).await;
    assert!(!seen(&agent).await.contains(&LIST.to_owned()));
    gateway.call(&agent, LIST, json!({})).await.expect_err("it is for sandboxes");
    let tool = gateway.must("PATCH", &path(LIST), Some(json!({ "scope": "pm" }))).await;
    assert_eq!((&tool["enabled"], &tool["scope"]), (&json!(true), &json!("pm")));
    gateway.call(&agent, LIST, json!({})).await.expect("a tool for managers");
    let wrong = gateway.ask("PATCH", &path(LIST), Some(json!({ "scope": "everyone" }))).await;
    assert_eq!(wrong.status, 400, "{wrong:?}");
    // Fields that are not in the request stay unchanged.
    gateway.must("PATCH", &path(LIST), Some(json!({ "enabled": false }))).await;
    let tool = gateway.must("GET", &path(LIST), None).await;
    assert_eq!((&tool["enabled"], &tool["scope"]), (&json!(false), &json!("pm")));
    assert_eq!(tool["input_schema"]["type"], "object");
}

#[tokio::test]
async fn rules_match_arguments_and_the_first_match_decides() {
    let gateway = GatewayProcess::start().await;
    let agent = manager(&gateway).await;
    for id in ["secret-1", "secret-2", "open-1"] {
        let project = json!({ "name": id, "title": "Apollo" });
        gateway.must("PUT", &format!("/api/v1/projects/{id}"), Some(project)).await;
    }
    let deny =
        json!({ "effect": "deny", "tool": "db.project.*", "argument": "/project_id", "matches": "secret-*" });
    let deny = gateway.must("POST", "/api/v1/rules", Some(deny)).await;
    let ask = async |id: &str| gateway.call(&agent, GET, json!({ "project_id": id })).await;
    let error = ask("secret-1").await.expect_err("the rule denies it");
    assert!(error.to_string().contains("access rule"), "{error}");
    ask("open-1").await.expect("no rule applies");

    let allow = json!({
        "effect": "allow", "tool": GET, "argument": "/project_id", "matches": "secret-2", "position": 1,
        "note": "but this one",
    });
    let allow = gateway.must("POST", "/api/v1/rules", Some(allow)).await;
    assert_eq!(allow["position"], 1);
    ask("secret-2").await.expect("the first rule allows it");
    ask("secret-1").await.expect_err("the second still denies");
    let ids = json!({ "ids": [deny["id"], allow["id"]] });
    let rules = gateway.must("PUT", "/api/v1/rules/order", Some(ids)).await;
    assert_eq!((&rules[0]["id"], &rules[1]["position"]), (&deny["id"], &json!(2)));
    ask("secret-2").await.expect_err("now the one that denies is first");
    let half = json!({ "ids": [deny["id"]] });
    assert_eq!(gateway.ask("PUT", "/api/v1/rules/order", Some(half)).await.status, 409);
    let rule = format!("/api/v1/rules/{}", deny["id"].as_str().expect("an id"));
    gateway.must("DELETE", &rule, None).await;
    ask("secret-1").await.expect("the rule is gone");
    assert_eq!(gateway.ask("DELETE", &rule, None).await.status, 404);

    for (new, field) in [
        (json!({ "effect": "deny", "tool": "d*b" }), "tool"),
        (json!({ "effect": "deny", "tool": "db.*", "argument": "/url" }), "matches"),
        (json!({ "effect": "deny", "tool": "db.*", "matches": "x" }), "argument"),
        (json!({ "effect": "deny", "tool": "db.*", "argument": "url", "matches": "x" }), "argument"),
    ] {
        let answered = gateway.ask("POST", "/api/v1/rules", Some(new.clone())).await;
        assert_eq!(
            (answered.status, &answered.body["error"]["field"]),
            (422, &json!(field)),
            "{new}: {answered:?}"
        );
    }
}

/// Managers act for a user under a lease.
#[tokio::test]
async fn rule_can_be_about_the_managers_of_one_user() {
    let gateway = GatewayProcess::start().await;
    let agent = manager(&gateway).await;
    let (_, of_ada) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    let (_, of_eve) = gateway.lease(json!({ "agent": "project_manager", "user_id": "eve" })).await;
    let deny = json!({ "effect": "deny", "tool": LIST, "agent": "project_manager", "user_id": "ada" });
    let deny = gateway.must("POST", "/api/v1/rules", Some(deny)).await;
    assert_eq!((&deny["agent"], &deny["user_id"]), (&json!("project_manager"), &json!("ada")));
    let error = gateway.call_under(&agent, Some(&of_ada), LIST, json!({})).await.expect_err("denied");
    assert!(error.to_string().contains("access rule"), "{error}");
    gateway.call_under(&agent, Some(&of_eve), LIST, json!({})).await.expect("the rule is about ada");
    gateway.call(&agent, LIST, json!({})).await.expect("it acts for no user");
}

#[tokio::test]
async fn settings_have_versions_and_enable_gated_tools() {
    let gateway = GatewayProcess::start().await;
    let path = "/api/v1/settings/limits.tasks";
    assert_eq!(gateway.ask("GET", path, None).await.status, 404);
    let set = gateway.must("PUT", path, Some(json!({ "value": { "most": 5 }, "version": 0 }))).await;
    assert_eq!((&set["version"], &set["value_type"]), (&json!(1), &json!("object")));
    assert_eq!(gateway.ask("PUT", path, Some(json!({ "value": 1, "version": 0 }))).await.status, 409);
    let set = gateway.must("PUT", path, Some(json!({ "value": 7 }))).await;
    assert_eq!((&set["version"], &set["value"]), (&json!(2), &json!(7)));
    assert_eq!(gateway.ask("DELETE", &format!("{path}?version=1"), None).await.status, 409);
    gateway.must("DELETE", &format!("{path}?version=2"), None).await;
    assert_eq!(gateway.ask("GET", path, None).await.status, 404);

    let switch = "sandbox.allowed_images.agents_may_add";
    let path = format!("/api/v1/settings/{switch}");
    let known = gateway.must("GET", &path, None).await;
    assert_eq!((&known["value"], &known["version"]), (&json!(false), &json!(0)));
    assert_eq!(gateway.ask("PUT", &path, Some(json!({ "value": "yes" }))).await.status, 422);
    let agent = manager(&gateway).await;
    let gated: Vec<String> = gateway
        .must("GET", "/api/v1/tools", None)
        .await
        .as_array()
        .expect("a list")
        .iter()
        .filter(|tool| tool["gate"]["setting"] == switch)
        .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
        .collect();
    for open in [true, false] {
        gateway.must("PUT", &path, Some(json!({ "value": open }))).await;
        let names = seen(&agent).await;
        for tool in &gated {
            let told: Value = gateway.must("GET", &format!("/api/v1/tools/{tool}"), None).await;
            assert_eq!(told["gate"]["open"], open, "{tool}");
            assert_eq!(names.contains(tool), open, "{tool}");
        }
    }
}

/// P24: agents list and add allowed images only while the system setting permits it.
#[tokio::test]
async fn both_tools_for_allowed_images_depend_on_the_setting() {
    let gateway = GatewayProcess::start().await;
    let agent = manager(&gateway).await;
    let setting = "sandbox.allowed_images.agents_may_add";
    for open in [false, true, false] {
        let value = json!({ "value": open });
        gateway.must("PUT", &format!("/api/v1/settings/{setting}"), Some(value)).await;
        let names = seen(&agent).await;
        for (tool, arguments) in [
            ("sandbox.allowed_images.add", json!({ "image": "alpine:3.20" })),
            ("sandbox.allowed_images.list", json!({})),
        ] {
            let shown = gateway.must("GET", &path(tool), None).await;
            assert_eq!(shown["gate"], json!({ "setting": setting, "open": open }), "{tool}");
            assert_eq!(names.iter().any(|name| name == tool), open, "{tool}");
            match gateway.call(&agent, tool, arguments).await {
                Ok(reply) => assert!(open && !reply.is_error, "{tool}: {}", reply.text),
                Err(error) => {
                    assert!(!open && error.to_string().contains("Unknown tool"), "{tool}: {error}");
                }
            }
        }
    }
}

#[tokio::test]
async fn catalogue_entries_are_put_read_and_deleted() {
    let gateway = GatewayProcess::start().await;
    for (path, new) in [
        ("/api/v1/projects/p1", json!({ "name": "apollo", "title": "Apollo", "description": "To the moon" })),
        ("/api/v1/personas/reviewer", json!({ "name": "reviewer", "content": "You review." })),
        ("/api/v1/models/m1", json!({ "name": "m", "provider": "local", "context_tokens": 8192 })),
    ] {
        let put = gateway.must("PUT", path, Some(new.clone())).await;
        assert_eq!(put["name"], new["name"]);
        let list = path.rsplit_once('/').expect("a path").0;
        assert_eq!(gateway.must("GET", list, None).await.as_array().expect("a list").len(), 1);
        gateway.must("PUT", path, Some(new)).await;
        if !path.contains("projects") {
            gateway.must("DELETE", path, None).await;
            assert_eq!(gateway.ask("DELETE", path, None).await.status, 404);
        }
    }
    let twin = json!({ "name": "apollo", "title": "Another" });
    assert_eq!(gateway.ask("PUT", "/api/v1/projects/p2", Some(twin)).await.status, 409);
    let agent = manager(&gateway).await;
    let reply = gateway.call(&agent, GET, json!({ "project_id": "p1" })).await.expect("a stored project");
    assert!(format!("{reply:?}").contains("To the moon"));
}
