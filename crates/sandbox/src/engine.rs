//! The ways to run a job: which there are on this machine, and the start of a job with one of them.

mod bwrap;
mod container;
mod image;
mod kubernetes;
mod oci;

use std::{fmt, io, str::FromStr, sync::Arc};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::{
    cgroup::Group,
    collect,
    host::{Host, JobFolder, Record},
    proxy::Allowlist,
    running::{Leftovers, Running, Teardown, in_context},
    spec::{Network, Spec, SpecError},
    staging::{PROXY_PORT, WorkspaceFull},
};

/// A kind of sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EngineKind {
    /// Bubblewrap: namespaces, a filter for system calls, control groups.
    Bwrap,
    /// runc, or runsc, on an unpacked image.
    Oci,
    /// podman or docker.
    Container,
    /// A Job of Kubernetes.
    Kubernetes,
}

impl EngineKind {
    pub const ALL: [Self; 4] = [Self::Bwrap, Self::Oci, Self::Container, Self::Kubernetes];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bwrap => "bwrap",
            Self::Oci => "oci",
            Self::Container => "container",
            Self::Kubernetes => "kubernetes",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that no engine has.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown engine {0:?}; known are bwrap, oci, container and kubernetes")]
pub struct UnknownEngine(String);

impl FromStr for EngineKind {
    type Err = UnknownEngine;

    fn from_str(text: &str) -> Result<Self, UnknownEngine> {
        Self::ALL.into_iter().find(|it| it.as_str() == text).ok_or_else(|| UnknownEngine(text.into()))
    }
}

/// An engine that works on this machine.
#[derive(Debug)]
pub struct Engine {
    host: Arc<Host>,
    kind: EngineKind,
    version: String,
    notes: Vec<String>,
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Bwrap(bwrap::Bwrap),
    Oci(oci::Oci),
    Container(container::Container),
    Kubernetes(kubernetes::Kubernetes),
}

/// Why an engine is not offered. Jobs are never run in less of a sandbox instead.
#[derive(Debug, thiserror::Error)]
#[error("engine {kind} is not available: {why}; {remedy}")]
pub struct Unavailable {
    pub kind: EngineKind,
    pub why: String,
    /// What to install or to change.
    pub remedy: String,
}

/// A job that was not started. Nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error("job {0} is already running on this node")]
    InUse(String),
    #[error("image {0} is not on this node; name its folder in the node's settings")]
    NoImage(String),
    #[error("cannot start the sandbox: {0}")]
    Engine(#[source] io::Error),
}

impl StartError {
    /// Returns whether the job or the machine caused the failure to set up a sandbox.
    fn of_setup(error: io::Error) -> Self {
        match error.downcast::<WorkspaceFull>() {
            Ok(full) => Self::Spec(SpecError { field: "inputs", problem: full.to_string() }),
            Err(error) => Self::Engine(error),
        }
    }
}

/// Opens an engine and runs a job that does nothing, to know that it works.
pub async fn open(host: &Arc<Host>, kind: EngineKind) -> Result<Arc<Engine>, Unavailable> {
    let opened = match kind {
        EngineKind::Bwrap => {
            bwrap::Bwrap::open(host).await.map(|(inner, about)| (Inner::Bwrap(inner), about))
        }
        EngineKind::Oci => oci::Oci::open(host).await.map(|(inner, about)| (Inner::Oci(inner), about)),
        EngineKind::Container => {
            container::Container::open(host).await.map(|(inner, about)| (Inner::Container(inner), about))
        }
        EngineKind::Kubernetes => {
            kubernetes::Kubernetes::open(host).await.map(|(inner, about)| (Inner::Kubernetes(inner), about))
        }
    };
    let (inner, EngineFacts { version, notes }) =
        opened.map_err(|(why, remedy)| Unavailable { kind, why, remedy })?;
    Ok(Arc::new(Engine { host: host.clone(), kind, version, notes, inner }))
}

/// The properties of an engine.
#[derive(Debug)]
struct EngineFacts {
    version: String,
    notes: Vec<String>,
}

/// Why an engine cannot be opened, and what to do.
type Closed = (String, String);

impl Engine {
    pub fn kind(&self) -> EngineKind {
        self.kind
    }

    /// Returns the version of the engine's program.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns notes for operators, such as a limit that is not enforced here.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// Returns the image that attempts to escape run on; none if they run on the programs of the machine.
    pub(crate) fn image_for_attempts(&self) -> Option<String> {
        match self.kind {
            EngineKind::Bwrap | EngineKind::Oci => None,
            EngineKind::Container | EngineKind::Kubernetes => {
                self.host.settings.rootfs.keys().next().cloned()
            }
        }
    }

    /// Sets up a sandbox and, once all is in place, starts the process in it.
    ///
    /// Output goes to `output` in chunks, standard output and standard error in the order of the writes. A
    /// slow consumer slows the job down. If this future is dropped, nothing is left of the job.
    pub async fn start(&self, spec: Spec, output: mpsc::Sender<Bytes>) -> Result<Running, StartError> {
        self.start_on(Root::Named, spec, output).await
    }

    /// Starts an attempt to escape: a job that differs from others only in that it needs no program of an
    /// image, where the engine can do so.
    pub(crate) async fn start_attempt(
        &self,
        spec: Spec,
        output: mpsc::Sender<Bytes>,
    ) -> Result<Running, StartError> {
        self.start_on(Root::Machine, spec, output).await
    }

