//! Leases at the running gateway: what they permit, and how they end.

mod clocks;

use std::collections::BTreeSet;

use mcp::{Client, Error};
use nkeys::KeyPair;
use policy::{AgentKind, Lease};
use serde_json::{Value, json};
use testkit::{Answer, Gateway, GatewayProcess, Postgres, Tool, eventually};

/// Calls a tool and returns its structured result, or why it was denied.
async fn call(
    gateway: &GatewayProcess,
    agent: &Client,
    lease: &str,
    tool: &str,
    arguments: Value,
) -> Result<Value, String> {
    match gateway.call_under(agent, Some(lease), tool, arguments).await {
        Ok(reply) if reply.is_error => Err(reply.text),
        Ok(reply) => Ok(reply.structured.unwrap_or_default()),
        Err(Error::Rejected { message, .. }) => Err(message),
        Err(error) => panic!("{error}"),
    }
}

/// Creates a task of a user and returns its id.
async fn task(gateway: &GatewayProcess, user: &str) -> String {
    let manager = gateway.agent(&gateway.manager().await);
    let new = json!({ "name": format!("of-{user}"), "user_id": user });
    let created = gateway.call(&manager, "db.task.create", new).await.unwrap().structured.unwrap();
    created["task_id"].as_str().unwrap().to_owned()
}

fn of_analyst(user: &str, task: &str) -> Value {
    json!({ "agent": "project_analyst", "user_id": user, "task_id": task })
}

/// Two users, two tasks, one analyst, interleaved: each lease reaches its own task alone, and the audit names
/// the lease's user.
#[tokio::test]
async fn one_analyst_serves_two_users_without_mixing_their_data() {
    let gateway = GatewayProcess::start().await;
    let (ada, eve) = (task(&gateway, "ada").await, task(&gateway, "eve").await);
    let analyst = gateway.agent(&gateway.unbound("project_analyst").await);
    let (of_ada, ada_lease) = gateway.lease(of_analyst("ada", &ada)).await;
    let (of_eve, eve_lease) = gateway.lease(of_analyst("eve", &eve)).await;
    let users = [("ada", &ada, &ada_lease, &of_ada, &eve), ("eve", &eve, &eve_lease, &of_eve, &ada)];
    for round in 0..5 {
        for (user, own, lease, id, other) in users {
            let finding = |task: &str| {
                json!({ "task_id": task, "criterion": "it works",
                "verdict": "not_met", "severity": "major", "evidence": format!("round {round}") })
            };
            let read = call(&gateway, &analyst, lease, "db.task.get", json!({ "task_id": own })).await;
            assert_eq!(read.unwrap()["user_id"], user);
            call(&gateway, &analyst, lease, "db.finding.create", finding(own)).await.unwrap();
            for (tool, arguments) in [
                ("db.task.get", json!({ "task_id": other })),
                ("db.finding.create", finding(other)),
                ("db.finding.list", json!({ "task_id": other })),
                ("artifact.list", json!({ "task_id": other })),
            ] {
                let denied = call(&gateway, &analyst, lease, tool, arguments).await.unwrap_err();
                assert!(denied.contains("task_id is outside the scope"), "{tool}: {denied}");
            }
            let listed = call(&gateway, &analyst, lease, "db.task.list", json!({})).await.unwrap();
            assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{listed}");
            let rows = gateway.audit(&format!("lease_id={id}&decision=deny&limit=1000")).await;
            assert_eq!(rows.len(), 4 * (round + 1));
            assert!(rows.iter().all(|row| row["user_id"] == user && row["task_id"] == **own), "{rows:?}");
        }
    }
    for (_, own, lease, ..) in users {
        let found = call(&gateway, &analyst, lease, "db.finding.list", json!({ "task_id": own })).await;
        assert_eq!(found.unwrap()["items"].as_array().unwrap().len(), 5);
    }
    // Without a lease the analyst can do nothing, and sees nothing.
    let denied = gateway.call(&analyst, "help.list", json!({})).await.unwrap_err();
    assert!(denied.to_string().contains("a lease is required"), "{denied}");
    assert!(analyst.tools().await.unwrap().is_empty());
    assert!(!analyst.tools_under(Some(&ada_lease)).await.unwrap().is_empty());
}

