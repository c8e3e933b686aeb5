//! Who may bind a lease to a node, and what the bound lease is worth.

use std::collections::BTreeMap;

use contract::lease::{Bind, Bound, Issued, Renew};
use nkeys::KeyPair;
use policy::Lease;
use serde_json::{Value, json};

use super::support::{NODE, World};

fn request(holder: &str) -> Bind {
    Bind {
        node: NODE.parse().unwrap(),
        holder: holder.to_owned(),
        local: ["local", "db", "taken"].map(|name| (name.to_owned(), "digest".to_owned())).into(),
        audit_quota: Some(500),
        lifetime_seconds: Some(60),
    }
}

async fn bind(world: &World, token: &str, lease: Option<&str>, holder: &str) -> Result<Bound, String> {
    let client = world.gateway.agent(token);
    let reply =
        leased::send(&client, &request(holder), None, lease).await.map_err(|error| error.to_string())?;
    leased::output::<Bind>(reply).map_err(|error| error.to_string())
}

#[tokio::test]
async fn only_a_node_binds_the_lease_of_a_job_and_only_once() {
    let world = World::start().await;
    world.gateway.install("taken", &world.server.url()).await;
    let rule = json!({ "effect": "deny", "tool": "local.*", "user_id": "ada", "note": "" });
    world.gateway.must("POST", "/api/v1/rules", Some(rule)).await;
    let other = json!({ "effect": "deny", "tool": "local.*", "user_id": "bob", "note": "" });
    world.gateway.must("POST", "/api/v1/rules", Some(other)).await;
    let held = world.job_lease(Some(&["local.*"])).await;
    let (job, holder) = (held.text(), world.key.public_key());
    let bound = bind(&world, &world.token, Some(&job), &holder).await.unwrap();
    let lease = Lease::read(&bound.lease).unwrap();
    let expected = Lease {
        lease_id: bound.lease_id.clone(),
        node: Some(NODE.into()),
        holder: Some(holder.clone()),
        audit_quota: Some(500),
        // Neither a family of the gateway nor the namespace of an upstream.
        local: BTreeMap::from([("local".into(), "digest".into())]),
        rules: Some(Bound::digest_of(&bound.rules)),
        not_before: lease.not_before,
        expires_at: lease.not_before + 60_000_000,
        ..held.lease.clone()
    };
    assert_eq!(lease, expected);
    assert_eq!(bound.rules.len(), 1, "only those of the user: {:?}", bound.rules);

    // Renewed, it is the same lease.
    let renewal = Renew { audit_lines: Some(7), audit_head: Some("head".into()) };
    let reply = leased::send(&world.client(), &renewal, None, Some(&bound.lease)).await.unwrap();
    let Issued { lease: renewed, .. } = leased::output::<Renew>(reply).unwrap();
    let renewed = Lease::read(&renewed).unwrap();
    let (not_before, expires_at) = (renewed.not_before, renewed.expires_at);
    assert_eq!(renewed, Lease { not_before, expires_at, ..lease });
    let known = world.node_audit().await["leases"][0].clone();
    assert_eq!((&known["stated_lines"], &known["stated_head"]), (&json!(7), &json!("head")));

    let sandbox = world.gateway.unbound("sandbox").await;
    let refused = bind(&world, &sandbox, Some(&job), &holder).await.unwrap_err();
    assert!(refused.contains("only a node can bind a lease"), "{refused}");
    let refused = bind(&world, &world.token, Some(&bound.lease), &holder).await.unwrap_err();
    assert!(refused.contains("bound to a node already"), "{refused}");
    let refused = bind(&world, &world.token, Some(&job), "UABC").await.unwrap_err();
    assert!(refused.contains("holder"), "{refused}");
    let account = KeyPair::new_account().public_key();
    assert!(bind(&world, &world.token, Some(&job), &account).await.is_err());
    assert!(bind(&world, &world.token, None, &holder).await.is_err(), "a node needs the lease of a job");
    let manager = world.gateway.manager().await;
    assert!(bind(&world, &manager, None, &holder).await.is_err());

    // Only a node may use it.
    let used = world.gateway.agent(&sandbox);
    let denied = world.gateway.call_under(&used, Some(&bound.lease), "help.list", json!({})).await;
    assert!(denied.is_err(), "{denied:?}");
}

#[tokio::test]
async fn profile_without_network_has_no_local_tools() {
    let world = World::start().await;
    let setting = json!({ "value": false });
    world.gateway.must("PUT", "/api/v1/settings/profile.default.network", Some(setting)).await;
    let held = world.job_lease(None).await;
    let bound = bind(&world, &world.token, Some(&held.text()), &world.key.public_key()).await.unwrap();
    assert_eq!(Lease::read(&bound.lease).unwrap().local, BTreeMap::new());
}

