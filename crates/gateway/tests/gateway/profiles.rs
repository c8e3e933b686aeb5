//! Memory profiles at the running gateway: what a call carries, and which tools it may reach (G12, G13).

use mcp::{Client, Error};
use reqwest::{StatusCode, header::HeaderValue};
use serde_json::{Value, json};
use testkit::{Answer, Gateway, GatewayProcess, Tool, cynodectl, run};

const TOOL: &str = "echo.say";

/// Starts a gateway with an upstream of one tool.
async fn stage() -> (GatewayProcess, Gateway) {
    let say = Tool::new("say", "Says it.", json!({ "type": "object" }), |_| Answer::text("said"));
    let upstream = Gateway::start(vec![say]).await;
    let gateway = GatewayProcess::start().await;
    gateway.install("echo", &upstream.url()).await;
    (gateway, upstream)
}

async fn switch(gateway: &GatewayProcess, profile: &str, on: bool) {
    let path = format!("/api/v1/settings/profile.{profile}.network");
    gateway.must("PUT", &path, Some(json!({ "value": on }))).await;
}

/// Returns whether an agent can call the upstream's tool. If not, it does not see it either, and is told
/// which setting it would need.
async fn can_call(gateway: &GatewayProcess, agent: &Client, profile: &str) -> bool {
    let called = gateway.call(agent, TOOL, json!({})).await;
    let is_listed = agent.tools().await.unwrap().iter().any(|tool| tool.name == TOOL);
    let help = gateway.call(agent, "help.list", json!({})).await.unwrap().structured.unwrap();
    assert_eq!(help.to_string().contains(TOOL), is_listed, "{help}");
    // Built-in tools do not reach the network.
    assert!(!gateway.call(agent, "db.project.list", json!({})).await.unwrap().is_error);
    match called {
        Ok(reply) => {
            assert!(is_listed && reply.text == "said", "{reply:?}");
            true
        }
        Err(Error::Rejected { message, .. }) => {
            assert!(!is_listed && message.contains(&format!("profile.{profile}.network")), "{message}");
            false
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn only_profiles_that_may_reach_the_network_see_and_call_upstream_tools() {
    let (gateway, upstream) = stage().await;
    let token = gateway.manager().await;
    let usual = gateway.agent(&token);
    let [team_a, team_b] = ["team-a", "team-b"].map(|name| gateway.agent_with_profile(&token, Some(name)));
    let shown = gateway.must("GET", &format!("/api/v1/tools/{TOOL}"), None).await;
    assert_eq!(shown["reaches_network"], true, "{shown}");

    assert!(can_call(&gateway, &usual, "default").await);
    assert!(!can_call(&gateway, &team_a, "team-a").await);
    assert!(!can_call(&gateway, &team_b, "team-b").await);
    assert_eq!(upstream.calls().len(), 1);
    let rows = gateway.audit("error_type=network_not_allowed").await;
    let of: Vec<&Value> = rows.iter().map(|row| &row["profile"]).collect();
    assert_eq!(of, ["team-b", "team-a"], "{rows:?}");
    assert!(rows.iter().all(|row| row["decision"] == "deny" && row["tool"] == TOOL), "{rows:?}");

    // Effective with the next call, for this profile alone.
    switch(&gateway, "team-a", true).await;
    assert!(can_call(&gateway, &team_a, "team-a").await);
    assert!(!can_call(&gateway, &team_b, "team-b").await);
    switch(&gateway, "team-a", false).await;
    switch(&gateway, "default", false).await;
    assert!(!can_call(&gateway, &team_a, "team-a").await);
    assert!(!can_call(&gateway, &usual, "default").await);
    gateway.must("DELETE", "/api/v1/settings/profile.default.network", None).await;
    assert!(can_call(&gateway, &usual, "default").await);

    // The upstream learns nothing of profiles (M102).
    assert!(upstream.calls().iter().all(|call| call.profile.is_none()), "{:?}", upstream.calls());
    // Rows of the profile `default` are as they were before there were profiles.
    assert!(gateway.audit("profile=default").await.is_empty());
    let rows = gateway.audit("profile=team-a&status=success").await;
    assert!(rows.iter().any(|row| row["tool"] == TOOL), "{rows:?}");
    let verified = gateway.must("GET", "/api/v1/audit/verify", None).await;
    assert_eq!(verified["ok"], true, "{verified}");
}

/// Posts a request of the older era with these values of the header, and returns status and body.
async fn post(gateway: &GatewayProcess, token: &str, profiles: &[&str], body: &Value) -> (StatusCode, Value) {
    let mut request = gateway
        .http()
        .post(gateway.url())
        .bearer_auth(token)
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json");
    for profile in profiles {
        request = request.header("cynode-profile", HeaderValue::from_bytes(profile.as_bytes()).unwrap());
    }
    let response = request.body(body.to_string()).send().await.unwrap();
    let status = response.status();
    (status, serde_json::from_str(&response.text().await.unwrap()).unwrap())
}

#[tokio::test]
async fn header_that_names_no_profile_is_refused() {
    let (gateway, upstream) = stage().await;
    let token = gateway.manager().await;
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": TOOL } });
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} });
    let long = "x".repeat(65);
    let invalid = ["", "two words", "team/a", "caf\u{e9}", &long];
    for profile in invalid {
        for body in [&call, &list] {
            let (status, answer) = post(&gateway, &token, &[profile], body).await;
            let message = answer["error"]["message"].as_str().unwrap_or_default();
            assert_eq!(status, StatusCode::BAD_REQUEST, "{profile:?}: {answer}");
            assert!(message.contains("cynode-profile") && message.contains("1 to 64"), "{message}");
        }
    }
    // The gateway could take the one and the caller mean the other.
    let (status, answer) = post(&gateway, &token, &["default", "team-a"], &call).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    assert!(upstream.calls().is_empty());
    assert_eq!(gateway.audit("error_type=malformed").await.len(), 2 * invalid.len() + 1);

    let (_, answer) = post(&gateway, &token, &["default"], &call).await;
    assert_eq!(answer["result"]["content"][0]["text"], "said", "{answer}");
    let (_, answer) = post(&gateway, &token, &["Default"], &call).await;
    assert_eq!(answer["error"]["data"]["reason"], "network_not_allowed", "{answer}");
}

