//! Opens hosts and runs jobs for tests.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use sandbox::{End, Engine, EngineKind, Host, HostSettings, Running, Spec, Usage};
use tempfile::TempDir;
use tokio::sync::mpsc;

/// The control group of all tests.
pub(crate) const GROUP: &str = "/cynode-tests";

pub(crate) struct Kit {
    host: Arc<Host>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) data: TempDir,
}

pub(crate) struct Ran {
    pub(crate) id: String,
    pub(crate) end: End,
    pub(crate) output: Vec<u8>,
    pub(crate) usage: Usage,
    pub(crate) running: Running,
}

impl Ran {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    #[track_caller]
    pub(crate) fn succeeded(&self) -> String {
        assert_eq!(self.end, End::Exited { code: 0 }, "{}", self.text());
        self.text()
    }
}

pub(crate) fn settings(data: &TempDir) -> HostSettings {
    let mut settings = HostSettings::new(data.path().join("node"));
    settings.cgroup = Some(GROUP.into());
    settings
}

impl Kit {
    pub(crate) async fn bwrap() -> Self {
        Self::bwrap_with(|_| ()).await
    }

    pub(crate) async fn bwrap_with(change: impl FnOnce(&mut HostSettings)) -> Self {
        let changed = |data: &TempDir| {
            let mut settings = settings(data);
            change(&mut settings);
            settings
        };
        Self::open(EngineKind::Bwrap, changed).await
    }

    pub(crate) async fn open(kind: EngineKind, settings: impl FnOnce(&TempDir) -> HostSettings) -> Self {
        let data = tempfile::tempdir().unwrap();
        let host = Host::open(settings(&data)).unwrap();
        let engine = sandbox::open(&host, kind).await;
        let engine = engine.unwrap_or_else(|error| panic!("this machine cannot run sandboxes: {error}"));
        Self { host, engine, data }
    }

    pub(crate) fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Starts a job.
    pub(crate) async fn start(&self, spec: Spec) -> (Running, mpsc::Receiver<bytes::Bytes>) {
        let (sink, chunks) = mpsc::channel(4);
        (self.engine.start(spec, sink).await.unwrap_or_else(|error| panic!("{error}")), chunks)
    }

    /// Runs a job to its end.
    pub(crate) async fn run(&self, spec: Spec) -> Ran {
        let id = spec.id.clone();
        let (mut running, mut chunks) = self.start(spec).await;
        let mut output = Vec::new();
        while let Some(chunk) = chunks.recv().await {
            output.extend_from_slice(&chunk);
        }
        let end = running.wait().await;
        Ran { id, end, output, usage: running.usage(), running }
    }

    /// Runs a shell script to its end.
    pub(crate) async fn sh(&self, script: &str) -> Ran {
        self.run(sh(script)).await
    }

    /// Removes a job and asserts that nothing is left of it on the host.
    #[track_caller]
    pub(crate) fn remove(&self, ran: Ran) -> impl Future<Output = ()> {
        let jobs = self.data.path().join("node/jobs");
        async move {
            ran.running.remove().await;
            assert_nothing_left(&ran.id);
            assert!(!jobs.join(&ran.id).exists());
        }
    }
}

/// Asserts that no control group and no mount has the name of a job.
pub(crate) fn assert_nothing_left(id: &str) {
    let left: Vec<_> =
        groups().into_iter().filter(|it| it.to_string_lossy().ends_with(&format!("-{id}"))).collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&format!("{id} ")));
}

/// Returns the control groups of jobs in tests.
pub(crate) fn groups() -> Vec<PathBuf> {
    let roots = fs::read_dir("/sys/fs/cgroup").unwrap().map(|it| it.unwrap().path());
    let roots = roots.chain([PathBuf::from("/sys/fs/cgroup")]);
    let parents = roots.map(|it| it.join(&GROUP[1..])).filter_map(|it| fs::read_dir(it).ok());
    parents.flatten().filter_map(Result::ok).map(|it| it.path()).filter(|it| it.is_dir()).collect()
}

/// Describes a job that runs a shell script with small limits.
pub(crate) fn sh(script: &str) -> Spec {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let id = format!("t-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut spec = Spec::new(id, ["sh", "-c", script]);
    spec.limits.memory = 128 << 20;
    spec.limits.disk = 16 << 20;
    spec.limits.pids = 32;
    spec.limits.time = Duration::from_secs(30);
    spec.term_grace = Duration::from_millis(200);
    spec
}

/// Describes a job that runs a Perl program, for system calls that no shell makes.
pub(crate) fn perl(program: &str) -> Spec {
    let mut spec = sh("");
    let program = format!(
        "$| = 1; sub t {{ my ($name, @a) = @_; $! = 0; my $r = syscall($a[0], @a[1..$#a]); \
         print \"$name \", ($r == -1 ? $! + 0 : 'done'), \"\\n\"; $r }} {program}"
    );
    spec.command = vec!["perl".into(), "-e".into(), program];
    spec
}
