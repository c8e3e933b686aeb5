//! Issuing, expiry and revocation of tokens.

use std::time::Duration;

use sea_orm::EntityTrait;
use serde_json::{Value, json};
use store::entity::task;
use testkit::{GatewayProcess, eventually_within};

use super::support::{TOKENS, seen, store};

#[tokio::test]
async fn token_is_valid_until_revoked_and_its_secret_is_stored_nowhere() {
    let gateway = GatewayProcess::start_with(&[("telemetry.log_level", "debug")]).await;
    let (id, secret) = gateway.issue(json!({ "label": "manager", "agent": "project_manager" })).await;
    let agent = gateway.agent(&secret);
    assert!(seen(&agent).await.contains(&"db.project.list".to_owned()));
    gateway.call(&agent, "db.project.list", json!({})).await.expect("a permitted call");

    let listed = gateway.must("GET", TOKENS, None).await;
    let text = listed.to_string();
    assert!(!text.contains(&secret) && !text.contains("hash"), "{text}");
    let state = |listed: &Value| {
        let tokens = listed.as_array().expect("a list").clone();
        tokens.into_iter().find(|token| token["id"] == *id).expect("a listed token")["state"].clone()
    };
    assert_eq!(state(&listed), "active");

    let revoked = gateway.must("DELETE", &format!("{TOKENS}/{id}"), None).await;
    assert_eq!(revoked["state"], "revoked");
    gateway.call(&agent, "db.project.list", json!({})).await.expect_err("it is worth nothing, at once");
    assert!(agent.tools().await.is_err());
    assert_eq!(state(&gateway.must("GET", TOKENS, None).await), "revoked");
    let active = gateway.must("GET", &format!("{TOKENS}?state=active"), None).await;
    assert!(active.as_array().expect("a list").iter().all(|token| token["id"] != *id));
    // Revoking is idempotent; an unknown token is not found.
    assert_eq!(gateway.ask("DELETE", &format!("{TOKENS}/{id}"), None).await.status, 200);
    assert_eq!(gateway.ask("DELETE", &format!("{TOKENS}/nonsense"), None).await.status, 404);

    let rows = gateway.must("GET", &format!("/api/v1/audit?subject={id}"), None).await;
    let rows = rows.as_array().expect("rows").clone();
    assert_eq!(rows[0]["error_type"], "revoked_token", "{rows:?}");
    assert!(rows.iter().any(|row| row["status"] == "success" && row["agent"] == "project_manager"));
    let changes = gateway.must("GET", "/api/v1/audit?tool=admin.token.*", None).await;
    assert_eq!(changes.as_array().expect("rows").len(), 2, "{changes}");

    let log = gateway.log();
    for secret in [&secret, &gateway.admin_token()] {
        assert!(!log.contains(secret.as_str()), "the log contains a secret");
    }
}

#[tokio::test]
async fn token_is_valid_until_it_expires() {
    let gateway = GatewayProcess::start().await;
    let new = json!({ "label": "short", "agent": "project_manager", "lives": "2s" });
    let (id, secret) = gateway.issue(new).await;
    let agent = gateway.agent(&secret);
    assert!(!seen(&agent).await.is_empty());
    eventually_within(Duration::from_secs(10), "the token to expire", || async {
        agent.tools().await.err().map(|_| ())
    })
    .await;
    let expired = gateway.must("GET", &format!("{TOKENS}?state=expired"), None).await;
    assert_eq!(expired[0]["id"], *id);
}

