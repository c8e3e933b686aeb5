//! Leases where the clocks of gateways differ, or are set back.

use std::{sync::Arc, time::Duration};

use access::leases::Leases;
use contract::lease::Issue;
use control::{LeaseIssuer, NewLease};
use mcp::Client;
use nkeys::KeyPair;
use policy::{AgentKind, LeaseMode, LeaseStanding};
use sea_orm::{ActiveValue::Set, DatabaseExecutor, EntityTrait};
use serde_json::json;
use store::{Durability, Outbox, Store, clock, entity};
use testkit::{GatewayProcess, Postgres, TestClock};

use super::{call, of_analyst, task};

/// Gateways on PostgreSQL go by the clock of its server, so each accepts at once what another one has issued
/// or renewed, and no lease ends early, although the clocks of their machines differ by an hour.
#[tokio::test]
async fn gateways_whose_clocks_differ_accept_each_others_leases() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let (ahead, behind) = (TestClock::at("2026-11-18T11:00:00Z"), TestClock::at("2026-11-18T10:00:00Z"));
    let settings = [("store.url", url.as_str())];
    let first = GatewayProcess::start_with_variables(&settings, &[ahead.variable_of_machine()]).await;
    let second = GatewayProcess::start_with_variables(&settings, &[behind.variable_of_machine()]).await;
    let own = task(&first, "ada").await;
    let token = first.unbound("project_analyst").await;
    let gateways = [&first, &second];
    let agents = [first.agent(&token), second.agent(&token)];
    let read = json!({ "task_id": own });
    let mut leases = Vec::new();
    for issuer in [0, 1] {
        let (_, lease) = gateways[issuer].lease(of_analyst("ada", &own)).await;
        for reader in [1 - issuer, issuer] {
            call(gateways[reader], &agents[reader], &lease, "db.task.get", read.clone()).await.unwrap();
        }
        let renewer = 1 - issuer;
        let renewed =
            call(gateways[renewer], &agents[renewer], &lease, "lease.renew", json!({})).await.unwrap();
        leases.extend([lease, renewed["lease"].as_str().unwrap().to_owned()]);
    }
    for (gateway, agent) in gateways.iter().zip(&agents) {
        for lease in &leases {
            call(gateway, agent, lease, "db.task.get", read.clone()).await.unwrap();
        }
    }
}

/// The gateway goes by the latest time that it has seen: here by a row that was written when the clock was an
/// hour ahead of now.
#[tokio::test]
async fn a_clock_that_is_set_back_revives_no_lease() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&store::Options {
        url: format!("sqlite://{}", folder.path().join("gateway.db").display()),
        max_connections: 4,
        patience: Duration::from_secs(5),
        durability: Durability::Process,
    })
    .await
    .unwrap();
    let minutes = Duration::from_secs(900);
    let (key, outbox) = (KeyPair::new_user(), Arc::new(Outbox::new(false)));
    let issuer = LeaseIssuer { key, outbox, lifetime: minutes, renewable_for: 10 * minutes };
    let write = store.write().await.unwrap();
    let lease = Issue::new(AgentKind::ProjectManager, "ada".parse().ok());
    let new = NewLease { lease, parent_id: None, issued_by: "test".into() };
    let db = DatabaseExecutor::Transaction(&write);
    let (_, issued) = issuer.issue(&db, new).await.unwrap();
    write.commit().await.unwrap();
    let key = issuer.key.public_key();
    let standing = async || {
        let leases = Leases::open(&store, LeaseMode::Optional, minutes, &key).await.unwrap();
        leases.look_up(&store, Some(&issued.lease)).await.unwrap()
    };
    assert!(matches!(standing().await, LeaseStanding::Valid(_)));
    let row = entity::audit::ActiveModel {
        seq: Set(1),
        created_at: Set(clock::now() + 3_600_000_000),
        call_id: Set("c".into()),
        agent: Set("admin".into()),
        tool: Set("t".into()),
        decision: Set("allow".into()),
        status: Set("success".into()),
        duration_us: Set(0),
        hash: Set("h".into()),
        ..entity::audit::ActiveModel::default()
    };
    entity::audit::Entity::insert(row).exec(store.read()).await.unwrap();
    assert!(matches!(standing().await, LeaseStanding::Renewable(_)));
}

/// After the clock was an hour ahead and is right again, leases are issued, also under others, renewed and
/// shown by the time that they are checked by: before and after a restart.
#[tokio::test]
async fn leases_work_after_the_clock_was_ahead() {
    let time = TestClock::at("2026-11-18T10:00:00Z");
    let mut gateway = GatewayProcess::start_with_variables(&[], &[time.variable()]).await;
    let own = task(&gateway, "ada").await;
    let read = json!({ "task_id": own });
    let of_manager = json!({ "agent": "project_manager", "user_id": "ada" });
    let (_, before) = gateway.lease(of_manager.clone()).await;
    let manager = gateway.agent(&gateway.manager().await);
    time.set("2026-11-18T11:00:00Z");
    let expired = call(&gateway, &manager, &before, "db.task.get", read.clone()).await;
    assert_eq!(expired, Err("the lease has expired".to_owned()));
    time.set("2026-11-18T10:00:00Z");
    for round in 0..2 {
        if round == 1 {
            gateway.start_again().await;
        }
        let manager = gateway.agent(&gateway.manager().await);
        let analyst = gateway.agent(&gateway.unbound("project_analyst").await);
        let works = async |agent: &Client, lease: &str| {
            call(&gateway, agent, lease, "db.task.get", read.clone()).await.map(drop)
        };
        let (id, issued) = gateway.lease(of_manager.clone()).await;
        assert_eq!(works(&manager, &issued).await, Ok(()), "round {round}: issued");
        let shown = gateway.must("GET", &format!("/api/v1/leases/{id}"), None).await;
        assert_eq!(shown["state"], "active", "round {round}: {shown}");
        let listed = gateway.must("GET", "/api/v1/leases?state=active", None).await;
        assert!(
            listed.as_array().unwrap().iter().any(|lease| lease["id"] == id.as_str()),
            "round {round}: {listed}"
        );
        let child = call(&gateway, &manager, &issued, "lease.issue", of_analyst("ada", &own)).await.unwrap();
        let child = child["lease"].as_str().unwrap();
        assert_eq!(works(&analyst, child).await, Ok(()), "round {round}: issued under a lease");
        let renewed = call(&gateway, &manager, &before, "lease.renew", json!({})).await.unwrap();
        let renewed = renewed["lease"].as_str().unwrap();
        assert_eq!(works(&manager, renewed).await, Ok(()), "round {round}: renewed");
    }
}
