//! Who may not call, and what may not be called. The provider hears of none of it.

use serde_json::{Value, json};
use testkit::{ChatClient, Model, Script};

use super::{Stage, body};

/// P15, P19, P21.
#[tokio::test]
async fn everything_but_a_permitted_call_is_denied() {
    let stage =
        Stage::start_with(Model::start([Script::say("hi")]).await, ", models=[\"gpt-*\"]", |it| it).await;
    let gateway = &stage.gateway;
    let path = "/chat/completions";
    let ask = async |client: ChatClient, path: &str, body: Value| {
        let response = client.send("POST", path, Some(body)).await;
        (response.status, response.body["error"]["code"].as_str().unwrap_or_default().to_owned())
    };
    let user = gateway.api_key("ada").await.1;
    let (revoked_id, revoked) = gateway.issue(json!({ "label": "x", "agent": "project_manager" })).await;
    gateway.must("DELETE", &format!("/api/v1/tokens/{revoked_id}"), None).await;
    let orchestrator = gateway.unbound("orchestrator").await;
    let analyst = gateway.unbound("project_analyst").await;
    let lease = Some(stage.lease.as_str());
    for (token, expected) in [
        ("", (401, "missing_token")),
        ("cyn_nonsense", (401, "unknown_token")),
        (&*user, (401, "unknown_token")),
        (&*gateway.admin_token(), (401, "unknown_token")),
        (&*revoked, (401, "revoked_token")),
        (&*orchestrator, (401, "wrong_agent")),
        (&*analyst, (403, "lease_of_other_agent")),
    ] {
        let (status, code) = ask(stage.client(token, lease), path, body()).await;
        assert_eq!((status, code.as_str()), expected, "{token:.8}");
    }

    let brief = json!({ "agent": "project_manager", "user_id": "ada", "lifetime_seconds": 1 });
    let expired = gateway.lease(brief).await.1;
    let (revoked_id, revoked) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    gateway.must("DELETE", &format!("/api/v1/leases/{revoked_id}"), None).await;
    let eve = gateway.lease(json!({ "agent": "project_manager", "user_id": "eve" })).await.1;
    let refused = json!({ "scope": "user", "scope_id": "eve", "key": super::ALLOWED, "value": [] });
    gateway.must("PUT", "/api/v1/preferences", Some(refused)).await;
    testkit::eventually("the lease expires", || async {
        let (status, code) = ask(stage.client(&stage.token, Some(&expired)), path, body()).await;
        (code == "expired_lease").then(|| assert_eq!(status, 403))
    })
    .await;
    // The short lease may have been used before it expired.
    let asked = stage.provider.asked().len();
    for (lease, expected) in [
        (None, (403, "missing_lease")),
        (Some("nonsense"), (403, "unknown_lease")),
        (Some(&*revoked), (403, "revoked_lease")),
        (Some(&*eve), (403, "provider_not_allowed")),
    ] {
        let (status, code) = ask(stage.client(&stage.token, lease), path, body()).await;
        assert_eq!((status, code.as_str()), expected);
    }

    let base = format!("{}/absent", stage.orchestrator.egress_url());
    let absent = ChatClient::new(&base, &stage.token).with("cynode-lease", &stage.lease);
    assert_eq!(ask(absent, path, body()).await, (404, "unknown_provider".to_owned()));
    for path in ["/files", "/chat/completions/", "/../admin", "/%63hat/completions", "/models/gpt-5"] {
        let (status, code) = ask(stage.agent(), path, body()).await;
        assert!(status == 403 || status == 404, "{path}: {status} {code}");
    }
    let get = stage.agent().send("GET", path, None).await;
    assert_eq!((get.status, get.body["error"]["code"].as_str()), (405, Some("method_not_allowed")));
    let mut other = body();
    other["model"] = json!("secret-model");
    assert_eq!(ask(stage.agent(), path, other).await, (403, "model_not_allowed".to_owned()));
    assert_eq!(ask(stage.agent(), path, json!([])).await.0, 400);
    for wrong in ["gpt-\0", "gpt-\u{1b}[2J", "gpt-\u{85}", &"gpt-".repeat(100)] {
        let mut other = body();
        other["model"] = json!(wrong);
        let refused = stage.agent().send("POST", path, Some(other)).await;
        assert_eq!((refused.status, refused.code()), (400, "invalid_value"), "{wrong:?}");
        let message = refused.body["error"]["message"].as_str().unwrap();
        assert!(message.contains("256 bytes, and no control characters"), "{message}");
    }
    let foreign = stage.agent().with("host", "evil.example");
    assert_eq!(ask(foreign, path, body()).await, (403, "host_not_allowed".to_owned()));
    assert_eq!(stage.provider.asked().len(), asked, "nothing of that reached the provider");

    assert_eq!(ask(stage.agent(), path, body()).await.0, 200);
    let log = stage.orchestrator.log();
    for code in ["unknown_provider", "path_not_allowed", "model_not_allowed", "invalid_value"] {
        assert!(log.contains(&format!("\"reason\":\"{code}\"")), "{code} is in the log: {log}");
    }
    assert!(!log.contains(&stage.token) && !log.contains(&stage.lease), "secrets are not logged");
}

/// Unknown tokens cannot flood the gateway and its audit.
#[tokio::test]
async fn unknown_tokens_are_limited_by_address_and_valid_ones_are_not() {
    let stage = Stage::start_with(Model::start([Script::say("hi")]).await, "", |builder| {
        builder.set("unauthenticated.per_second", "1")
    })
    .await;
    assert_eq!(stage.agent().send("POST", "/chat/completions", Some(body())).await.status, 200);
    let stranger = stage.client("cyn_nonsense", None);
    let mut statuses = Vec::new();
    for _ in 0..20 {
        statuses.push(stranger.send("POST", "/chat/completions", Some(body())).await.status);
    }
    assert!(statuses.contains(&401) && statuses.contains(&429), "{statuses:?}");
    assert_eq!(stage.agent().send("POST", "/chat/completions", Some(body())).await.status, 200);
}

#[tokio::test]
async fn valid_tokens_do_not_count_against_their_address() {
    let stage = Stage::start_with(Model::start([Script::say("hi")]).await, "", |builder| {
        builder.set("unauthenticated.per_second", "1")
    })
    .await;
    let mut tokens = Vec::new();
    for _ in 0..12 {
        tokens.push(stage.gateway.manager().await);
    }
    for token in tokens {
        let agent = stage.client(&token, Some(&stage.lease));
        let reply = agent.send("POST", "/chat/completions", Some(body())).await;
        assert_eq!(reply.status, 200, "{reply:?}");
    }
}
