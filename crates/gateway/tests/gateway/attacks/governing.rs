//! Keys that control agents: administrators write them, and nobody else does, in any way.

use std::collections::BTreeSet;

use control::Does;
use policy::{GOVERNING, MemoryProfile};
use sea_orm::EntityTrait;
use serde_json::{Value, json};
use store::entity::{preference, preference_history, system_setting};
use testkit::GatewayProcess;

use crate::administration::support::{store, user};

/// The tools that write a value under a key that the caller names. Each of them refuses keys that control
/// agents; a tool that is added here has to as well.
const WRITERS: [&str; 6] = [
    "db.preference.create",
    "db.preference.delete",
    "db.preference.update",
    "db.system_setting.create",
    "db.system_setting.delete",
    "db.system_setting.update",
];
/// Their keys name a handoff or a job of a workflow.
const OTHERS: [&str; 2] = ["workflow.handoff", "workflow.job"];
const SCOPES: [(&str, Option<&str>); 5] = [
    ("system", None),
    ("group", Some("g-1")),
    ("user", Some("ada")),
    ("project", Some("p-1")),
    ("task", Some("t-1")),
];

/// A key in other spellings, of which none may reach it.
fn spellings(key: &str) -> Vec<String> {
    let wide = |c: char| char::from_u32(u32::from(c) + 0xfee0).unwrap_or(c);
    vec![
        key.to_owned(),
        key.to_uppercase(),
        format!(" {key}"),
        format!("{key}\t"),
        format!("{key}\n"),
        format!("{key}\u{0}"),
        format!("{key}\u{200b}"),
        format!("\u{feff}{key}"),
        format!("{key}."),
        format!(".{key}"),
        key.replacen('.', "..", 1) + "..",
        key.chars().map(wide).collect(),
    ]
}

/// Returns the keys that are used today, and those of the list.
fn keys() -> Vec<String> {
    let used = [
        MemoryProfile::USER_SETTING,
        "profile.default.network",
        "agents.project_manager.additional_context",
        "agents.project_analyst.model_routing.allowed_external_providers",
    ];
    used.into_iter().chain(GOVERNING).map(str::to_owned).collect()
}

/// What is stored about settings and preferences.
async fn rows(gateway: &GatewayProcess) -> String {
    let db = store(gateway).await;
    let preferences = preference::Entity::find().all(&db).await.unwrap();
    let history = preference_history::Entity::find().all(&db).await.unwrap();
    let settings = system_setting::Entity::find().all(&db).await.unwrap();
    format!("{preferences:?} {history:?} {settings:?}")
}

/// G13: agents and users, with and without a lease, over tools and REST, in every scope and spelling.
#[tokio::test]
async fn only_administrators_write_keys_that_control_agents() {
    let writers: BTreeSet<&str> = control::all()
        .iter()
        .filter(|tool| {
            tool.does == Does::Write && tool.input.get("properties").is_some_and(|it| it.get("key").is_some())
        })
        .map(|tool| tool.name)
        .collect();
    let known = WRITERS.into_iter().chain(OTHERS).collect();
    assert_eq!(writers, known, "another way of writing");

    let gateway = GatewayProcess::start().await;
    let admin = json!({ "scope": "user", "scope_id": "ada", "key": "profile.memory", "value": "team-a" });
    gateway.must("PUT", "/api/v1/preferences", Some(admin)).await;
    gateway.must("PUT", "/api/v1/settings/profile.team-a.network", Some(json!({ "value": true }))).await;
    let before = rows(&gateway).await;

    let (_, lease) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    let manager = gateway.manager().await;
    let issue = async |agent: &str| {
        let new = json!({ "label": "x", "agent": agent, "user_id": "ada", "task_id": "t-1" });
        gateway.agent(&gateway.issue(new).await.1)
    };
    let callers = [
        (gateway.agent(&manager), None),
        (gateway.agent(&manager), Some(&*lease)),
        (issue("project_analyst").await, None),
        (issue("sandbox").await, None),
    ];
    for (number, (agent, lease)) in callers.iter().enumerate() {
        for tool in WRITERS {
            for arguments in all_arguments(tool) {
                let reply = gateway.call_under(agent, *lease, tool, arguments.clone()).await;
                let is_manager = number < 2;
                let reply = match reply {
                    Err(_) if !is_manager => continue,
                    reply => reply.unwrap(),
                };
                let code = reply.structured.as_ref().and_then(|it| it["code"].as_str()).unwrap_or_default();
                let is_refused = ["read_only", "invalid_arguments"].contains(&code);
                assert!(reply.is_error && is_refused, "caller {number}: {tool} {arguments}: {reply:?}");
            }
        }
    }
    let ada = user(&gateway, "ada").await;
    // A name is no right.
    let forged = user(&gateway, "admin").await;
    for token in [&ada, &forged, &manager] {
        for key in keys() {
            for (method, path, body) in rest(&key) {
                let asked = gateway.ask_as(token, method, &path, body).await;
                assert!([401, 403].contains(&asked.status), "{method} {path}: {asked:?}");
            }
        }
    }
    assert_eq!(rows(&gateway).await, before);
}

/// Every spelling of a key in one scope, and the key itself in all.
fn all_arguments(tool: &str) -> Vec<Value> {
    let mut all = Vec::new();
    for key in keys() {
        for (number, spelled) in spellings(&key).into_iter().enumerate() {
            if tool.starts_with("db.system_setting.") {
                all.push(json!({ "key": spelled }));
                continue;
            }
            let scopes = SCOPES.into_iter().filter(|(scope, _)| number == 0 || *scope == "user");
            all.extend(scopes.map(|(scope, id)| json!({ "key": spelled, "scope": scope, "scope_id": id })));
        }
    }
    if !tool.ends_with(".delete") {
        all.iter_mut().for_each(|arguments| arguments["value"] = json!("default"));
    }
    all
}

fn rest(key: &str) -> Vec<(&'static str, String, Option<Value>)> {
    let mut all = vec![
        ("PUT", format!("/api/v1/settings/{key}"), Some(json!({ "value": true }))),
        ("DELETE", format!("/api/v1/settings/{key}"), None),
    ];
    for (scope, id) in SCOPES {
        let new = json!({ "scope": scope, "scope_id": id, "key": key, "value": "default" });
        all.push(("PUT", "/api/v1/preferences".to_owned(), Some(new)));
        let id = id.map(|id| format!("&scope_id={id}")).unwrap_or_default();
        all.push(("DELETE", format!("/api/v1/preferences?scope={scope}{id}&key={key}"), None));
    }
    all
}
