//! Preconditions of pulling jobs: the machine's folder, engines that pass their self-test, NATS.

use std::{fmt::Write, sync::Arc, time::Duration};

use broker::{Broker, Chain, ConnectError, retry::RetryDelays};
use sandbox::{Host, HostSettings};
use subjects::node::EngineStatus;
use tracing::{info, warn};

use super::{Error, provision};
use crate::{
    config::Config,
    engines::Engines,
    health::{Blocker, Health},
};

const FIRST_CONNECT_WAIT: Duration = Duration::from_millis(200);
const MAX_CONNECT_WAIT: Duration = Duration::from_secs(5);

/// Opens the machine, removes what an earlier process of this node left, tests the engines, and connects.
pub(super) async fn start(config: &Config, health: &Health) -> Result<(Arc<Host>, Engines, Broker), Error> {
    let host = open_host(config)?;
    remove_leftovers(&host).await?;
    let engines = Engines::open(&host, &config.sandbox.engines).await;
    if engines.offered.is_empty() {
        return Err(Error::NoEngine(describe(&engines.status)));
    }
    let broker = connect(config, health).await?;
    provision::streams(&broker, config).await?;
    Ok((host, engines, broker))
}

/// Removes what an earlier process of this node left.
pub(super) async fn remove_leftovers(host: &Arc<Host>) -> Result<(), Error> {
    let left = sandbox::reconcile(host).await.map_err(Error::Reconcile)?;
    if left.jobs > 0 {
        warn!(
            jobs = left.jobs,
            processes = left.processes,
            cgroups = left.cgroups,
            mounts = left.mounts,
            failed = left.failed,
            "Jobs of an earlier process of this node removed."
        );
    }
    Ok(())
}

pub(super) fn open_host(config: &Config) -> Result<Arc<Host>, Error> {
    let sandbox = &config.sandbox;
    let rootfs = sandbox
        .images
        .iter()
        .filter_map(|image| Some((image.digest.clone(), image.rootfs.clone()?)))
        .collect();
    let mut settings = HostSettings::new(config.node.data.clone());
    settings.first_uid = sandbox.first_uid;
    settings.uids = sandbox.uids;
    settings.rootfs = rootfs;
    settings.internal_hosts.clone_from(&sandbox.internal_hosts);
    if !sandbox.read_only.is_empty() {
        settings.read_only.clone_from(&sandbox.read_only);
    }
    Host::open(settings).map_err(Error::Host)
}

/// Connects to NATS. Retries while the server is unreachable; fails if it rejects the connection.
async fn connect(config: &Config, health: &Health) -> Result<Broker, ConnectError> {
    let mut waits = RetryDelays::forever(FIRST_CONNECT_WAIT, MAX_CONNECT_WAIT);
    loop {
        match broker::connect(&config.nats.options).await {
            Ok(broker) => {
                health.unset(&Blocker::Nats);
                info!("NATS connected.");
                return Ok(broker);
            }
            Err(error) if error.is_transient() => {
                let why = Chain(&error).to_string();
                warn!(why, "NATS not reachable yet; retrying.");
                health.set(Blocker::Nats, why);
            }
            Err(error) => return Err(error),
        }
        tokio::time::sleep(waits.next_delay().unwrap_or(MAX_CONNECT_WAIT)).await;
    }
}

/// Describes engines for a report, one line for each and for each attempt that got out.
pub(super) fn describe(engines: &[EngineStatus]) -> String {
    let mut text = String::new();
    for status in engines {
        let held = status.attempts.iter().filter(|attempt| attempt.held).count();
        let verdict = if status.offered {
            format!("offered: {held} attempts to escape, all held")
        } else {
            format!("not offered: {}", status.notes.join("; "))
        };
        // Writing to a `String` cannot fail.
        let _written = writeln!(text, "{:<10} {verdict}", status.engine.as_str());
        for attempt in status.attempts.iter().filter(|attempt| !attempt.held && !attempt.untried) {
            let detail = attempt.detail.as_deref().unwrap_or("no detail");
            let _written = writeln!(text, "           {}: {detail}", attempt.name);
        }
    }
    text
}
