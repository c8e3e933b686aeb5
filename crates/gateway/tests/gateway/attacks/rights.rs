//! Agents that try to extend their own rights.

use policy::{Switch, is_governing};

use serde_json::{Value, json};
use testkit::GatewayProcess;

const SWITCH: &str = "sandbox.allowed_images.agents_may_add";
const IMAGE_TOOLS: [&str; 2] = ["sandbox.allowed_images.add", "sandbox.allowed_images.list"];

fn code(answer: &Value) -> &str {
    answer["result"]["structuredContent"]["code"].as_str().unwrap_or_default()
}

async fn image_tools(gateway: &GatewayProcess, token: &str) -> Vec<String> {
    let mut seen = gateway.tools(token).await;
    seen.retain(|name| IMAGE_TOOLS.contains(&name.as_str()));
    seen
}

/// G13: a manager may write system settings, but not those that control agents: it can neither set, change
/// nor remove them, in any spelling of the key.
#[tokio::test]
async fn agent_cannot_enable_its_own_gated_tools() {
    let gateway = GatewayProcess::start().await;
    let manager = gateway.manager().await;
    let path = format!("/api/v1/settings/{SWITCH}");
    for key in [
        SWITCH.to_owned(),
        SWITCH.to_uppercase(),
        format!(" {SWITCH}"),
        format!("{SWITCH} "),
        format!("{SWITCH}."),
        format!(".{SWITCH}"),
        format!("{SWITCH}\u{0}"),
        "sandbox.allowed_images.agents_may_ad\u{ff44}".to_owned(),
        "agents.project_manager.model_routing.allowed_external_providers".to_owned(),
        "agents.anything".to_owned(),
        "profile.default.network".to_owned(),
        "profile.team-a.network".to_owned(),
        "PROFILE.team-a.network".to_owned(),
        "profile.anything".to_owned(),
    ] {
        for (tool, arguments) in [
            ("db.system_setting.create", json!({ "key": key, "value": true })),
            ("db.system_setting.update", json!({ "key": key, "value": true })),
            ("db.system_setting.delete", json!({ "key": key })),
        ] {
            let (_, answer) = gateway.post_call(&manager, tool, arguments).await;
            let refused = ["read_only", "invalid_arguments"].contains(&code(&answer));
            assert!(refused, "{tool} {key:?}: {answer}");
        }
    }
    assert!(image_tools(&gateway, &manager).await.is_empty(), "the gated tools are disabled");
    for tool in IMAGE_TOOLS {
        let (_, answer) = gateway.post_call(&manager, tool, json!({ "image": "alpine:3.20" })).await;
        assert_eq!(answer["error"]["message"], format!("Unknown tool: {tool}"), "{answer}");
    }
    // An administrator enables it, and the agent cannot change that either.
    gateway.must("PUT", &path, Some(json!({ "value": true }))).await;
    assert_eq!(image_tools(&gateway, &manager).await, IMAGE_TOOLS, "P24: list and add depend on the setting");
    for (tool, arguments) in [
        ("db.system_setting.update", json!({ "key": SWITCH, "value": null })),
        ("db.system_setting.delete", json!({ "key": SWITCH })),
    ] {
        let (_, answer) = gateway.post_call(&manager, tool, arguments).await;
        assert_eq!(code(&answer), "read_only", "{tool}: {answer}");
    }
    assert_eq!(gateway.must("GET", &path, None).await["value"], true);
    // A manager may still write other settings.
    let (_, answer) =
        gateway.post_call(&manager, "db.system_setting.create", json!({ "key": "motto", "value": 1 })).await;
    assert_eq!(answer["result"]["structuredContent"]["version"], 1, "{answer}");
    // The refusal is in the audit.
    assert!(!gateway.audit("tool=db.system_setting.update&error_type=read_only").await.is_empty());
}

/// A value that an agent wrote before this rule existed has no effect.
#[tokio::test]
async fn setting_that_an_agent_wrote_has_no_effect() {
    use sea_orm::{ActiveModelTrait, Database, IntoActiveModel};
    use store::entity::system_setting;
    let mut gateway = GatewayProcess::start().await;
    let manager = gateway.manager().await;
    let row = system_setting::Model {
        key: SWITCH.to_owned(),
        value: "true".to_owned(),
        value_type: "boolean".to_owned(),
        version: 1,
        updated_at: 1,
        updated_by: "project_manager:tok-1".to_owned(),
    };
    gateway.kill();
    let db = Database::connect(gateway.store_url()).await.unwrap();
    row.into_active_model().insert(&db).await.unwrap();
    db.close().await.unwrap();
    gateway.start_again().await;
    assert!(image_tools(&gateway, &manager).await.is_empty());
    let told = gateway.must("GET", "/api/v1/tools/sandbox.allowed_images.add", None).await;
    assert_eq!(told["gate"]["open"], false, "{told}");
}

