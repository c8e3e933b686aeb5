//! What a node accepts as the renewal of its lease: from any gateway of its store, never more than before.

use std::{fs, path::Path, sync::Arc, time::Duration};

use edge::{Edge, EdgeLimits, EdgeSettings};
use policy::Lease;
use serde_json::json;
use subjects::edge::{Line, Record, split_lines};
use testkit::{GatewayProcess, Postgres, eventually};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    select,
    sync::watch,
    task::JoinSet,
};

use super::support::{NODE, World, call};

/// An address with one gateway behind it at a time, as that of a load balancer.
struct Balancer {
    address: String,
    target: watch::Sender<String>,
    _serving: JoinSet<()>,
}

fn address_of(gateway: &GatewayProcess) -> String {
    gateway.url().trim_start_matches("http://").trim_end_matches("/mcp").to_owned()
}

impl Balancer {
    async fn before(gateway: &GatewayProcess) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (target, chosen) = watch::channel(address_of(gateway));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let mut chosen = chosen.clone();
                connections.spawn(async move {
                    let target = chosen.borrow_and_update().clone();
                    let Ok(mut server) = TcpStream::connect(target).await else { return };
                    select! {
                        copied = copy_bidirectional(&mut client, &mut server) => drop(copied),
                        changed = chosen.changed() => drop(changed),
                    }
                });
            }
        });
        Self { address, target, _serving: serving }
    }

    fn switch_to(&self, gateway: &GatewayProcess) {
        self.target.send_replace(address_of(gateway));
    }

    /// Opens an edge that reaches the gateways over this address.
    fn open(&self, world: &World, folder: &str, limits: EdgeLimits, trusted_keys: &[String]) -> Arc<Edge> {
        let gateway = mcp::Client::new(mcp::Options {
            url: format!("http://{}/mcp", self.address),
            token_file: Some(world.path("token")),
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(10),
            max_result_bytes: 1 << 20,
            fast_path: true,
            profile: None,
        })
        .unwrap();
        Edge::open(EdgeSettings {
            folder: world.path(folder),
            node: NODE.parse().unwrap(),
            key: world.key.clone(),
            gateway,
            trusted_keys: trusted_keys.to_vec(),
            upstreams: world.upstreams(),
            limits,
        })
        .unwrap()
    }
}

/// Returns which keys signed the lease of an audit file, in their order.
fn keys_of(file: &Path) -> Vec<String> {
    let body = fs::read(file).unwrap();
    let lines = split_lines(&body).map(|text| Line::decode(text).unwrap().0.record);
    let leases = lines.filter_map(|record| match record {
        Record::Opened { lease, .. } | Record::Renewed { lease } => Some(lease),
        _ => None,
    });
    leases.map(|text| Lease::read(&text).unwrap().key).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lease_is_renewed_by_another_gateway_on_postgres_unless_the_node_does_not_trust_its_key() {
    let postgres = Postgres::start();
    let url = postgres.database();
    let store = [("store.url", url.as_str()), ("store.max_connections", "4"), ("store.patience", "30s")];
    let mut world = World::start_at(Vec::new(), &store).await;
    let nats = world.nats.url();
    let other = GatewayProcess::start_with(&[&store[..], &[("nats.url", &nats)]].concat()).await;
    let balancer = Balancer::before(&world.gateway).await;
    let limits = EdgeLimits { lifetime: Duration::from_secs(4), ..EdgeLimits::default() };
    let edge = balancer.open(&world, "edge", limits, &[]);
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    let file = world.path("edge").join(format!("{lease}.audit"));
    let first = keys_of(&file)[0].clone();
    let wary = balancer.open(&world, "wary", limits, std::slice::from_ref(&first));
    let distrusting = wary.serve_job(&world.job_lease(None).await, &world.path("t")).await.unwrap();
    for endpoint in [&endpoint, &distrusting] {
        assert!(call(endpoint, "local.echo", json!({})).await["error"].is_null());
    }

    balancer.switch_to(&other);
    world.gateway.kill();
    eventually("the other gateway renews the lease twice", async || {
        let answer = call(&endpoint, "local.echo", json!({})).await;
        assert!(answer["error"].is_null(), "{answer}");
        (keys_of(&file).iter().filter(|key| **key != first).count() >= 2).then_some(())
    })
    .await;
    eventually("the lease ends that only the other gateway could renew", async || {
        let answer = call(&distrusting, "local.echo", json!({})).await;
        (answer["error"]["data"]["reason"] == "expired_lease").then_some(())
    })
    .await;
    let kept = keys_of(&world.path("wary").join(format!("{}.audit", distrusting.lease_id())));
    assert!(kept.iter().all(|key| *key == first), "{kept:?}");

    // As after a crash: another process continues the lease as it was renewed.
    fs::create_dir(world.path("crashed")).unwrap();
    for end in ["audit", "json"] {
        let name = format!("{lease}.{end}");
        fs::copy(world.path("edge").join(&name), world.path("crashed").join(&name)).unwrap();
    }
    drop((endpoint, edge));
    let edge = balancer.open(&world, "crashed", limits, &[]);
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    assert_eq!(endpoint.lease_id(), lease);
    assert!(call(&endpoint, "local.echo", json!({})).await["error"].is_null());
}

#[tokio::test]
async fn lease_that_is_renewed_after_its_profile_was_closed_has_no_local_tools() {
    let world = World::start().await;
    let limits = EdgeLimits { lifetime: Duration::from_secs(2), ..EdgeLimits::default() };
    let edge = world.open("edge", &world.key, NODE, limits);
    let held = world.job_lease(None).await;
    let endpoint = edge.serve_job(&held, &world.path("s")).await.unwrap();
    let lease = endpoint.lease_id().to_owned();
    assert!(call(&endpoint, "local.echo", json!({})).await["error"].is_null());
    let set = async |is_open: bool| {
        let setting = Some(json!({ "value": is_open }));
        world.gateway.must("PUT", "/api/v1/settings/profile.default.network", setting).await
    };
    set(false).await;
    eventually("the tool is not the node's any more", async || {
        let answer = call(&endpoint, "local.echo", json!({})).await;
        let message = answer["error"]["message"].as_str()?;
        assert!(message.contains("local.echo"), "{answer}");
        Some(())
    })
    .await;
    let made = world.server.calls().len();
    // The lease goes on, and does not get back what it lost.
    set(true).await;
    eventually("the lease was renewed more than once", async || {
        assert!(call(&endpoint, "help.list", json!({})).await["error"].is_null());
        assert!(!call(&endpoint, "local.echo", json!({})).await["error"].is_null());
        let known = world.node_audit().await["leases"][0].clone();
        let lasted = known["expires_at"].as_i64()? - known["bound_at"].as_i64()?;
        (lasted > 7_000_000).then_some(())
    })
    .await;
    assert_eq!(world.server.calls().len(), made);
    endpoint.close().await;
    world.ship(&edge).await;
    assert_eq!(world.wait_until_closed(&lease).await["close_reason"], "done");
    let (is_ok, said) = world.verify();
    assert!(is_ok, "{said}");
}