/// Stolen, forged, of another key, of another agent type, expired, revoked: refused.
#[tokio::test]
async fn a_lease_that_is_not_worth_anything_is_refused() {
    let gateway = GatewayProcess::start().await;
    let own = task(&gateway, "ada").await;
    let read = json!({ "task_id": own });
    let (id, lease) = gateway.lease(of_analyst("ada", &own)).await;
    let analyst = gateway.agent(&gateway.unbound("project_analyst").await);
    call(&gateway, &analyst, &lease, "db.task.get", read.clone()).await.unwrap();

    // A lease alone opens nothing, nor does it with a token of another agent type.
    let nobody = gateway.agent("cyn_nobody");
    let stolen = gateway.call_under(&nobody, Some(&lease), "db.task.get", read.clone()).await;
    assert!(matches!(stolen, Err(Error::Unauthorized(_))), "{stolen:?}");
    for other in ["project_manager", "sandbox", "orchestrator"] {
        let agent = gateway.agent(&gateway.unbound(other).await);
        let denied = call(&gateway, &agent, &lease, "help.list", json!({})).await.unwrap_err();
        assert_eq!(denied, "the lease is for another agent type", "{other}");
    }
    let bound = gateway.agent(&gateway.bound("project_analyst", "eve", "t-eve").await);
    call(&gateway, &bound, &lease, "db.task.get", read.clone()).await.unwrap_err();

    // Signed by another key, with the id of a lease that exists.
    let genuine = Lease::read(&lease).unwrap();
    let wider = Lease { task_id: Some("any".into()), tools: None, ..genuine };
    let forged = wider.clone().sign(&KeyPair::new_user()).unwrap();
    let (payload, _) = forged.rsplit_once('.').unwrap();
    let (_, signature) = lease.rsplit_once('.').unwrap();
    for text in [forged.as_str(), &format!("{payload}.{signature}"), "cyl1.e30.e30", "nonsense"] {
        let denied = call(&gateway, &analyst, text, "db.task.get", read.clone()).await.unwrap_err();
        assert_eq!(denied, "unknown lease", "{text}");
    }
    let denied =
        gateway.call_under(&analyst, Some("nonsense"), "db.task.list", json!({ "user_id": "eve" })).await;
    assert!(denied.is_err());
    // An invalid lease does not look like an empty list of tools.
    let listed = analyst.tools_under(Some("nonsense")).await.unwrap_err();
    assert!(listed.to_string().contains("unknown lease"), "{listed}");
    let rows = gateway.audit("error_type=unknown_lease").await;
    assert!(rows.len() == 5 && rows.iter().all(|row| row["lease_id"].is_null() && row["user_id"].is_null()));

    gateway.must("DELETE", &format!("/api/v1/leases/{id}"), None).await;
    let denied = call(&gateway, &analyst, &lease, "db.task.get", read.clone()).await.unwrap_err();
    assert_eq!(denied, "the lease was revoked");
    // A lease that was revoked cannot be renewed either.
    let denied = call(&gateway, &analyst, &lease, "lease.renew", json!({})).await.unwrap_err();
    assert_eq!(denied, "the lease was revoked");
    assert_eq!(gateway.must("GET", &format!("/api/v1/leases/{id}"), None).await["state"], "revoked");
}

/// An expired lease can be renewed until its end, and is worth nothing meanwhile. A restart changes nothing.
#[tokio::test]
async fn an_expired_lease_is_renewed_but_not_used() {
    let mut gateway =
        GatewayProcess::start_with(&[("leases.lifetime", "1s"), ("leases.renewable_for", "1h")]).await;
    let own = task(&gateway, "ada").await;
    let read = json!({ "task_id": own });
    let (_, lease) = gateway.lease(of_analyst("ada", &own)).await;
    let analyst = gateway.agent(&gateway.unbound("project_analyst").await);
    let is_expired = async |lease: &str| {
        let called = call(&gateway, &analyst, lease, "db.task.get", read.clone()).await;
        (called == Err("the lease has expired".to_owned())).then_some(())
    };
    eventually("it expires", async || is_expired(&lease).await).await;
    let renewed = call(&gateway, &analyst, &lease, "lease.renew", json!({})).await.unwrap();
    let renewed = renewed["lease"].as_str().unwrap().to_owned();
    // The old text stays expired, and can be used for a renewal again: so does a worker that took over.
    is_expired(&lease).await.unwrap();
    call(&gateway, &analyst, &lease, "lease.renew", json!({})).await.unwrap();
    gateway.kill();
    gateway.start_again().await;
    let analyst = gateway.agent(&gateway.unbound("project_analyst").await);
    let again = call(&gateway, &analyst, &renewed, "lease.renew", json!({})).await.unwrap();
    let text = again["lease"].as_str().unwrap();
    call(&gateway, &analyst, text, "db.task.get", read.clone()).await.unwrap();
    // With a lease for a moment alone there is nothing to renew.
    let short = json!({ "agent": "project_analyst", "user_id": "ada", "task_id": own,
        "lifetime_seconds": 1, "renewable_seconds": 1 });
    let (_, short) = gateway.lease(short).await;
    eventually("it ends", async || {
        let renewed = call(&gateway, &analyst, &short, "lease.renew", json!({})).await;
        (renewed == Err("the lease has expired".to_owned())).then_some(())
    })
    .await;
}