/// The memory profile is that of the job, whatever the node sends.
#[tokio::test]
async fn lease_of_a_node_has_the_profile_of_the_job() {
    let world = World::start().await;
    let set = json!({ "key": "profile.memory", "scope": "user", "scope_id": "ada", "value": "team-a" });
    world.gateway.must("PUT", "/api/v1/preferences", Some(set)).await;
    let (held, holder) = (world.job_lease(None).await, world.key.public_key());
    let bound = bind(&world, &world.token, Some(&held.text()), &holder).await.unwrap();
    let lease = Lease::read(&bound.lease).unwrap();
    assert_eq!((&lease.profile, lease.local), (&Some("team-a".parse().unwrap()), BTreeMap::new()));
    let setting = json!({ "value": true });
    world.gateway.must("PUT", "/api/v1/settings/profile.team-a.network", Some(setting)).await;
    let held = world.job_lease(None).await;
    let bound = bind(&world, &world.token, Some(&held.text()), &holder).await.unwrap();
    assert!(Lease::read(&bound.lease).unwrap().local.contains_key("local"));
}

#[tokio::test]
async fn lease_of_a_node_ends_with_the_one_of_the_manager() {
    let world = World::start().await;
    let manager = world.gateway.manager().await;
    let (own, text) = world.gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    let client = world.gateway.agent(&manager);
    let wanted = json!({ "agent": "sandbox", "task_id": "t-1" });
    let issued = world.gateway.call_under(&client, Some(&text), "lease.issue", wanted).await.unwrap();
    let job = issued.structured.unwrap()["lease"].as_str().unwrap().to_owned();
    let bound = bind(&world, &world.token, Some(&job), &world.key.public_key()).await.unwrap();
    let try_call = async || {
        let called =
            world.gateway.call_under(&world.client(), Some(&bound.lease), "help.list", json!({})).await;
        called.map_err(|error| error.to_string())
    };
    assert!(try_call().await.is_ok());
    let revoked: Value = world.gateway.must("DELETE", &format!("/api/v1/leases/{own}"), None).await;
    let refused = try_call().await.unwrap_err();
    assert!(refused.contains("revoked"), "{refused} {revoked}");
}

/// A token is for one node: with it, no process acts as another one.
#[tokio::test]
async fn token_of_a_node_is_of_no_use_for_another_node() {
    let world = World::start().await;
    let (other_id, other) =
        world.gateway.issue(json!({ "label": "node", "agent": "node", "node": "node-2" })).await;
    let held = world.job_lease(None).await;
    let (job, holder) = (held.text(), world.key.public_key());
    let refused = bind(&world, &other, Some(&job), &holder).await.unwrap_err();
    let expected = "the token is for node node-2, and the call names node node-1";
    assert!(refused.contains(expected), "{refused}");
    // What the other node reads in the stream, or steals, is of no use to it either.
    let bound = bind(&world, &world.token, Some(&job), &holder).await.unwrap();
    let client = world.gateway.agent(&other);
    for (tool, arguments) in [
        ("help.list", json!({})),
        ("lease.renew", json!({})),
        ("lease.revoke", json!({})),
        ("artifact.list", json!({ "task_id": "t-1" })),
    ] {
        let denied = world.gateway.call_under(&client, Some(&bound.lease), tool, arguments).await;
        let denied = denied.unwrap_err().to_string();
        let expected = "the lease is bound to node node-1, and the token is for node node-2";
        assert!(denied.contains(expected), "{tool}: {denied}");
    }
    let rows = world.gateway.audit(&format!("subject={other_id}&status=denied")).await;
    assert_eq!(rows.len(), 4, "{rows:#?}");
    assert!(rows.iter().all(|row| row["error_type"] == "lease_of_other_node"), "{rows:#?}");
    let own = world.gateway.call_under(&world.client(), Some(&bound.lease), "help.list", json!({})).await;
    assert!(own.is_ok(), "{own:?}");
}

#[tokio::test]
async fn token_of_a_node_names_the_node() {
    let world = World::start().await;
    for (new, expected) in [
        (json!({ "label": "x", "agent": "node" }), "is required for the token of a node"),
        (json!({ "label": "x", "agent": "node", "node": " " }), "is empty"),
        (json!({ "label": "x", "agent": "node", "node": "a.b" }), "characters of a-z"),
        (json!({ "label": "x", "agent": "node", "node": "gateway" }), "reserved"),
        (json!({ "label": "x", "agent": "sandbox", "node": "node-1" }), "only the token of a node"),
    ] {
        let refused = world.gateway.ask("POST", "/api/v1/tokens", Some(new.clone())).await;
        assert!(refused.status == 422 || refused.status == 400, "{new}: {refused:?}");
        assert!(refused.body.to_string().contains(expected), "{new}: {refused:?}");
    }
    let tokens = world.gateway.must("GET", "/api/v1/tokens?agent=node", None).await;
    assert_eq!(tokens[0]["node"], NODE, "{tokens}");
    let (_, said) = world.verify();
    assert!(said.contains("intact"), "{said}");
}