/// G12: a call without a trace gets one of its own.
#[tokio::test]
async fn every_call_has_a_trace() {
    let (gateway, _upstream) = stage().await;
    let token = gateway.manager().await;
    let trace = format!("{:032x}", 0xabc);
    for tool in [TOOL, "db.project.list"] {
        let mut params = json!({ "name": tool });
        let body =
            |params: &Value| json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        post(&gateway, &token, &[], &body(&params)).await;
        let row = gateway.audit("limit=1").await.remove(0);
        assert_eq!(row["trace_id"], row["call_id"].as_str().unwrap().replace('-', ""), "{row}");
        params["_meta"] = json!({ "traceparent": format!("00-{trace}-00000000000000aa-01") });
        post(&gateway, &token, &[], &body(&params)).await;
        assert_eq!(gateway.audit("limit=1").await[0]["trace_id"], trace, "{tool}");
    }
}

async fn ctl(gateway: &GatewayProcess, line: &[&str]) -> testkit::Finished {
    let token = gateway.admin_token_file().display().to_string();
    let mut arguments: Vec<String> =
        ["--gateway", &gateway.admin_url(), "--admin-token-file", &token].map(str::to_owned).into();
    arguments.extend(line.iter().map(|&word| word.to_owned()));
    tokio::task::spawn_blocking(move || run(&cynodectl(), std::path::Path::new("."), &arguments, &[]))
        .await
        .unwrap()
}

