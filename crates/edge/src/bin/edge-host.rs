//! An edge as a process of its own, for tests that kill it: serves one job until SIGTERM. Its only argument
//! is a file with [`Host`] as JSON.

use std::{collections::BTreeSet, error::Error, fs, path::PathBuf, sync::Arc, time::Duration};

use broker::{Auth, Broker, Options, Tls};
use edge::{Edge, EdgeLimits, EdgeSettings, UpstreamSettings};
use leased::HeldLease;
use nkeys::KeyPair;
use serde::Deserialize;
use subjects::{NodeId, streams::Layout};
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    time::sleep,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// How long the last shipment may take.
const SHIP_ATTEMPTS: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    folder: PathBuf,
    node: NodeId,
    seed: String,
    gateway_url: String,
    token_file: PathBuf,
    nats_url: String,
    /// Holds the signed lease of the job.
    lease_file: PathBuf,
    socket: PathBuf,
    upstreams: Vec<UpstreamSettings>,
    lifetime_seconds: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("name the file with the settings")?;
    let host: Host = serde_json::from_slice(&fs::read(file)?)?;
    let gateway = mcp::Client::new(mcp::Options {
        url: host.gateway_url,
        token_file: Some(host.token_file),
        connect_timeout: Duration::from_secs(2),
        call_timeout: Duration::from_secs(10),
        max_result_bytes: 1 << 20,
        fast_path: true,
        profile: None,
    })?;
    let limits = EdgeLimits { lifetime: Duration::from_secs(host.lifetime_seconds), ..EdgeLimits::default() };
    let edge = Edge::open(EdgeSettings {
        folder: host.folder,
        node: host.node,
        key: KeyPair::from_seed(&host.seed)?,
        gateway,
        trusted_keys: Vec::new(),
        upstreams: host.upstreams,
        limits,
    })?;
    let held = Arc::new(HeldLease::read(fs::read_to_string(host.lease_file)?.trim())?);
    edge.reconcile(&BTreeSet::from([held.lease.lease_id.clone()]))?;
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let (shipper, url, stopped) = (edge.clone(), host.nats_url.clone(), stop.clone());
    tasks.spawn(async move {
        select! {
            // Jobs are served also while NATS is away.
            broker = connect(&url) => {
                let revocations = shipper.follow_revocations(&broker.client, stopped.clone());
                tokio::join!(shipper.ship(&broker, stopped.clone()), revocations);
            }
            () = stopped.cancelled() => {}
        }
    });
    let (closer, stopped) = (edge.clone(), stop.clone());
    tasks.spawn(async move { closer.keep_closing(stopped).await });
    tasks.close();
    let mut terminated = signal(SignalKind::terminate())?;
    let endpoint = loop {
        match edge.serve_job(&held, &host.socket).await {
            Ok(endpoint) => break endpoint,
            Err(error) if error.is_transient() => sleep(RETRY_PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    };
    terminated.recv().await;
    endpoint.close().await;
    stop.cancel();
    tasks.wait().await;
    let broker = connect(&host.nats_url).await;
    for _ in 0..SHIP_ATTEMPTS {
        if edge.ship_once(&broker).await {
            break;
        }
        sleep(RETRY_PAUSE).await;
    }
    edge.close().await;
    Ok(())
}

/// Connects to NATS, as long as it takes.
async fn connect(url: &str) -> Broker {
    let options = Options {
        url: url.to_owned(),
        name: "edge-host".to_owned(),
        auth: Auth::None,
        tls: Tls::default(),
        inbox_prefix: None,
        layout: Layout::default(),
    };
    loop {
        match Box::pin(broker::connect(&options)).await {
            Ok(broker) => return broker,
            Err(_) => sleep(RETRY_PAUSE).await,
        }
    }
}