/// A manager under a lease sees and changes what is its user's or unowned; what it creates is its user's.
#[tokio::test]
async fn a_manager_under_a_lease_acts_for_one_user() {
    let gateway = GatewayProcess::start().await;
    let (ada, eve) = (task(&gateway, "ada").await, task(&gateway, "eve").await);
    let manager = gateway.agent(&gateway.manager().await);
    let plain = gateway.call(&manager, "db.task.create", json!({ "name": "nobodys" })).await.unwrap();
    assert_eq!(plain.structured.unwrap()["user_id"], Value::Null);
    let (_, lease) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    let act = async |tool: &str, arguments: Value| call(&gateway, &manager, &lease, tool, arguments).await;
    let names = |listed: &Value| -> Vec<String> {
        let items = listed["items"].as_array().unwrap().iter();
        items.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    let created = act("db.task.create", json!({ "name": "new" })).await.unwrap();
    assert_eq!(created["user_id"], "ada", "{created}");
    let mut listed = names(&act("db.task.list", json!({})).await.unwrap());
    listed.sort();
    assert_eq!(listed, ["new", "nobodys", "of-ada"]);
    act("db.task.get", json!({ "task_id": ada })).await.unwrap();
    act("db.task.get", json!({ "task_id": "nobodys" })).await.unwrap();
    for (tool, arguments) in [
        ("db.task.get", json!({ "task_id": eve })),
        ("db.task.get", json!({ "task_id": "of-eve" })),
        ("db.task.update_status", json!({ "task_id": "of-eve", "status": "canceled" })),
        ("db.task.create", json!({ "name": "for-eve", "user_id": "eve" })),
        ("db.task.create", json!({ "name": "under-eve", "parent_task_id": eve })),
        ("db.task.list", json!({ "user_id": "eve" })),
        ("db.task.dependency.add", json!({ "task_id": ada, "depends_on": eve })),
        ("artifact.put", json!({ "task_id": eve, "path": "a", "content": "b" })),
        ("db.preference.create", json!({ "scope": "user", "scope_id": "eve", "key": "a", "value": 1 })),
        ("db.preference.create", json!({ "scope": "task", "scope_id": eve, "key": "a", "value": 1 })),
        ("db.preference.create", json!({ "scope": "system", "key": "a", "value": 1 })),
        ("db.preference.get", json!({ "scope": "user", "scope_id": "eve", "key": "secret" })),
        ("db.system_setting.create", json!({ "key": "a", "value": 1 })),
        ("lease.issue", json!({ "agent": "project_analyst", "user_id": "eve", "task_id": eve })),
        ("lease.issue", json!({ "agent": "project_analyst", "user_id": "ada", "task_id": eve })),
        ("lease.issue", json!({ "agent": "project_manager", "user_id": "ada" })),
    ] {
        let done = act(tool, arguments.clone()).await;
        assert!(done.is_err(), "{tool} {arguments}: {done:?}");
    }
    act("db.preference.create", json!({ "scope": "user", "scope_id": "ada", "key": "a", "value": 1 }))
        .await
        .unwrap();
    // Neither can it revoke what was issued for another user with the same token.
    let other = gateway.call(
        &manager,
        "lease.issue",
        json!({ "agent": "sandbox", "user_id": "eve", "task_id": eve }),
    );
    let other = other.await.unwrap().structured.unwrap();
    act("lease.revoke", json!({ "lease_id": other["lease_id"] })).await.unwrap_err();
    // A lease that it issues ends with its own.
    let issued = act("lease.issue", json!({ "agent": "project_analyst", "user_id": "ada", "task_id": ada }));
    let issued = issued.await.unwrap();
    let (analyst, child) = (gateway.unbound("project_analyst").await, issued["lease"].as_str().unwrap());
    let analyst = gateway.agent(&analyst);
    call(&gateway, &analyst, child, "db.task.get", json!({ "task_id": ada })).await.unwrap();
    assert_eq!(act("lease.revoke", json!({})).await.unwrap()["revoked"], 2);
    let denied = call(&gateway, &analyst, child, "db.task.get", json!({ "task_id": ada })).await;
    assert_eq!(denied, Err("the lease was revoked".to_owned()));
}

/// The lease of another handoff outlives the one that it was issued under if that is given back: the handoff
/// may be replayed. An administrator revokes both.
#[tokio::test]
async fn a_lease_that_is_given_back_takes_none_of_another_handoff_with_it() {
    let gateway = GatewayProcess::start().await;
    let own = task(&gateway, "ada").await;
    let manager = gateway.agent(&gateway.manager().await);
    let analyst = gateway.agent(&gateway.unbound("project_analyst").await);
    let of_manager = json!({ "agent": "project_manager", "user_id": "ada", "handoff_id": "h-1" });
    let (id, parent) = gateway.lease(of_manager).await;
    let issue = async |handoff: Value| {
        let child = json!({ "agent": "project_analyst", "task_id": own, "handoff_id": handoff });
        let issued = call(&gateway, &manager, &parent, "lease.issue", child).await.unwrap();
        issued["lease"].as_str().unwrap().to_owned()
    };
    let (of_none, of_same, of_other) =
        (issue(Value::Null).await, issue(json!("h-1")).await, issue(json!("h-2")).await);
    let works = async |lease: &str| {
        call(&gateway, &analyst, lease, "db.task.get", json!({ "task_id": own })).await.map(drop)
    };
    let revoked = call(&gateway, &manager, &parent, "lease.revoke", json!({})).await.unwrap();
    assert_eq!(revoked["revoked"], 3, "{revoked}");
    let again = call(&gateway, &manager, &parent, "lease.revoke", json!({})).await.unwrap();
    assert_eq!(again["revoked"], 0, "it has no effect: {again}");
    let denied: Result<(), String> = Err("the lease was revoked".to_owned());
    assert_eq!((works(&of_none).await, works(&of_same).await), (denied.clone(), denied.clone()));
    // A revoked lease gives back nothing but itself.
    let other = json!({ "lease_id": Lease::read(&of_other).unwrap().lease_id });
    let refused = call(&gateway, &manager, &parent, "lease.revoke", other).await;
    assert_eq!(refused, Err("the lease was revoked".to_owned()));
    assert_eq!(works(&of_other).await, Ok(()));
    gateway.must("DELETE", &format!("/api/v1/leases/{id}"), None).await;
    assert_eq!(works(&of_other).await, denied);
}

/// What is issued under a lease ends with it: when it is revoked at the same time, and when its time is over.
#[tokio::test]
async fn no_lease_outlives_the_one_it_was_issued_under() {
    let gateway = GatewayProcess::start().await;
    let own = task(&gateway, "ada").await;
    let manager = gateway.agent(&gateway.manager().await);
    let child = json!({ "agent": "project_analyst", "task_id": own });
    let short = json!({ "agent": "project_manager", "user_id": "ada", "lifetime_seconds": 60,
        "renewable_seconds": 90 });
    let (_, parent) = gateway.lease(short).await;
    let issued = call(&gateway, &manager, &parent, "lease.issue", child.clone()).await.unwrap();
    let of_child = Lease::read(issued["lease"].as_str().unwrap()).unwrap();
    let of_parent = Lease::read(&parent).unwrap();
    assert_eq!((of_child.user_id.as_str(), of_child.task_id.as_deref()), ("ada", Some(&*own)));
    assert!(of_child.expires_at <= of_parent.not_before + 90_000_000, "{of_child:?}");
    assert!(
        issued["renewable_until"].as_str().unwrap() <= issued["expires_at"].as_str().unwrap(),
        "{issued}"
    );
    // A renewal lasts as long as the lease did.
    let renewed = call(&gateway, &manager, &parent, "lease.renew", json!({})).await.unwrap();
    let renewed = Lease::read(renewed["lease"].as_str().unwrap()).unwrap();
    assert!(renewed.expires_at - renewed.not_before <= 60_000_000, "{renewed:?}");
    for _ in 0..5 {
        let (id, parent) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
        let issuing = futures_util::future::join_all(
            (0..6).map(|_| call(&gateway, &manager, &parent, "lease.issue", child.clone())),
        );
        let path = format!("/api/v1/leases/{id}");
        let revoking = gateway.must("DELETE", &path, None);
        tokio::join!(issuing, revoking);
        let leases = gateway.must("GET", "/api/v1/leases?limit=1000", None).await;
        let mut under_it = leases.as_array().unwrap().iter().filter(|it| it["parent_id"] == id);
        assert!(under_it.all(|it| it["state"] == "revoked"), "{leases}");
    }
}

/// A lease for another user's project is not issued, and is of no use when the project is given away later.
#[tokio::test]
async fn a_lease_opens_no_project_of_another_user() {
    let gateway = GatewayProcess::start().await;
    let manager = gateway.agent(&gateway.manager().await);
    let put = async |id: &str, owner: Value| {
        let new = json!({ "name": id, "title": id, "description": "", "user_id": owner });
        gateway.must("PUT", &format!("/api/v1/projects/{id}"), Some(new)).await;
    };
    put("of-eve", json!("eve")).await;
    put("shared", Value::Null).await;
    let wanted =
        |project: &str| json!({ "agent": "project_manager", "user_id": "ada", "project_id": project });
    let refused = gateway.ask("POST", "/api/v1/leases", Some(wanted("of-eve"))).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    let (_, lease) = gateway.lease(wanted("shared")).await;
    let act = async |tool: &str, arguments: Value| call(&gateway, &manager, &lease, tool, arguments).await;
    act("db.task.create", json!({ "name": "mine" })).await.unwrap();
    // In a project without an owner: neither as a dependency nor in a list is another user's task in reach.
    let of_eve = json!({ "name": "of-eve", "user_id": "eve", "project_id": "shared" });
    let of_eve = gateway.call(&manager, "db.task.create", of_eve).await.unwrap().structured.unwrap();
    for depends_on in [json!("of-eve"), of_eve["task_id"].clone()] {
        let denied =
            act("db.task.dependency.add", json!({ "task_id": "mine", "depends_on": depends_on })).await;
        assert!(denied.unwrap_err().contains("not found"));
        let denied = act("db.task.create", json!({ "name": "next", "depends_on": [depends_on] })).await;
        assert!(denied.unwrap_err().contains("not found"));
    }
    put("shared", json!("eve")).await;
    let denied = act("db.task.list", json!({})).await.unwrap_err();
    assert!(denied.contains("project_id is outside the scope"), "{denied}");
}

/// G8, M115: with a lease, a manager calls the servers of its user and of the system.
#[tokio::test]
async fn installed_servers_are_those_of_the_user() {
    let server =
        Gateway::start(vec![Tool::new("read", "", json!({ "type": "object" }), |_| Answer::text("content"))])
            .await;
    let gateway = GatewayProcess::start().await;
    gateway.install("shared", &server.url()).await;
    for user in ["ada", "eve"] {
        let new = json!({ "namespace": format!("{user}s"), "transport": { "http": { "url": server.url() } },
            "trust_first": true, "owner": user });
        let added = gateway.ask("POST", "/api/v1/upstreams", Some(new)).await;
        assert!(added.status < 300, "{added:?}");
    }
    let manager = gateway.agent(&gateway.manager().await);
    let (_, lease) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    let listed = manager.tools_under(Some(&lease)).await.unwrap();
    let has = |name: &str| listed.iter().any(|tool| tool.name == name);
    assert!(has("shared.read") && has("adas.read") && !has("eves.read"));
    for (tool, expected) in [("shared.read", true), ("adas.read", true), ("eves.read", false)] {
        let called = gateway.call_under(&manager, Some(&lease), tool, json!({})).await;
        assert_eq!(called.is_ok(), expected, "{tool}: {called:?}");
    }
    let (_, narrow) = gateway
        .lease(json!({ "agent": "project_manager", "user_id": "ada", "tools": ["adas.*", "db.task.*"] }))
        .await;
    let names: Vec<String> =
        manager.tools_under(Some(&narrow)).await.unwrap().into_iter().map(|tool| tool.name).collect();
    let fits = |name: &String| {
        name.starts_with("adas.") || name.starts_with("db.task.") || name.starts_with("lease.")
    };
    assert!(names.iter().all(fits) && names.contains(&"adas.read".to_owned()), "{names:?}");
}

/// `leases.mode = required`: a manager without a lease can do nothing.
#[tokio::test]
async fn managers_can_be_required_to_have_a_lease() {
    let gateway = GatewayProcess::start_with(&[("leases.mode", "required")]).await;
    let manager = gateway.agent(&gateway.manager().await);
    let denied = gateway.call(&manager, "db.task.list", json!({})).await.unwrap_err();
    assert!(denied.to_string().contains("a lease is required"), "{denied}");
    let (_, lease) = gateway.lease(json!({ "agent": "project_manager", "user_id": "ada" })).await;
    call(&gateway, &manager, &lease, "db.task.list", json!({})).await.unwrap();
}

/// An orchestrator issues leases for any user, keeps their threads, and touches no work.
#[tokio::test]
async fn an_orchestrator_issues_leases_and_touches_no_work() {
    let gateway = GatewayProcess::start().await;
    let eve = task(&gateway, "eve").await;
    let orchestrator = gateway.agent(&gateway.unbound("orchestrator").await);
    let names: Vec<String> = orchestrator.tools().await.unwrap().into_iter().map(|tool| tool.name).collect();
    let families: BTreeSet<&str> = names.iter().filter_map(|name| name.split('.').next()).collect();
    assert_eq!(families, BTreeSet::from(["egress", "help", "key", "lease", "schedule", "thread"]));
    let issue = async |arguments: Value| gateway.call(&orchestrator, "lease.issue", arguments).await;
    for wrong in [
        json!({ "agent": "orchestrator", "user_id": "ada" }),
        json!({ "agent": "project_analyst", "user_id": "ada" }),
        json!({ "agent": "project_analyst", "user_id": "ada", "task_id": eve }),
        json!({ "agent": "project_manager", "user_id": "ada", "tools": ["db.*.get"] }),
        json!({ "agent": "project_manager", "user_id": "ada", "lifetime_seconds": 86_401 }),
        json!({ "agent": "project_manager", "user_id": "two words" }),
    ] {
        let issued = issue(wrong.clone()).await;
        assert!(issued.as_ref().map_or(true, |reply| reply.is_error), "{wrong}: {issued:?}");
    }
    let issued = issue(json!({ "agent": "project_manager", "user_id": "ada" })).await.unwrap();
    let issued = issued.structured.unwrap();
    let lease = Lease::read(issued["lease"].as_str().unwrap()).unwrap();
    assert_eq!((lease.agent, lease.user_id.as_str()), (AgentKind::ProjectManager, "ada"));
    let id = issued["lease_id"].as_str().unwrap();
    let revoked = gateway.call(&orchestrator, "lease.revoke", json!({ "lease_id": id })).await.unwrap();
    assert_eq!(revoked.structured.unwrap()["revoked"], 1);
}

/// Two gateways on one database accept each other's leases and revocations at once.
#[tokio::test]
async fn two_gateways_share_their_leases() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let settings = [("store.url", url.as_str())];
    let (first, second) =
        (GatewayProcess::start_with(&settings).await, GatewayProcess::start_with(&settings).await);
    let own = task(&first, "ada").await;
    let (id, lease) = first.lease(of_analyst("ada", &own)).await;
    let token = first.unbound("project_analyst").await;
    let (one, other) = (first.agent(&token), second.agent(&token));
    let read = json!({ "task_id": own });
    call(&first, &one, &lease, "db.task.get", read.clone()).await.unwrap();
    call(&second, &other, &lease, "db.task.get", read.clone()).await.unwrap();
    // Renewed by the other gateway, with its own key; the first text stays valid.
    let renewed = call(&second, &other, &lease, "lease.renew", json!({})).await.unwrap();
    let renewed = renewed["lease"].as_str().unwrap();
    assert_ne!(Lease::read(&lease).unwrap().key, Lease::read(renewed).unwrap().key);
    for text in [&lease, renewed] {
        call(&first, &one, text, "db.task.get", read.clone()).await.unwrap();
        call(&second, &other, text, "db.task.get", read.clone()).await.unwrap();
    }
    first.must("DELETE", &format!("/api/v1/leases/{id}"), None).await;
    for text in [&lease, renewed] {
        let denied = call(&second, &other, text, "db.task.get", read.clone()).await;
        assert_eq!(denied, Err("the lease was revoked".to_owned()));
    }
}
