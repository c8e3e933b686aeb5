//! Memories through the gateway as a program: tools, REST and `cynodectl`.

mod folders;
mod ingest;
mod killed;
mod rules;

use std::collections::BTreeMap;

use futures_util::future::join_all;
use serde_json::{Value, json};
use testkit::{GatewayProcess, Postgres};

use crate::{
    administration::support::{ctl, seen},
    instances::support::{call, gateways},
};

/// The sources of a profile: digests by path.
pub(crate) async fn sources(gateway: &GatewayProcess, profile: &str) -> BTreeMap<String, String> {
    let (mut found, mut after) = (BTreeMap::new(), String::new());
    loop {
        let page =
            gateway.must("GET", &format!("/api/v1/memory/{profile}?limit=1000&after={after}"), None).await;
        let page = page.as_array().unwrap();
        let text = |source: &Value, member: &str| source[member].as_str().unwrap().to_owned();
        found.extend(page.iter().map(|source| (text(source, "path"), text(source, "digest"))));
        match page.last() {
            Some(last) => after = text(last, "path"),
            None => return found,
        }
    }
}

async fn find(gateway: &GatewayProcess, agent: &mcp::Client, query: &str) -> Vec<String> {
    let found = gateway.call(agent, "memory.search", json!({ "query": query, "limit": 50 })).await.unwrap();
    let found = found.structured.unwrap();
    found["memories"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap().to_owned()).collect()
}

/// Two gateways share a database: what one keeps or deletes, the other finds or does not find at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_on_postgres_find_what_the_other_keeps() {
    let postgres = Postgres::start();
    let gateways = gateways(2, &postgres.database(), &[]).await;
    let secret = gateways[0].manager().await;
    let agents: Vec<_> = gateways.iter().map(|gateway| gateway.agent(&secret)).collect();
    for number in 0..12 {
        let (writer, reader) = (number % 2, (number + 1) % 2);
        let (path, word) = (format!("{number}.md"), format!("zebra{number}"));
        let new = json!({ "path": path, "text": format!("the {word} crosses") });
        gateways[writer].call(&agents[writer], "memory.put", new).await.unwrap();
        assert_eq!(find(&gateways[reader], &agents[reader], &word).await[0], path);
        if number % 3 == 0 {
            let gone = json!({ "path": path });
            gateways[reader].call(&agents[reader], "memory.delete", gone).await.unwrap();
            assert!(!find(&gateways[writer], &agents[writer], &word).await.contains(&path));
        }
    }
    // Both write at the same time, also to the same paths.
    let writes = (0..40).map(async |number: usize| {
        let at = number % 2;
        let new = json!({ "path": format!("both/{}", number / 4), "text": format!("otter {number}") });
        gateways[at].call(&agents[at], "memory.put", new).await.unwrap()
    });
    assert!(join_all(writes).await.iter().all(|reply| !reply.is_error));
    let of = async |at: usize| find(&gateways[at], &agents[at], "otter").await;
    let (first, second) = (of(0).await, of(1).await);
    assert_eq!((first.len(), first == second), (10, true), "{first:?} {second:?}");
    // Of two that keep the same at the same time, one changes something.
    let same = (0..20).map(async |number: usize| {
        let new = json!({ "path": format!("same/{}", number / 2), "text": "a beaver" });
        let at = number % 2;
        let reply = gateways[at].call(&agents[at], "memory.put", new).await.unwrap();
        reply.structured.unwrap()["changed"] == true
    });
    let changed = join_all(same).await.into_iter().filter(|changed| *changed).count();
    assert_eq!(changed, 10);
}

/// A call that is repeated under its key has its effect once, and a call is in the audit.
#[tokio::test]
async fn put_has_its_effect_once() {
    let gateway = GatewayProcess::start().await;
    let secret = gateway.manager().await;
    let new = json!({ "path": "a.md", "text": "an otter" });
    let first = gateway.post(Some(&secret), call("memory.put", &new, Some("h/1/1"))).await;
    let gone = call("memory.delete", &json!({ "path": "a.md" }), Some("h/1/2"));
    gateway.post(Some(&secret), gone).await;
    let again = gateway.post(Some(&secret), call("memory.put", &new, Some("h/1/1"))).await;
    assert_eq!(first.1["result"]["structuredContent"], again.1["result"]["structuredContent"]);
    assert!(sources(&gateway, "default").await.is_empty(), "the second call did nothing");
    let statuses: Vec<Value> =
        gateway.audit("tool=memory.put").await.iter().map(|row| row["status"].clone()).collect();
    assert_eq!(statuses, ["replayed", "success"], "the newest first");
}

/// Managers keep and find, analysts find, sandboxes neither until an administrator lets them. A token that is
/// bound to a profile reaches no other.
#[tokio::test]
async fn roles_and_profiles_decide() {
    let gateway = GatewayProcess::start().await;
    let memory = |names: Vec<String>| -> Vec<String> {
        names.into_iter().filter(|name| name.starts_with("memory.")).collect()
    };
    let secret = gateway.manager().await;
    let all = ["memory.delete", "memory.get", "memory.list", "memory.put", "memory.search"];
    assert_eq!(memory(seen(&gateway.agent(&secret)).await), all);
    let bound = async |agent: &str| {
        let new = json!({ "label": "x", "agent": agent, "user_id": "u", "task_id": "t" });
        gateway.agent(&gateway.issue(new).await.1)
    };
    assert_eq!(
        memory(seen(&bound("project_analyst").await).await),
        ["memory.get", "memory.list", "memory.search"]
    );
    let sandbox = bound("sandbox").await;
    assert!(memory(seen(&sandbox).await).is_empty());
    assert_eq!(ctl(&gateway, &["tools", "scope", "memory.search", "both"]).await.code, 0);
    assert_eq!(memory(seen(&sandbox).await), ["memory.search"]);

    let of = |profile| gateway.agent_with_profile(&secret, Some(profile));
    let new = json!({ "path": "a.md", "text": "an otter of team a" });
    gateway.call(&of("team-a"), "memory.put", new).await.unwrap();
    assert_eq!(find(&gateway, &of("team-a"), "otter").await, ["a.md"]);
    for other in ["team-b", "Team-a", "default"] {
        assert!(find(&gateway, &of(other), "otter").await.is_empty(), "{other}");
    }
    let new = json!({ "label": "b", "agent": "project_manager", "profile": "team-b" });
    let (_, bound_to_b) = gateway.issue(new).await;
    let forged = gateway.agent_with_profile(&bound_to_b, Some("team-a"));
    assert!(gateway.call(&forged, "memory.search", json!({ "query": "otter" })).await.is_err());
    assert!(
        find(&gateway, &gateway.agent_with_profile(&bound_to_b, Some("team-b")), "otter").await.is_empty()
    );
    // Users have no part in it.
    let user = crate::administration::support::user(&gateway, "ada").await;
    let asked = gateway.ask_as(&user, "GET", "/api/v1/memory/team-a", None).await;
    assert_eq!(asked.status, 403, "{asked:?}");
}
