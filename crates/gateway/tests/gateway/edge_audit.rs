//! What nodes audit is taken over once, by however many gateways, and after whatever crash.

use contract::lease::{Bind, Bound};
use nkeys::KeyPair;
use sea_orm::{ColumnTrait, EntityTrait, PaginatorTrait, QueryFilter};
use serde_json::{Value, json};
use store::entity::edge_alarm;
use subjects::{
    Subject,
    edge::{CloseReason, EdgeCall, Line, Outcome, Record, Signature},
    streams,
};
use testkit::{GatewayProcess, Nats, Postgres, eventually};

use crate::{
    administration::support::store,
    instances::support::{assert_audit_is_whole, gateways},
};

const NODE: &str = "node-1";

/// Binds the lease of a job as a node does.
async fn bind(gateway: &GatewayProcess, key: &KeyPair) -> Bound {
    let (_, token) = gateway.issue(json!({ "label": "node", "agent": "node", "node": NODE })).await;
    let new = json!({ "agent": "sandbox", "user_id": "ada", "task_id": "t-1" });
    let (_, lease) = gateway.lease(new).await;
    let arguments = contract::arguments(&Bind {
        node: NODE.parse().unwrap(),
        holder: key.public_key(),
        local: [].into(),
        audit_quota: None,
        lifetime_seconds: None,
    });
    let client = gateway.agent(&token);
    let reply =
        gateway.call_under(&client, Some(&lease), "lease.bind", Value::Object(arguments)).await.unwrap();
    serde_json::from_value(reply.structured.unwrap()).unwrap()
}

/// Returns the lines of a lease with this many calls.
fn lines(bound: &Bound, key: &KeyPair, calls: usize) -> Vec<Vec<u8>> {
    let (mut lines, mut prev) = (Vec::new(), String::new());
    let mut add = |record: Record| {
        let n = lines.len() as u64 + 1;
        let (text, hash) = Line { n, prev: prev.clone(), at: 1_800_000_000_000_000, record }.encode();
        lines.push(text);
        prev = hash;
        n
    };
    let lease_id = bound.lease_id.clone();
    let (node, holder) = (NODE.parse().unwrap(), key.public_key());
    add(Record::Opened { lease_id: lease_id.clone(), node, holder, lease: bound.lease.clone() });
    for number in 0..calls {
        let call = EdgeCall {
            call_id: format!("{lease_id}-{number}"),
            tool: "local.echo".into(),
            ..EdgeCall::default()
        };
        let of = add(Record::Began(call));
        add(Record::Ended { of, outcome: Outcome::Success, error_type: None, duration_us: 5 });
    }
    let n = lines.len() as u64 + 1;
    let head = Signature::sign(key, &lease_id, n, &prev).unwrap();
    let last =
        Line { n, prev, at: 1_800_000_000_000_000, record: Record::Closed { why: CloseReason::Done, head } };
    lines.push(last.encode().0);
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_take_over_each_line_once_although_one_is_killed() {
    const LEASES: usize = 5;
    const CALLS: usize = 200;
    let (postgres, nats) = (Postgres::start(), Nats::start());
    let mut gateways = gateways(3, &postgres.database(), &[("nats.url", &nats.url())]).await;
    let key = KeyPair::new_user();
    let client = nats.client().await;
    let jetstream = async_nats::jetstream::new(client);
    let mut batches: Vec<(Subject, Vec<Vec<u8>>)> = Vec::new();
    for _ in 0..LEASES {
        let bound = bind(&gateways[0], &key).await;
        let subject = Subject::EdgeAudit(NODE.parse().unwrap(), bound.lease_id.parse().unwrap());
        let all = lines(&bound, &key, CALLS);
        batches.push((subject, all.chunks(7).map(<[Vec<u8>]>::concat).collect()));
    }
    let rounds = batches[0].1.len();
    for round in 0..rounds {
        for (subject, batches) in &batches {
            let stored = jetstream.publish(subject.to_string(), batches[round].clone().into()).await.unwrap();
            stored.await.unwrap();
        }
        if round == rounds / 2 {
            gateways[2].kill();
        }
    }
    gateways[2].start_again().await;
    let audit = eventually("all leases are closed", async || {
        let audit = gateways[1].must("GET", "/api/v1/audit/nodes", None).await;
        let leases = audit["leases"].as_array()?.clone();
        let is_done = leases.len() == LEASES && leases.iter().all(|lease| !lease["closed_at"].is_null());
        is_done.then_some(audit)
    })
    .await;
    assert_eq!(audit["alarms"], json!([]), "{audit:#}");
    for lease in audit["leases"].as_array().unwrap() {
        let id = lease["lease_id"].as_str().unwrap();
        let rows = gateways[0].audit(&format!("lease_id={id}&node={NODE}&limit=1000")).await;
        assert_eq!(rows.len(), CALLS);
        assert!(rows.iter().all(|row| row["status"] == "success" && row["user_id"] == "ada"));
    }
    assert_audit_is_whole(&gateways[0]).await;
}

/// The nodes begin again with their first lines, as they do when the stream is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_on_postgres_take_over_each_line_once_although_the_stream_is_lost() {
    const LEASES: usize = 4;
    const CALLS: usize = 60;
    let (postgres, nats) = (Postgres::start(), Nats::start());
    let gateways = gateways(2, &postgres.database(), &[("nats.url", &nats.url())]).await;
    let key = KeyPair::new_user();
    let jetstream = async_nats::jetstream::new(nats.client().await);
    let mut leases: Vec<(Subject, Vec<Vec<u8>>)> = Vec::new();
    for _ in 0..LEASES {
        let bound = bind(&gateways[0], &key).await;
        let subject = Subject::EdgeAudit(NODE.parse().unwrap(), bound.lease_id.parse().unwrap());
        leases.push((subject, lines(&bound, &key, CALLS)));
    }
    let known = async || {
        let audit = gateways[1].must("GET", "/api/v1/audit/nodes", None).await;
        audit["leases"].as_array().unwrap().clone()
    };
    // Messages of other sizes each time, so that a sequence has other lines than before.
    for (size, share) in [(3, 2), (5, 3), (7, 4)] {
        for round in 0..(2 * CALLS + 2).div_ceil(size) * share / 4 {
            for (subject, lines) in &leases {
                let body = lines.chunks(size).nth(round).unwrap().concat();
                let stored = jetstream.publish(subject.to_string(), body.into()).await.unwrap();
                stored.await.unwrap();
            }
        }
        if share < 4 {
            eventually("some lines of each lease are taken over", async || {
                known().await.iter().all(|lease| lease["lines"].as_i64() > Some(0)).then_some(())
            })
            .await;
            nats.lose_stream(streams::edge_audit(1)).await;
        }
    }
    eventually("all leases are closed", async || {
        known().await.iter().all(|lease| !lease["closed_at"].is_null()).then_some(())
    })
    .await;
    let audit = gateways[0].must("GET", "/api/v1/audit/nodes", None).await;
    assert_eq!(audit["alarms"], json!([]), "{audit:#}");
    for lease in known().await {
        assert_eq!(lease["lines"].as_u64(), Some(2 * CALLS as u64 + 2));
        let id = lease["lease_id"].as_str().unwrap();
        let rows = gateways[0].audit(&format!("lease_id={id}&node={NODE}&limit=1000")).await;
        assert_eq!(rows.len(), CALLS);
    }
    assert_audit_is_whole(&gateways[0]).await;
}