/// The switches are listed and described; what would be no switch is refused with the right form.
#[tokio::test]
async fn switches_of_profiles_are_settings() {
    let (gateway, _upstream) = stage().await;
    let listed = gateway.must("GET", "/api/v1/settings", None).await;
    let find = |listed: &Value, key: &str| {
        listed.as_array().unwrap().iter().find(|setting| setting["key"] == key).cloned()
    };
    let usual = find(&listed, "profile.default.network").unwrap();
    assert_eq!((&usual["value"], &usual["version"]), (&json!(true), &json!(0)), "{usual}");
    assert!(usual["description"].as_str().unwrap().contains("reach the network"), "{usual}");
    assert!(find(&listed, "profile.team-a.network").is_none());
    let unset = gateway.must("GET", "/api/v1/settings/profile.team-a.network", None).await;
    assert_eq!((&unset["value"], &unset["version"]), (&json!(false), &json!(0)), "{unset}");

    for (key, value, field) in [
        ("profile.team-a.network", json!("yes"), "value"),
        ("profile.team-a.network", json!(1), "value"),
        ("profile.team-a", json!(true), "key"),
        ("profile.network", json!(true), "key"),
        ("profile.team-a.disk", json!(true), "key"),
        ("Profile.team-a.network", json!(true), "key"),
        ("profile.team+a.network", json!(true), "key"),
    ] {
        let path = format!("/api/v1/settings/{key}");
        let refused = gateway.ask("PUT", &path, Some(json!({ "value": value }))).await;
        assert_eq!(
            (refused.status, &refused.body["error"]["field"]),
            (422, &json!(field)),
            "{key}: {refused:?}"
        );
    }

    let set = ctl(&gateway, &["settings", "set", "profile.team-a.network", "true"]).await;
    assert!(set.code == 0 && set.stdout.contains("the memory profile team-a"), "{set:?}");
    assert!(ctl(&gateway, &["settings", "list"]).await.stdout.contains("profile.team-a.network"));
    let wrong = ctl(&gateway, &["settings", "set", "profile.team-a.network", "on"]).await;
    assert!(wrong.code != 0 && wrong.stderr.contains("must be true or false"), "{wrong:?}");
    let agent = gateway.agent_with_profile(&gateway.manager().await, Some("team-a"));
    assert!(can_call(&gateway, &agent, "team-a").await);
    assert_eq!(ctl(&gateway, &["settings", "delete", "profile.team-a.network"]).await.code, 0);
    assert!(!can_call(&gateway, &agent, "team-a").await);
    let denied = ctl(&gateway, &["audit", "query", "--profile", "team-a", "--decision", "deny"]).await;
    assert!(denied.stdout.contains("network_not_allowed"), "{denied:?}");
}

