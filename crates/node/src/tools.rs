//! The tools that jobs call through the node: each job that may call some has an endpoint of its own, and
//! what it calls is decided and audited here.

use std::{
    collections::BTreeSet,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use broker::{Broker, Chain};
use edge::{Edge, EdgeLimits, EdgeSettings, JobEndpoint};
use leased::HeldLease;
use secrets::{file, signing_key};
use subjects::job::Job;
use tokio::select;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{debug, info, warn};

use crate::{Breaker, config::Config};

/// The name of the socket in the sandbox, below `/run/cynode`.
const SOCKET_NAME: &str = "mcp";
/// Where a job finds its endpoint.
const SOCKET_VARIABLE: &str = "CYNODE_MCP_SOCKET";
const URL_VARIABLE: &str = "CYNODE_MCP_URL";
const TOKEN_VARIABLE: &str = "CYNODE_MCP_TOKEN";

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Key(#[from] signing_key::Error),
    #[error("creating the socket folder {}", .0.display())]
    Folder(PathBuf, #[source] io::Error),
    #[error(transparent)]
    Edge(#[from] edge::Error),
}

/// Serves tools to jobs.
#[derive(Debug)]
pub(crate) struct JobTools {
    edge: Arc<Edge>,
    sockets: PathBuf,
    /// Where the loopback listener is, if there is one.
    address: Option<SocketAddr>,
}

impl JobTools {
    /// Opens the audit of the node, and closes what an earlier process of it left open.
    pub(crate) async fn open(
        config: &Config,
        gateway: mcp::Client,
        background: &TaskTracker,
        stop: &CancellationToken,
    ) -> Result<Self, Error> {
        let data = &config.node.data;
        let edge = Edge::open(EdgeSettings {
            folder: data.join("edge"),
            node: config.node.id.clone(),
            key: signing_key::read_or_create(&data.join("node.nk"))?,
            gateway,
            trusted_keys: Vec::new(),
            upstreams: config.edge.upstreams.clone(),
            limits: EdgeLimits { lifetime: config.edge.lifetime, ..EdgeLimits::default() },
        })?;
        let closed = edge.reconcile(&BTreeSet::new())?;
        if closed > 0 {
            warn!(leases = closed, "Audit of an earlier process of this node closed.");
        }
        let (closer, ended) = (Arc::clone(&edge), stop.clone());
        background.spawn(async move { closer.keep_closing(ended).await });
        let sockets = data.join("sockets");
        make_folder(&sockets).map_err(|error| Error::Folder(sockets.clone(), error))?;
        let address = match config.edge.listen {
            Some(listen) => {
                let (address, serving) = edge.listen_loopback(listen, stop.clone()).await?;
                background.spawn(serving);
                info!(%address, "Serving tools to jobs.");
                Some(address)
            }
            None => None,
        };
        Ok(Self { edge, sockets, address })
    }

    /// Ships the audit and listens for revoked leases, until `stop`.
    pub(crate) fn follow(&self, broker: &Arc<Broker>, background: &TaskTracker, stop: &CancellationToken) {
        let (edge, broker_of_audit, ended) = (Arc::clone(&self.edge), Arc::clone(broker), stop.clone());
        background.spawn(async move { edge.ship(&broker_of_audit, ended).await });
        let (edge, client, ended) = (Arc::clone(&self.edge), broker.client.clone(), stop.clone());
        background.spawn(async move { edge.follow_revocations(&client, ended).await });
    }

    /// Stops pulling while the audit cannot be written, for example because the disk is full: jobs that call
    /// tools would have to be handed back.
    pub(crate) fn watch_audit(&self, breaker: &Breaker, background: &TaskTracker, stop: &CancellationToken) {
        let mut failures = self.edge.write_failures();
        let (tripped, ended) = (breaker.clone(), stop.clone());
        background.spawn(async move {
            loop {
                select! {
                    () = ended.cancelled() => return,
                    // Cancel-safe: only observes.
                    failed = failures.changed() => if failed.is_err() { return },
                }
                let why = failures.borrow_and_update().clone();
                tripped.trip(&format!("cannot write the audit of what jobs call: {why}"));
            }
        });
        let (edge, probed) = (Arc::clone(&self.edge), breaker.clone());
        let probe = move || {
            match edge.try_writing() {
                Ok(()) => probed.record_success(),
                Err(error) => debug!(error = %Chain(&error), "Audit still not writable."),
            }
            // Nothing has to be tried with a job.
            std::future::ready(false)
        };
        let (watched, ended) = (breaker.clone(), stop.clone());
        background.spawn(async move { watched.watch(probe, ended).await });
    }

    /// Serves the tools of a job until the endpoint is closed. `None` if the job calls none.
    pub(crate) async fn serve(
        &self,
        job: &Job,
        lease: &Arc<HeldLease>,
    ) -> Result<Option<JobEndpoint>, edge::Error> {
        if job.spec.tools.is_empty() {
            return Ok(None);
        }
        // The path of a socket is short: the end of the id is its random part.
        let id = job.job_id.to_string().replace('-', "");
        let socket = self.sockets.join(&id[id.len() - 12..]);
        self.edge.serve_job(lease, &socket).await.map(Some)
    }

    /// Tells a job where its endpoint is.
    pub(crate) fn add_to(&self, spec: &mut sandbox::Spec, endpoint: &JobEndpoint) {
        spec.sockets.push((endpoint.socket().to_owned(), SOCKET_NAME.to_owned()));
        spec.env.push((SOCKET_VARIABLE.to_owned(), format!("/run/cynode/{SOCKET_NAME}")));
        if let Some(address) = self.address {
            spec.env.push((URL_VARIABLE.to_owned(), format!("http://{address}/mcp")));
            spec.env.push((TOKEN_VARIABLE.to_owned(), endpoint.token().to_owned()));
        }
    }

    /// Ships what is left and ends the node's MCP servers.
    pub(crate) async fn close(&self, broker: &Broker) {
        let open = self.edge.retry_closing();
        if open > 0 {
            warn!(leases = open, "Audit not closed; the next start of the node closes it.");
        }
        if !self.edge.ship_once(broker).await {
            warn!("Audit shipped only in part; the next start of the node ships the rest.");
        }
        self.edge.close().await;
    }
}

/// Makes the socket folder accessible to this user only, also if it exists: access to a socket permits calls
/// as its job. Jobs do not need it: each connects to a socket in its sandbox, and the node forwards the data.
fn make_folder(path: &Path) -> io::Result<()> {
    file::create_private_folder(path)?;
    file::make_private(path)
}

#[cfg(test)]
mod tests;