/// The leases would last for minutes; what counts is that they were revoked. One was never used: its node got
/// no answer, or was killed before it had written its first line. Nothing is missing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_on_postgres_raise_one_alarm_when_a_revoked_lease_that_was_used_is_not_closed() {
    let (postgres, nats) = (Postgres::start(), Nats::start());
    let settings = [("nats.url", nats.url()), ("audit.node_grace", "1s".to_owned())];
    let settings = settings.each_ref().map(|(key, value)| (*key, value.as_str()));
    let gateways = gateways(2, &postgres.database(), &settings).await;
    let key = KeyPair::new_user();
    let (revoked, valid) = (bind(&gateways[0], &key).await, bind(&gateways[0], &key).await);
    let unused = bind(&gateways[0], &key).await;
    let subject = Subject::EdgeAudit(NODE.parse().unwrap(), revoked.lease_id.parse().unwrap());
    let jetstream = async_nats::jetstream::new(nats.client().await);
    let opened = lines(&revoked, &key, 0).remove(0);
    jetstream.publish(subject.to_string(), opened.into()).await.unwrap().await.unwrap();
    eventually("the first line is taken over", async || {
        let audit = gateways[1].must("GET", "/api/v1/audit/nodes", None).await;
        audit["leases"].as_array()?.iter().any(|lease| lease["lines"] == 1).then_some(())
    })
    .await;
    for lease in [&unused, &revoked] {
        gateways[1].must("DELETE", &format!("/api/v1/leases/{}", lease.lease_id), None).await;
    }
    let alarms = eventually("the alarm is raised", async || {
        let audit = gateways[1].must("GET", "/api/v1/audit/nodes", None).await;
        audit["alarms"].as_array().filter(|alarms| !alarms.is_empty()).cloned()
    })
    .await;
    let found: Vec<_> = alarms.iter().map(|alarm| (&alarm["kind"], &alarm["lease_id"])).collect();
    assert_eq!(found, [(&json!("not_closed"), &json!(revoked.lease_id))], "{}", valid.lease_id);
}

/// A hostile node writes half a million unreadable lines, and lines under invented leases. Other calls are
/// answered meanwhile, and the alarms stay few.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_a_hostile_node_stops_no_other_call() {
    let nats = Nats::start();
    let gateway = GatewayProcess::start_with(&[("nats.url", &nats.url())]).await;
    let key = KeyPair::new_user();
    let jetstream = async_nats::jetstream::new(nats.client().await);
    let bound = bind(&gateway, &key).await;
    let subject = Subject::EdgeAudit(NODE.parse().unwrap(), bound.lease_id.parse().unwrap()).to_string();
    let publish = async |subject: String, body: Vec<u8>| {
        jetstream.publish(subject, body.into()).await.unwrap().await.unwrap();
    };
    for _ in 0..3 {
        publish(subject.clone(), b"x\n".repeat(200_000)).await;
    }
    for number in 0..600 {
        let invented = format!("019a0000-0000-7000-8000-{number:012}");
        let subject = Subject::EdgeAudit(NODE.parse().unwrap(), invented.parse().unwrap()).to_string();
        publish(subject, b"x\n".to_vec()).await;
    }
    let manager = gateway.agent(&gateway.manager().await);
    let audit = eventually("the flood is taken over", async || {
        gateway.call(&manager, "db.task.list", json!({})).await.expect("a call while the flood comes");
        let audit = gateway.must("GET", "/api/v1/audit/nodes", None).await;
        (audit["leases"][0]["lines"] == 600_000).then_some(audit)
    })
    .await;
    let db = store(&gateway).await;
    let unknown = edge_alarm::Column::Kind.eq("unknown_lease");
    let unknown = async || edge_alarm::Entity::find().filter(unknown.clone()).count(&db).await.unwrap();
    eventually("invented leases are refused", async || (unknown().await == 500).then_some(())).await;
    let all = edge_alarm::Entity::find().count(&db).await.unwrap();
    assert!((501..=700).contains(&all), "{all} alarms: {audit:#}");
    assert_audit_is_whole(&gateway).await;
}
