//! API keys: created, checked, expired, revoked; in REST, console and on the command line.

use std::time::Duration;

use async_nats::jetstream;
use contract::key::OnDisconnect;
use serde_json::json;
use subjects::{headers, key::Revoked, streams};
use testkit::{GatewayProcess, Nats, eventually, eventually_within};

use super::Orchestrator;
use crate::administration::support::{ctl, parsed};

const TOKENS: &str = "/api/v1/tokens";
const USAGE: i32 = 64;

#[tokio::test]
async fn key_is_valid_until_it_is_revoked() {
    let gateway = GatewayProcess::start().await;
    let orchestrator = Orchestrator::at(&gateway).await;
    let (id, secret) = gateway.issue(json!({ "label": "ada", "agent": "user", "user_id": "ada" })).await;
    let key = orchestrator.check(&secret).await.expect("a key");
    assert_eq!((key.key_id.as_str(), key.user_id.as_str(), key.is_front_end), (id.as_str(), "ada", false));
    assert_eq!(key.on_disconnect, OnDisconnect::Continue);
    gateway.must("DELETE", &format!("{TOKENS}/{id}"), None).await;
    assert_eq!(orchestrator.check(&secret).await, None);
    // No other token is one.
    for secret in [gateway.admin_token(), gateway.manager().await, "cyn_unknown".to_owned()] {
        assert_eq!(orchestrator.check(&secret).await, None);
    }
}

#[tokio::test]
async fn key_is_valid_until_it_expires() {
    let gateway = GatewayProcess::start().await;
    let orchestrator = Orchestrator::at(&gateway).await;
    let new = json!({ "label": "short", "agent": "user", "user_id": "ada", "lives": "2s" });
    let (_, secret) = gateway.issue(new).await;
    assert!(orchestrator.check(&secret).await.is_some());
    eventually_within(Duration::from_secs(10), "the key to expire", || async {
        orchestrator.check(&secret).await.is_none().then_some(())
    })
    .await;
}

/// Only the tokens of users have the options of API keys.
#[tokio::test]
async fn options_of_a_key_are_kept_and_refused_for_other_tokens() {
    let gateway = GatewayProcess::start().await;
    let orchestrator = Orchestrator::at(&gateway).await;
    let new = json!({
        "label": "web", "agent": "user", "user_id": "web", "is_front_end": true, "on_disconnect": "cancel",
    });
    let issued = gateway.must("POST", TOKENS, Some(new)).await;
    assert_eq!((&issued["is_front_end"], &issued["on_disconnect"]), (&json!(true), &json!("cancel")));
    let key = orchestrator.check(issued["secret"].as_str().expect("a secret")).await.expect("a key");
    assert_eq!((key.is_front_end, key.on_disconnect), (true, OnDisconnect::Cancel));
    for agent in ["admin", "project_manager", "orchestrator", "sandbox"] {
        for (option, value) in [("is_front_end", json!(true)), ("on_disconnect", json!("cancel"))] {
            let new = json!({ "label": "x", "agent": agent, option: value });
            let refused = gateway.ask("POST", TOKENS, Some(new)).await;
            assert_eq!(refused.status, 422, "{refused:?}");
            assert_eq!(refused.body["error"]["field"], option, "{refused:?}");
        }
    }
    let listed = gateway.must("GET", &format!("{TOKENS}?agent=admin"), None).await;
    assert!(listed[0]["is_front_end"].is_null() && listed[0]["on_disconnect"].is_null(), "{listed}");
}

#[tokio::test]
async fn keys_are_managed_on_the_command_line() {
    let gateway = GatewayProcess::start().await;
    let orchestrator = Orchestrator::at(&gateway).await;
    let created = ctl(&gateway, &["keys", "create", "--user", "ada"]).await;
    assert_eq!(created.code, 0, "{created:?}");
    let secret = created.stdout.split_whitespace().find(|word| word.starts_with("cyn_")).expect("a key");
    assert_eq!(orchestrator.check(secret).await.expect("a key").user_id, "ada");
    assert!(created.stderr.contains("not shown again"), "{created:?}");

    let file = gateway.folder().join("web.key").display().to_string();
    let flags = ["--label", "Web chat", "--lives", "90days", "--front-end", "--on-disconnect", "cancel"];
    let arguments = [&["--json", "keys", "create", "--user", "web"][..], &flags, &["--out", &file]].concat();
    let created = ctl(&gateway, &arguments).await;
    let shown = parsed(&created);
    assert_eq!((&shown["label"], &shown["agent"]), (&json!("Web chat"), &json!("user")));
    assert!(shown["secret"].is_null() && !created.stdout.contains("cyn_"), "{created:?}");
    let key = orchestrator.check(std::fs::read_to_string(&file).unwrap().trim()).await.expect("a key");
    assert_eq!((key.is_front_end, key.on_disconnect), (true, OnDisconnect::Cancel));

    let listed = ctl(&gateway, &["keys", "ls"]).await;
    assert!(listed.stdout.contains("Web chat") && listed.stdout.contains("ON DISCONNECT"), "{listed:?}");
    assert!(!listed.stdout.contains("first administrator") && !listed.stdout.contains("cyn_"), "{listed:?}");
    let of_ada = ctl(&gateway, &["keys", "ls", "--user", "ada"]).await;
    assert!(!of_ada.stdout.contains("Web chat"), "{of_ada:?}");
    let revoked = ctl(&gateway, &["keys", "revoke", &key.key_id]).await;
    assert_eq!(revoked.stdout.trim(), format!("{} (Web chat) is revoked", key.key_id));
    let active = ctl(&gateway, &["keys", "ls", "--state", "active"]).await;
    assert!(!active.stdout.contains("Web chat"), "{active:?}");
    for wrong in [&["keys", "create"][..], &["keys", "create", "--user", "a", "--on-disconnect", "wait"]] {
        assert_eq!(ctl(&gateway, wrong).await.code, USAGE, "{wrong:?}");
    }
}

/// A revoked key is reported once; another token is not.
#[tokio::test]
async fn revoked_key_is_reported_on_nats() {
    let nats = Nats::start();
    let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let (id, _) = gateway.issue(json!({ "label": "ada", "agent": "user", "user_id": "ada" })).await;
    let (manager, _) = gateway.issue(json!({ "label": "pm", "agent": "project_manager" })).await;
    for token in [&manager, &id, &id] {
        gateway.must("DELETE", &format!("{TOKENS}/{token}"), None).await;
    }
    eventually("the message to be published", async || {
        (gateway.must("GET", "/api/v1/outbox", None).await == json!([])).then_some(())
    })
    .await;
    let jetstream = jetstream::new(nats.client().await);
    let stream = jetstream.get_stream(streams::EVENTS).await.expect("the stream");
    assert_eq!(stream.cached_info().state.messages, 1);
    let message = stream.get_last_raw_message_by_subject("cynode.key.revoked").await.expect("a message");
    let revoked: Revoked = serde_json::from_slice(&message.payload).expect("the message of the contract");
    assert_eq!((revoked.key_id.as_str(), revoked.user_id.as_str()), (id.as_str(), "ada"));
    assert!(revoked.revoked_by.starts_with("admin:"), "{revoked:?}");
    let message_id = message.headers.get(headers::MSG_ID).expect("an id").to_string();
    assert_eq!(message_id, format!("key-revoked-{id}"));
}