/// Agents cannot write the preferences that set their context and their models, in any scope.
#[tokio::test]
async fn agent_cannot_write_preferences_that_control_agents() {
    let gateway = GatewayProcess::start().await;
    let manager = gateway.manager().await;
    let keys = [
        "agents.project_manager.model_routing.allowed_external_providers",
        "agents.project_analyst.model_routing.allowed_external_providers",
        "agents.project_manager.model_routing.fallback_provider_order",
        "agents.project_manager.model_routing.prefer_local",
        "agents.project_manager.additional_context",
        "agents.project_analyst.additional_context",
        "profile.team-a.network",
        SWITCH,
    ];
    let places = [
        ("system", None),
        ("group", Some("g-1")),
        ("user", Some("u-1")),
        ("project", Some("p-1")),
        ("task", Some("t-1")),
    ];
    for key in keys {
        for (scope, id) in places {
            let at = json!({ "scope": scope, "scope_id": id, "key": key });
            for (tool, value) in [
                ("db.preference.create", Some(json!(["evil"]))),
                ("db.preference.create", Some(Value::Null)),
                ("db.preference.update", Some(Value::Null)),
                ("db.preference.delete", None),
            ] {
                let mut arguments = at.clone();
                if let Some(value) = value {
                    arguments["value"] = value;
                }
                let (_, answer) = gateway.post_call(&manager, tool, arguments).await;
                assert_eq!(code(&answer), "read_only", "{tool} {at}: {answer}");
            }
        }
    }
    let theirs = json!({ "scope": "user", "scope_id": "u-1", "key": "editor.theme", "value": "dark" });
    let (_, answer) = gateway.post_call(&manager, "db.preference.create", theirs).await;
    assert_eq!(answer["result"]["structuredContent"]["version"], 1, "{answer}");
}

/// Administrators write them, and every change is audited.
#[tokio::test]
async fn administrator_writes_preferences_that_control_agents() {
    const PATH: &str = "/api/v1/preferences";
    let gateway = GatewayProcess::start().await;
    let manager = gateway.manager().await;
    let key = "agents.project_manager.additional_context";
    let at = json!({ "scope": "user", "scope_id": "u-1", "key": key });
    let with = |value: Value, version: Option<i64>| {
        let mut body = at.clone();
        body["value"] = value;
        body["version"] = json!(version);
        Some(body)
    };
    let set = gateway.must("PUT", PATH, with(json!("Be brief."), Some(0))).await;
    assert_eq!((&set["version"], &set["value_type"]), (&json!(1), &json!("string")));
    let read = async || {
        let arguments = json!({ "user_id": "u-1", "key_prefix": "agents." });
        let (_, answer) = gateway.post_call(&manager, "db.preference.list", arguments).await;
        answer["result"]["structuredContent"]["preferences"].clone()
    };
    assert_eq!(read().await[0]["value"], "Be brief.");
    assert_eq!(gateway.ask("PUT", PATH, with(json!("x"), Some(0))).await.status, 409);
    gateway.must("PUT", PATH, with(Value::Null, Some(1))).await;
    assert_eq!(read().await[0]["value"], Value::Null);
    let listed = gateway.must("GET", &format!("{PATH}?scope=user&scope_id=u-1"), None).await;
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["version"]), (1, &json!(2)));
    let gone = format!("{PATH}?scope=user&scope_id=u-1&key={key}");
    gateway.must("DELETE", &gone, None).await;
    assert_eq!(read().await, json!([]));
    assert_eq!(gateway.ask("DELETE", &gone, None).await.status, 404);
    // Set again, it continues from its last version.
    assert_eq!(gateway.must("PUT", PATH, with(json!("Again."), None)).await["version"], 4);
    for (body, status) in [
        (json!({ "scope": "system", "scope_id": "x", "key": key, "value": 1 }), 422),
        (json!({ "scope": "user", "key": key, "value": 1 }), 422),
        (json!({ "scope": "user", "scope_id": "u-1", "key": "Agents.x", "value": 1 }), 422),
    ] {
        let answered = gateway.ask("PUT", PATH, Some(body.clone())).await;
        assert_eq!(answered.status, status, "{body}: {answered:?}");
    }
    // Neither users nor agents can do this, and the attempt is recorded.
    let user = gateway.issue(json!({ "label": "ada", "agent": "user", "user_id": "u-1" })).await.1;
    assert_eq!(gateway.ask_as(&user, "PUT", PATH, with(json!("mine"), None)).await.status, 403);
    assert_eq!(gateway.ask_as(&manager, "PUT", PATH, with(json!("mine"), None)).await.status, 401);
    assert_eq!(gateway.audit("tool=admin.preference.set&decision=allow").await.len(), 3);
    assert_eq!(gateway.audit("tool=admin.preference.set&decision=deny").await.len(), 1);
    assert_eq!(gateway.audit("tool=admin.preference.delete&decision=allow").await.len(), 1);
}

/// The list is closed: every gate of a tool is a [`Switch`] by its type, every switch is on the list, and
/// these are all.
#[test]
fn list_of_settings_that_control_agents_is_closed() {
    assert_eq!(Switch::ALL.map(Switch::key), [SWITCH]);
    for switch in Switch::ALL {
        assert!(is_governing(switch.key()), "{}", switch.key());
        assert!(
            control::all().iter().any(|tool| tool.gate == Some(switch)),
            "{} gates no tool",
            switch.key()
        );
    }
    let gated: Vec<&str> =
        control::all().iter().filter(|tool| tool.gate.is_some()).map(|tool| tool.name).collect();
    assert_eq!(gated.iter().copied().collect::<std::collections::BTreeSet<_>>(), IMAGE_TOOLS.into());
    for (key, expected) in [
        ("agents.project_manager.additional_context", true),
        ("agents.project_analyst.model_routing.prefer_local", true),
        ("agents.sandbox.anything", true),
        ("agents", true),
        ("AGENTS.project_manager.x", true),
        (" agents.x", true),
        ("agents_x", false),
        ("profile.default.network", true),
        (" Profile.team-a.network", true),
        ("profile", true),
        ("profiles.x", false),
        ("editor.profile.network", false),
        ("editor.agents.theme", false),
        ("sandbox.allowed_images", false),
        ("motto", false),
    ] {
        assert_eq!(is_governing(key), expected, "{key:?}");
    }
}