#[tokio::test]
async fn invalid_tokens_are_not_issued() {
    let gateway = GatewayProcess::start().await;
    let row = task::Model {
        id: "task-of-bob".into(),
        name: "n".into(),
        title: "t".into(),
        description: String::new(),
        acceptance_criteria: "[]".into(),
        status: "todo".into(),
        project_id: None,
        scope_key: "user:bob".into(),
        user_id: Some("bob".into()),
        parent_task_id: None,
        schedule_id: None,
        run_id: None,
        position: 0,
        version: 1,
        created_at: 1,
        updated_at: 1,
    };
    task::Entity::insert(task::ActiveModel::from(row)).exec(&store(&gateway).await).await.expect("a task");
    for (new, field) in [
        (json!({ "label": " ", "agent": "project_manager" }), "label"),
        (json!({ "label": "a\nb", "agent": "project_manager" }), "label"),
        (json!({ "label": "x", "agent": "project_manager", "user_id": "u" }), "user_id"),
        (json!({ "label": "x", "agent": "project_manager", "task_id": "t" }), "task_id"),
        (json!({ "label": "x", "agent": "sandbox", "task_id": "t" }), "user_id"),
        (json!({ "label": "x", "agent": "orchestrator", "user_id": "u" }), "user_id"),
        (json!({ "label": "x", "agent": "sandbox", "user_id": "u" }), "task_id"),
        (json!({ "label": "x", "agent": "project_analyst", "task_id": "t" }), "user_id"),
        (json!({ "label": "x", "agent": "user" }), "user_id"),
        // An orchestrator could not serve this user.
        (json!({ "label": "x", "agent": "user", "user_id": "a/b" }), "user_id"),
        (json!({ "label": "x", "agent": "admin", "user_id": "no user" }), "user_id"),
        (json!({ "label": "x", "agent": "admin", "user_id": "u", "task_id": "t" }), "task_id"),
        (json!({ "label": "x", "agent": "project_manager", "lives": "0s" }), "lives"),
        (json!({ "label": "x", "agent": "project_manager", "lives": "2years" }), "lives"),
        (
            json!({ "label": "x", "agent": "sandbox", "user_id": "u", "task_id": "t", "lives": "31days" }),
            "lives",
        ),
        (json!({ "label": "x", "agent": "project_manager", "lives": "soon" }), "lives"),
        (json!({ "label": "x", "agent": "sandbox", "user_id": "a b", "task_id": "t" }), "user_id"),
        (
            json!({ "label": "x", "agent": "sandbox", "user_id": "alice", "task_id": "task-of-bob" }),
            "task_id",
        ),
    ] {
        let answered = gateway.ask("POST", TOKENS, Some(new.clone())).await;
        assert_eq!(
            (answered.status, &answered.body["error"]["field"]),
            (422, &json!(field)),
            "{new}: {answered:?}"
        );
    }
    gateway
        .issue(json!({ "label": "x", "agent": "sandbox", "user_id": "bob", "task_id": "task-of-bob" }))
        .await;
    // Administrators cannot revoke their own token by mistake.
    let me = gateway.must("GET", "/api/v1/me", None).await;
    let own = format!("{TOKENS}/{}", me["token_id"].as_str().expect("an id"));
    assert_eq!(gateway.ask("DELETE", &own, None).await.status, 409);
}

/// Labels and users are stored and shown as they are.
#[tokio::test]
async fn names_of_tokens_hold_no_secret() {
    let gateway = GatewayProcess::start_with(&[("telemetry.log_level", "debug")]).await;
    let secret = format!("sk-{}", "Q7rT2mZx9LkW4vNc8BdY5hJp");
    for (new, field) in [
        (json!({ "label": secret, "agent": "user", "user_id": "alice" }), "label"),
        (json!({ "label": format!("password={secret}"), "agent": "project_manager" }), "label"),
        (json!({ "label": "x", "agent": "user", "user_id": secret }), "user_id"),
    ] {
        let refused = gateway.ask("POST", TOKENS, Some(new)).await;
        assert_eq!((refused.status, &refused.body["error"]["field"]), (422, &json!(field)), "{refused:?}");
        let text = refused.body.to_string();
        assert!(text.contains("contains a secret") && !text.contains(&secret), "{text}");
    }
    let stored = gateway.must("GET", TOKENS, None).await.to_string();
    assert!(!stored.contains(&secret) && !gateway.log().contains(&secret), "{stored}");
    gateway
        .issue(json!({ "label": "Token of the laptop", "agent": "user", "user_id": "oidc:a@b.example" }))
        .await;
}