    async fn start_on(
        &self,
        root: Root,
        mut spec: Spec,
        output: mpsc::Sender<Bytes>,
    ) -> Result<Running, StartError> {
        spec.check()?;
        let inputs = spec.inputs.iter().map(|input| (input.path.as_str(), input.content.len() as u64));
        let mut staged = spec.limits.memory_of_inputs(inputs)?;
        if self.kind == EngineKind::Kubernetes {
            // The pod copies them itself.
            staged = 0;
        }
        spec.limits.memory -= staged;
        let (sandbox, go) = match &self.inner {
            Inner::Bwrap(inner) => inner.prepare(&self.host, spec).await?,
            Inner::Oci(inner) => (inner.start(&self.host, spec, root).await?, StartSignal::Started),
            Inner::Container(inner) => (inner.start(&self.host, spec).await?, StartSignal::Started),
            Inner::Kubernetes(inner) => (inner.start(&self.host, spec).await?, StartSignal::Started),
        };
        go.start().map_err(StartError::Engine)?;
        crash::reach(Point::Started).await;
        Ok(Running::supervise(&self.host, sandbox, staged, output))
    }
}

/// What a job of the engine `oci` sees as its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Root {
    /// The image that it names.
    Named,
    /// The programs of the machine, as jobs of `bwrap` without an image see them.
    Machine,
}

/// How the process of a sandbox that is set up is started.
#[derive(Debug)]
enum StartSignal {
    /// By writing to a pipe that the sandbox reads.
    Write(std::fs::File, Vec<u8>),
    /// Not at all: it was started when all was in place.
    Started,
}

impl StartSignal {
    fn start(self) -> io::Result<()> {
        match self {
            Self::Started => Ok(()),
            Self::Write(mut pipe, bytes) => io::Write::write_all(&mut pipe, &bytes),
        }
    }
}

/// The points at which tests kill the process; see [`crash::reach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Recorded,
    Grouped,
    Spawned,
    Joined,
    Staged,
    Started,
}

/// Refuses what an engine does not have.
fn refuse(engine: EngineKind, what: &str) -> StartError {
    StartError::Engine(io::Error::other(format!(
        "the engine {engine} has no {what}; use bwrap for such jobs"
    )))
}

/// The workspace in the folder of a job, for engines that take it from the host.
const WORKSPACE: &str = "work";

/// The parts of a job that all engines check alike.
#[derive(Debug)]
struct Checked {
    globs: globset::GlobSet,
    allowed: Option<Arc<Allowlist>>,
}

impl Checked {
    fn new(host: &Host, spec: &Spec) -> Result<Self, SpecError> {
        let globs = collect::globs(&spec.outputs).map_err(|error| SpecError {
            field: "outputs",
            problem: format!("has an invalid glob: {error}"),
        })?;
        let allowed = match &spec.network {
            Network::None => None,
            Network::Hosts(hosts) => {
                let parsed = Allowlist::parse(hosts, &host.settings.internal_hosts);
                let parsed =
                    parsed.map_err(|error| SpecError { field: "network", problem: error.to_string() })?;
                Some(Arc::new(parsed))
            }
        };
        Ok(Self { globs, allowed })
    }
}

/// Writes the record of a job before anything is made for it.
fn record(
    host: &Arc<Host>,
    id: &str,
    kind: EngineKind,
    group: Option<Group>,
) -> Result<Leftovers, StartError> {
    let mount =
        matches!(kind, EngineKind::Oci | EngineKind::Container).then(|| host.jobs().join(id).join(WORKSPACE));
    let name = host.name_of(id);
    let engine_group = match (kind, host.cgroups()) {
        (EngineKind::Oci, Ok(groups)) => {
            Some(groups.unlimited(&host.name_of(&format!("engine-{id}")), &name))
        }
        _ => None,
    };
    let groups = (group.clone(), engine_group.clone());
    let record = Record { engine: kind.to_string(), name, group, engine_group, mount };
    match JobFolder::create(&host.jobs(), id, &record) {
        Ok(folder) => {
            let mut leftovers = Leftovers::new(host.clone(), groups, folder);
            leftovers.tear_down_by(teardown_of(host, &record));
            Ok(leftovers)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(StartError::InUse(id.to_owned())),
        Err(error) => Err(StartError::Engine(in_context("writing the job's record", &error))),
    }
}

/// Returns the whole environment of a job.
fn environment(spec: &Spec) -> Vec<(String, String)> {
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let always = [("PATH", path), ("HOME", "/work"), ("LANG", "C.UTF-8")];
    let mut all: Vec<(String, String)> = always.map(|(name, value)| (name.into(), value.into())).into();
    if let Network::Hosts(_) = spec.network {
        let proxy = format!("http://127.0.0.1:{PROXY_PORT}");
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            all.push((name.into(), proxy.clone()));
        }
    }
    // The last of two with the same name holds.
    all.extend(spec.env.iter().cloned());
    all
}

/// Returns what an engine has to do to remove a job, by what its record says.
pub(crate) fn teardown_of(host: &Host, record: &Record) -> Teardown {
    let commands = match record.engine.parse() {
        Ok(EngineKind::Oci) => vec![oci::delete(host, &record.name)],
        Ok(EngineKind::Container) => vec![container::remove(host, &record.name)],
        Ok(EngineKind::Kubernetes) => vec![kubernetes::delete(host, &record.name)],
        Ok(EngineKind::Bwrap) | Err(_) => Vec::new(),
    };
    Teardown { commands, mount: record.mount.clone() }
}
