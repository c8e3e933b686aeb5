//! What the sandboxes of one node share: its folder, its programs, users for jobs, control groups, tasks.

mod records;
mod uids;

use std::{
    collections::BTreeMap,
    env,
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use policy::NetworkHost;
pub(crate) use records::{JobFolder, Record};
use rustix::{
    fs::{FlockOperation, flock},
    process::geteuid,
};
use sha2::{Digest, Sha256};
use tokio_util::task::TaskTracker;
pub(crate) use uids::UidLease;
use uids::UidPool;

use crate::{
    cgroup::{Layout, NoCgroup},
    process::{Spawner, start_keeper},
};

/// Host folders that are visible, read-only, in jobs without an image. Absent ones are left out.
const READ_ONLY: &[&str] = &[
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/ssl/certs",
];

/// How a node runs jobs.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// The node's own folder, for records of running jobs. One node at a time uses it.
    pub data: PathBuf,
    /// The folder in which all nodes of this machine mark the users that their jobs run as.
    pub locks: PathBuf,
    /// The first of the users that jobs run as, if the node is root. No account may have them.
    pub first_uid: u32,
    pub uids: u32,
    /// The control group below which jobs get theirs, as a path in each hierarchy. The node's own if absent.
    pub cgroup: Option<PathBuf>,
    pub tools: Tools,
    /// The unpacked images, by digest (`sha256:…`).
    pub rootfs: BTreeMap<String, PathBuf>,
    /// Files and folders of the host that jobs without an image see.
    pub read_only: Vec<PathBuf>,
    /// Hosts that jobs may reach although they have internal addresses, if the jobs name them too.
    pub internal_hosts: Vec<NetworkHost>,
    /// Where jobs of the engine `kubernetes` run.
    pub kubernetes: Kubernetes,
}

/// The programs of the engines. A name without `/` is looked up on `PATH` and where systems keep such
/// programs.
#[derive(Clone, Debug)]
pub struct Tools {
    pub bwrap: PathBuf,
    /// `runc`, or another that has its command line, such as `runsc`.
    pub runc: PathBuf,
    /// `podman` or `docker`.
    pub container: PathBuf,
    pub kubectl: PathBuf,
}

/// Where jobs of the engine `kubernetes` run.
#[derive(Clone, Debug)]
pub struct Kubernetes {
    pub namespace: String,
    /// The RuntimeClass of the pods, such as one for gVisor or Kata.
    pub runtime_class: String,
}

impl HostSettings {
    /// Returns the settings for a node with this folder, all else at its default.
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            locks: "/run/cynode".into(),
            first_uid: 1_700_000_000,
            uids: 1024,
            cgroup: None,
            tools: Tools {
                bwrap: "bwrap".into(),
                runc: "runc".into(),
                container: "podman".into(),
                kubectl: "kubectl".into(),
            },
            rootfs: BTreeMap::new(),
            read_only: READ_ONLY.iter().map(PathBuf::from).collect(),
            internal_hosts: Vec::new(),
            kubernetes: Kubernetes { namespace: "cynode-jobs".into(), runtime_class: "gvisor".into() },
        }
    }
}

/// The sandboxes of one node. Dropped, it ends all that still run.
#[derive(Debug)]
pub struct Host {
    pub(crate) settings: HostSettings,
    pub(crate) spawner: Spawner,
    /// Absent if the node is not root: its jobs then run as its own user, in user namespaces.
    uids: Option<UidPool>,
    cgroups: Result<Layout, NoCgroup>,
    pub(crate) tasks: TaskTracker,
    /// Distinguishes the control groups and containers of this process from those of others.
    tag: String,
    /// Open as long as this process lives; see [`start_keeper`].
    _keeper: Option<OwnedFd>,
    _lock: File,
}

/// A node cannot run jobs at all.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("cannot use folder {folder}: {source}; the node needs a folder of its own that it can write to")]
    Folder { folder: PathBuf, source: io::Error },
    #[error("folder {0} is in use by another node; give each node a folder of its own")]
    InUse(PathBuf),
    #[error("cannot start processes: {0}")]
    Spawner(io::Error),
    #[error("users {first} to {last} for jobs are invalid; take a range above 65536 that no account has")]
    Uids { first: u32, last: u64 },
}

impl Host {
    /// Opens the node's folder. Marks all descriptors of this process as not inherited by its children.
    pub fn open(settings: HostSettings) -> Result<Arc<Self>, HostError> {
        let folder = |source| HostError::Folder { folder: settings.data.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(settings.data.join("jobs")).map_err(folder)?;
        // Users of jobs find nothing here, but those of containers pass through to their own folders.
        for path in [settings.data.clone(), settings.data.join("jobs")] {
            fs::set_permissions(path, Permissions::from_mode(0o711)).map_err(folder)?;
        }
        let data = settings.data.canonicalize().map_err(folder)?;
        let lock = File::create(data.join("lock")).map_err(folder)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(HostError::InUse(data));
        }
        close_fds::set_fds_cloexec_threadsafe(3, &[]);
        let uids = if geteuid().is_root() { Some(UidPool::open(&settings)?) } else { None };
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let digest = Sha256::digest(format!("{} {started} {}", data.display(), std::process::id()));
        let tag = data_encoding::HEXLOWER.encode(&digest[..4]);
        let cgroups = Layout::discover(settings.cgroup.as_deref());
        let spawner = Spawner::start().map_err(HostError::Spawner)?;
        let keeper =
            cgroups.as_ref().ok().map(|layout| start_keeper(layout.parent(), &format!("cynode-{tag}-")));
        let _keeper = keeper.transpose().map_err(HostError::Spawner)?;
        let settings = HostSettings { data, ..settings };
        Ok(Arc::new(Self {
            settings,
            spawner,
            uids,
            cgroups,
            tasks: TaskTracker::new(),
            tag,
            _keeper,
            _lock: lock,
        }))
    }

    /// Waits until all that ended jobs left is removed.
    pub async fn settled(&self) {
        self.tasks.close();
        self.tasks.wait().await;
        self.tasks.reopen();
    }

    /// Returns whether each job gets a user of its own.
    pub fn has_users_for_jobs(&self) -> bool {
        self.uids.is_some()
    }

    pub(crate) fn cgroups(&self) -> Result<&Layout, NoCgroup> {
        self.cgroups.as_ref().map_err(Clone::clone)
    }

    /// Takes a user that no job on this machine has; none if the node is not root.
    pub(crate) fn take_uid(&self) -> Option<io::Result<UidLease>> {
        self.uids.as_ref().map(UidPool::take)
    }

    /// Returns the name of a job's control group or container.
    pub(crate) fn name_of(&self, job: &str) -> String {
        format!("cynode-{}-{job}", self.tag)
    }

    pub(crate) fn jobs(&self) -> PathBuf {
        self.settings.data.join("jobs")
    }
}

/// Finds a program by its path, on `PATH`, or where systems keep such programs.
pub(crate) fn find_program(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"].map(PathBuf::from);
    env::split_paths(&path).chain(usual).map(|folder| folder.join(program)).find(|it| it.is_file())
}
