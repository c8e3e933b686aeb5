//! The edge of a node: its leases, and the folder with their audit files.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, File, OpenOptions},
    io::Write,
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use contract::lease::{Bound, Renew};
use futures_util::StreamExt;
use leased::{CallFailure, HeldLease};
use policy::Lease;
use subjects::{
    edge::Record,
    lease::{REVOKED_SUBJECT, Revoked},
};
use tokio::{select, sync::watch};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use uuid::Uuid;

use crate::{
    AuditFile, Clock, EdgeSettings, Error, JobEndpoint, Session,
    endpoint::{ByToken, serve_loopback},
    local::LocalTools,
    shared::{Counters, EdgeCounts, Shared},
    sidecar::{self, AUDIT, Sidecar, path},
    unclosed::Unclosed,
    validity::Validity,
};

/// Connections to the endpoint on loopback.
const LOOPBACK_CONNECTIONS: usize = 256;
/// The file that is written to find out whether files can be, and its size: room for many lines.
const TRIAL: &str = "trial";
const TRIAL_BYTES: usize = 64 * 1024;

/// Enforces policy for the agents on this node.
#[derive(Debug)]
pub struct Edge {
    pub(crate) folder: PathBuf,
    pub(crate) shared: Arc<Shared>,
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
            trusted_keys,
            clock: Arc::default(),
            limits,
            local: LocalTools::new(&upstreams)?,
            counts: Counters::default(),
            appended: tokio::sync::Notify::new(),
            write_failure: watch::Sender::default(),
        };
        Ok(Arc::new(Self {
            folder,
            shared: Arc::new(shared),
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
        let served = self.begin_serving(held, socket).await;
        if let Err(error) = &served
            && error.is_of_this_node()
        {
            self.shared.note_write_failure(error);
        }
        served
    }

    async fn begin_serving(&self, held: &HeldLease, socket: &Path) -> Result<JobEndpoint, Error> {
        let session = match self.resume(&held.lease.lease_id)? {
            Some(session) => session,
            None => self.bind(held).await?,
        };
        let session = Arc::new(session);
        self.add(&session);
        let (by_token, unclosed) = (self.by_token.clone(), self.unclosed.clone());
        let endpoint = JobEndpoint::start(session.clone(), socket, by_token, unclosed);
        // Dropped, an endpoint closes its audit; without one, nothing else would.
        let endpoint = endpoint.inspect_err(|_| self.unclosed.close(&session))?;
        if session.file.is_new() {
            self.state_opening(&session).await?;
        }
        Ok(endpoint)
    }

    fn add(&self, session: &Arc<Session>) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        sessions.retain(|_, session| session.strong_count() > 0);
        sessions.insert(session.lease_id.clone(), Arc::downgrade(session));
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

    /// Ends leases as their revocations arrive, until `stop`. A revocation that is missed while the node
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

    /// Returns why a file of the audit could not be written, whenever one could not.
    pub fn write_failures(&self) -> watch::Receiver<String> {
        self.shared.write_failure.subscribe()
    }

    /// Tries whether files of the audit can be written.
    pub fn try_writing(&self) -> Result<(), Error> {
        let path = self.folder.join(TRIAL);
        let write = |mut file: File| {
            file.write_all(&[0; TRIAL_BYTES])?;
            file.sync_data()
        };
        let written = File::create(&path).and_then(write);
        let removed = fs::remove_file(&path);
        written.and(removed).map_err(|error| Error::File(path, error))
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
        let (parent_id, gateway_key) = (parent_id.to_owned(), lease.key.clone());
        let (other_keys, rules) = (BTreeSet::new(), bound.rules.clone());
        let sidecar = Sidecar { parent_id: parent_id.clone(), gateway_key, other_keys, rules };
        let limits = self.file_limits(&lease);
        // A file without a line is removed at the next start, with what is beside it.
        let file = AuditFile::create(&path(&self.folder, &id, AUDIT), &id, self.shared.key.clone(), limits);
        let file = file.map_err(file_error)?;
        let (node, holder) = (self.shared.node.clone(), self.holder());
        let opened = Record::Opened { lease_id: id.clone(), node, holder, lease: bound.lease.clone() };
        let begun = sidecar.write(&self.folder, &id).map_err(file_error);
        if let Err(error) = begun.and_then(|()| Ok(file.append(at, opened)?)) {
            drop(file);
            // The lease is never used, and the gateway does not wait for its audit.
            if let Err(error) = sidecar::remove(&self.folder, &id) {
                debug!(lease.id = id, %error, "Audit file without a line not removed.");
            }
            return Err(error);
        }
        info!(lease.id = id, parent = parent_id, "Lease bound to this node.");
        let now = self.shared.clock.latest();
        let validity = Validity::received(lease, bound.lease.into(), at, now);
        Ok(Session::new(self.shared.clone(), parent_id, file, validity, bound.rules))
    }

    /// Reports to the gateway that the audit of a lease has begun, before any call is made under the lease.
    /// From then on the gateway expects the last line: a lease for which it got no opening was never used.
    async fn state_opening(&self, session: &Session) -> Result<(), Error> {
        let (lines, head) = session.file.head();
        let request = Renew { audit_lines: Some(lines), audit_head: Some(head) };
        let bound = HeldLease::read(&session.validity().text)?;
        let key = Uuid::now_v7().to_string();
        let patience = self.shared.limits.bind_patience;
        // The lease that was bound is the one that is used.
        leased::call(&self.shared.gateway, &request, &key, &bound, patience).await?;
        Ok(())
    }

    /// Verifies a lease offline: its signature, that it is for this node, and its rules. One that an earlier
    /// process left was signed with a key that its sidecar names.
    pub(crate) fn check(
        &self,
        text: &str,
        sidecar: Option<&Sidecar>,
        rules: &[policy::Rule],
    ) -> Result<Lease, Error> {
        let lease = Lease::read(text)?;
        let is_known = sidecar.is_none_or(|sidecar| sidecar.names_key(&lease.key));
        if !self.shared.trusts(&lease.key) || !is_known {
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