/// A switch that an agent wrote, before agents were forbidden to, has no effect.
#[tokio::test]
async fn switch_that_an_agent_wrote_has_no_effect() {
    use sea_orm::{ActiveModelTrait, Database, IntoActiveModel};
    use store::entity::system_setting;
    let (mut gateway, _upstream) = stage().await;
    let agent = gateway.agent_with_profile(&gateway.manager().await, Some("team-a"));
    let row = system_setting::Model {
        key: "profile.team-a.network".to_owned(),
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
    assert!(!can_call(&gateway, &agent, "team-a").await);
}

/// G13: a program that holds a token bound to a profile cannot choose another one.
#[tokio::test]
async fn token_bound_to_a_profile_is_refused_for_others() {
    let (gateway, upstream) = stage().await;
    let new = json!({ "label": "bound", "agent": "project_manager", "profile": "team-a" });
    let (_, token) = gateway.issue(new).await;
    let [unnamed, own, other] =
        [None, Some("team-a"), Some("default")].map(|name| gateway.agent_with_profile(&token, name));
    assert!(!can_call(&gateway, &unnamed, "team-a").await);
    assert!(!can_call(&gateway, &own, "team-a").await);
    let refused = gateway.call(&other, TOOL, json!({})).await.unwrap_err().to_string();
    assert!(refused.contains("memory profile `team-a`"), "{refused}");
    assert_eq!(upstream.calls().len(), 0);
    switch(&gateway, "team-a", true).await;
    assert!(can_call(&gateway, &unnamed, "team-a").await);

    for (new, why) in [
        (json!({ "label": "x", "agent": "project_manager", "profile": "team a" }), "letters"),
        (json!({ "label": "x", "agent": "admin", "profile": "team-a" }), "only agents"),
    ] {
        let refused = gateway.ask("POST", "/api/v1/tokens", Some(new)).await;
        assert_eq!(refused.status, 422, "{refused:?}");
        assert!(refused.body.to_string().contains(why), "{refused:?}");
    }
}

/// Sets the memory profile of a user, as an administrator.
async fn set_profile(gateway: &GatewayProcess, user: &str, value: Value) -> testkit::AdminResponse {
    let set = json!({ "key": "profile.memory", "scope": "user", "scope_id": user, "value": value });
    gateway.ask("PUT", "/api/v1/preferences", Some(set)).await
}

/// Workers with different profiles share a queue: the profile of the lease counts, not that of the worker.
#[tokio::test]
async fn profile_of_a_lease_comes_before_that_of_the_worker() {
    let gateway = GatewayProcess::start().await;
    let token = gateway.manager().await;
    let [unnamed, other] = [None, Some("team-b")].map(|name| gateway.agent_with_profile(&token, name));
    assert_eq!(set_profile(&gateway, "ada", json!("team-a")).await.status, 200);
    let (id, lease) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    for (agent, path) in [(&unnamed, "one.md"), (&other, "two.md")] {
        let put = json!({ "path": path, "text": "otters swim" });
        let kept = gateway.call_under(agent, Some(&lease), "memory.put", put).await.unwrap();
        assert_eq!(kept.structured.unwrap()["profile"], "team-a", "{path}");
    }
    let found = gateway.call(&other, "memory.list", json!({})).await.unwrap().structured.unwrap();
    assert_eq!(found["items"], json!([]), "without the lease it is the profile of the worker");
    let rows = gateway.audit(&format!("lease_id={id}&profile=team-a")).await;
    assert_eq!(rows.len(), 2, "{rows:?}");
    // A lease without a profile leaves it to the worker.
    let (plain, free) = gateway.lease(json!({ "agent": "project_manager", "user_id": "eve" })).await;
    let put = json!({ "path": "three.md", "text": "beavers build" });
    let kept = gateway.call_under(&other, Some(&free), "memory.put", put).await.unwrap();
    assert_eq!(kept.structured.unwrap()["profile"], "team-b");
    for (id, expected) in [(&id, json!("team-a")), (&plain, Value::Null)] {
        assert_eq!(gateway.must("GET", &format!("/api/v1/leases/{id}"), None).await["profile"], expected);
        let shown = ctl(&gateway, &["leases", "show", id]).await;
        assert_eq!(shown.stdout.contains("team-a"), expected == "team-a", "{shown:?}");
    }

    for bad in [json!("two words"), json!(1), json!(["team-a"])] {
        assert_eq!(set_profile(&gateway, "ada", bad.clone()).await.status, 422, "{bad}");
    }
}

/// What a manager issues stays in its profile, also in `default`, which the text of a lease leaves out.
#[tokio::test]
async fn lease_of_an_analyst_has_the_profile_of_its_manager() {
    let gateway = GatewayProcess::start().await;
    let manager = gateway.agent(&gateway.manager().await);
    let task = json!({ "title": "build", "user_id": "ada" });
    let task = gateway.call(&manager, "db.task.create", task).await.unwrap().structured.unwrap();
    gateway.call(&manager, "memory.put", json!({ "path": "a.md", "text": "otters swim" })).await.unwrap();
    let new = json!({ "agent": "project_analyst", "user_id": "ada", "task_id": task["task_id"] });
    let issued = gateway.call(&manager, "lease.issue", new).await.unwrap().structured.unwrap();
    let token = gateway.unbound("project_analyst").await;
    let analyst = gateway.agent_with_profile(&token, Some("team-b"));
    let lease = issued["lease"].as_str();
    let found = gateway.call_under(&analyst, lease, "memory.search", json!({ "query": "otter" })).await;
    assert_eq!(found.unwrap().structured.unwrap()["memories"][0]["path"], "a.md");
}

/// The call is denied. It is no 401, with which the worker would stop pulling.
#[tokio::test]
async fn token_bound_to_another_profile_than_the_lease_is_denied() {
    let gateway = GatewayProcess::start().await;
    assert_eq!(set_profile(&gateway, "ada", json!("team-a")).await.status, 200);
    let (id, lease) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    let bound = async |profile: &str| {
        let new = json!({ "label": profile, "agent": "project_manager", "profile": profile });
        gateway.agent(&gateway.issue(new).await.1)
    };
    let (own, other) = (bound("team-a").await, bound("team-b").await);
    assert!(gateway.call_under(&own, Some(&lease), "memory.list", json!({})).await.is_ok());
    for tool in ["memory.list", "lease.renew", "help.list"] {
        let denied = gateway.call_under(&other, Some(&lease), tool, json!({})).await;
        let Err(Error::Rejected { message, .. }) = &denied else { panic!("{tool}: {denied:?}") };
        assert!(message.contains("`team-a`") && message.contains("bound to `team-b`"), "{message}");
    }
    let rows = gateway.audit(&format!("lease_id={id}&error_type=lease_of_other_profile")).await;
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert!(rows.iter().all(|row| row["decision"] == "deny" && row["user_id"] == "ada"), "{rows:?}");
    assert!(matches!(other.tools_under(Some(&lease)).await, Err(Error::Rejected { .. })));
    // Without the lease the token is as good as before.
    assert!(gateway.call(&other, "memory.list", json!({})).await.is_ok());
}
