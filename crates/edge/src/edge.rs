//! The edge of a node: its leases, and the folder with their audit files.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use contract::lease::Bound;
use futures_util::StreamExt;
use leased::{CallFailure, HeldLease};
use policy::Lease;
use subjects::{
    edge::Record,
    lease::{REVOKED_SUBJECT, Revoked},
};
use tokio::select;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use crate::{
    AuditFile, Clock, EdgeSettings, Error, JobEndpoint, Session,
    endpoint::{ByToken, serve_loopback},
    local::LocalTools,
    shared::{Counters, EdgeCounts, Shared},
    sidecar::{AUDIT, Sidecar, path},
    unclosed::Unclosed,
    validity::Validity,
};

/// Connections to the endpoint on loopback.
const LOOPBACK_CONNECTIONS: usize = 256;

/// Enforces policy for the agents on this node.
#[derive(Debug)]
pub struct Edge {
    pub(crate) folder: PathBuf,
    pub(crate) shared: Arc<Shared>,
    trusted_keys: Vec<String>,
    sessions: Mutex<HashMap<String, Weak<Session>>>,
    by_token: ByToken,
    unclosed: Unclosed,
    /// Held as long as this process uses the folder.
    _lock: File,
}

impl Edge {
    /// Opens the folder with the audit files, which no other process may use. Reaches neither the gateway nor
    /// the MCP servers yet.
    pub fn open(settings: EdgeSettings) -> Result<Arc<Self>, Error> {
        let EdgeSettings { folder, node, key, gateway, trusted_keys, upstreams, limits } = settings;
        let file_error = |error| Error::File(folder.clone(), error);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(file_error)?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(folder.join("lock")).map_err(file_error)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(Error::InUse(folder)),
            Err(fs::TryLockError::Error(error)) => return Err(file_error(error)),
        }
        let shared = Shared {
            node,
            key: Arc::new(key),
            gateway,
            clock: Arc::default(),
            limits,
            local: LocalTools::new(&upstreams)?,
            counts: Counters::default(),
            appended: tokio::sync::Notify::new(),
        };
        Ok(Arc::new(Self {
            folder,
            shared: Arc::new(shared),
            trusted_keys,
            sessions: Mutex::default(),
            by_token: ByToken::default(),
            unclosed: Unclosed::default(),
            _lock: lock,
        }))
    }

    /// Returns the public key that is the holder of this node's leases.
    pub fn holder(&self) -> String {
        self.shared.key.public_key()
    }

    pub fn clock(&self) -> &Arc<Clock> {
        &self.shared.clock
    }

    /// Serves MCP to the agent of one job on a unix socket, under a lease that is bound to this node. If an
    /// earlier process was killed while it served the same job, its lease and audit are continued, also while
    /// the gateway is away; otherwise the gateway is asked to bind the job's lease.
    pub async fn serve_job(
        self: &Arc<Self>,
        held: &Arc<HeldLease>,
        socket: &Path,
    ) -> Result<JobEndpoint, Error> {
        let session = match self.resume(&held.lease.lease_id)? {
            Some(session) => session,
            None => self.bind(held).await?,
        };
        let session = Arc::new(session);
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, session| session.strong_count() > 0);
        sessions.insert(session.lease_id.clone(), Arc::downgrade(&session));
        drop(sessions);
        JobEndpoint::start(session, socket, self.by_token.clone(), self.unclosed.clone())
    }

    /// Serves the endpoints of all jobs on an address of this machine alone, each under its own token.
    /// Returns the address, and a future that serves until `stop`.
    pub async fn listen_loopback(
        &self,
        address: SocketAddr,
        stop: CancellationToken,
    ) -> Result<(SocketAddr, impl Future<Output = ()> + Send + use<>), Error> {
        serve_loopback(address, self.by_token.clone(), LOOPBACK_CONNECTIONS, stop).await
    }

    /// Ends a lease at once, and those that were bound under it.
    pub fn revoke_lease(&self, lease_id: &str) {
        for session in self.active() {
            if session.lease_id == lease_id || session.parent_id == lease_id {
                session.revoke();
            }
        }
    }

    /// Ends leases as their revocations are heard, until `stop`. A revocation that is missed while the node
    /// is cut off takes effect with the next renewal, or when the lease ends.
    pub async fn follow_revocations(&self, client: &async_nats::Client, stop: CancellationToken) {
        let mut heard = match client.subscribe(REVOKED_SUBJECT).await {
            Ok(heard) => heard,
            Err(error) => {
                warn!(%error, "Subscription to lease revocations failed.");
                return;
            }
        };
        loop {
            select! {
                () = stop.cancelled() => return,
                message = heard.next() => match message {
                    Some(message) => match serde_json::from_slice::<Revoked>(&message.payload) {
                        Ok(revoked) => self.revoke_lease(&revoked.lease_id),
                        Err(error) => warn!(%error, "Revocation of a lease is unreadable."),
                    },
                    None => return,
                },
            }
        }
    }

    /// Closes audits that could not be closed when their jobs ended, for example because the disk was full,
    /// as soon as they can be, until `stop`. What is open then is closed by the next process, with
    /// [`Edge::reconcile`].
    pub async fn keep_closing(&self, stop: CancellationToken) {
        self.unclosed.keep_closing(stop).await;
    }

    /// Tries once to close such audits. Returns how many are still open.
    pub fn retry_closing(&self) -> usize {
        self.unclosed.retry()
    }

    pub fn counts(&self) -> EdgeCounts {
        self.shared.counts.read(self.active().len() as u64)
    }

    /// Ends the MCP servers of this node.
    pub async fn close(&self) {
        self.shared.local.close().await;
    }

    pub(crate) fn active(&self) -> Vec<Arc<Session>> {
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.values().filter_map(Weak::upgrade).collect()
    }

    /// Asks the gateway to bind the lease of a job to this node.
    async fn bind(&self, held: &HeldLease) -> Result<Session, Error> {
        let limits = self.shared.limits;
        let request = contract::lease::Bind {
            node: self.shared.node.clone(),
            holder: self.holder(),
            local: self.shared.local.digests().await,
            audit_quota: Some(limits.audit_lines),
            lifetime_seconds: Some(limits.lifetime.as_secs().max(1)),
        };
        let at = self.shared.clock.latest();
        let key = Uuid::now_v7().to_string();
        let bound = leased::call(&self.shared.gateway, &request, &key, held, limits.bind_patience);
        let bound = bound.await.map_err(Error::Bind)?;
        self.start_session(&held.lease.lease_id, bound, at)
    }

    /// Begins to use a lease that the gateway returned.
    fn start_session(&self, parent_id: &str, bound: Bound, at: i64) -> Result<Session, Error> {
        let lease = self.check(&bound.lease, None, &bound.rules)?;
        let id = lease.lease_id.clone();
        let file_error = |error| Error::File(self.folder.clone(), error);
        let sidecar = Sidecar {
            parent_id: parent_id.to_owned(),
            gateway_key: lease.key.clone(),
            rules: bound.rules.clone(),
        };
        let limits = self.file_limits(&lease);
        // A file without a line is removed at the next start, with what is beside it.
        let file = AuditFile::create(&path(&self.folder, &id, AUDIT), &id, self.shared.key.clone(), limits);
        let file = file.map_err(file_error)?;
        sidecar.write(&self.folder, &id).map_err(file_error)?;
        let (node, holder) = (self.shared.node.clone(), self.holder());
        file.append(at, Record::Opened { lease_id: id.clone(), node, holder, lease: bound.lease.clone() })?;
        info!(lease.id = id, parent = parent_id, "Lease bound to this node.");
        let now = self.shared.clock.latest();
        let validity = Validity::received(lease, bound.lease.into(), at, now);
        Ok(Session::new(self.shared.clone(), parent_id.to_owned(), file, validity, bound.rules))
    }

    /// Verifies a lease offline: its signature, that it is for this node, and its rules.
    pub(crate) fn check(
        &self,
        text: &str,
        gateway_key: Option<&str>,
        rules: &[policy::Rule],
    ) -> Result<Lease, Error> {
        let lease = Lease::read(text)?;
        let is_trusted = self.trusted_keys.is_empty() || self.trusted_keys.contains(&lease.key);
        if !is_trusted || gateway_key.is_some_and(|key| key != lease.key) {
            return Err(Error::NotOurs("it was signed with another key than the gateway's"));
        }
        if lease.node.as_deref() != Some(self.shared.node.as_str()) {
            return Err(Error::NotOurs("it names another node"));
        }
        if lease.holder != Some(self.holder()) {
            return Err(Error::NotOurs("it is held by another key"));
        }
        if lease.rules.as_deref() != Some(&*Bound::digest_of(rules)) {
            return Err(Error::NotOurs("its access rules are others"));
        }
        Ok(lease)
    }

    /// Returns how many lines and bytes the audit of a lease may have.
    pub(crate) fn file_limits(&self, lease: &Lease) -> (u64, u64) {
        let limits = self.shared.limits;
        (lease.audit_quota.unwrap_or_default().min(limits.audit_lines), limits.audit_bytes)
    }
}

impl From<CallFailure> for Error {
    fn from(failure: CallFailure) -> Self {
        Self::Bind(failure)
    }
}
