//! A job that runs: its limits of time and output, its end, and the removal of all that it left.

mod leftovers;

use std::{
    io,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use globset::GlobSet;
pub(crate) use leftovers::{Leftovers, Remote, Teardown};
use rustix::{fs::fstatfs, process::Signal};
use tokio::{
    net::unix::pipe,
    sync::{Notify, mpsc, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    collect::{self, CollectError, Collected},
    host::Host,
    output,
    process::{Exit, Monitor},
    proxy::Allowlist,
    spec::{End, Limits, Stop, Usage},
};

/// How long a killed process may take to disappear.
const END_DEADLINE: Duration = Duration::from_secs(20);

/// A sandbox that is set up and about to start its process.
#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) monitor: Monitor,
    /// Whether the monitor reports the end of the job by its own exit code, signals as 128 + n.
    pub(crate) reports_by_code: bool,
    pub(crate) output: pipe::Receiver,
    /// File systems in memory whose lack of space ends a job as `Disk`; the first is the workspace.
    pub(crate) volumes: Vec<Arc<OwnedFd>>,
    /// Tasks that serve the job: its proxy and its sockets.
    pub(crate) helpers: JoinSet<()>,
    pub(crate) leftovers: Leftovers,
    pub(crate) limits: Limits,
    pub(crate) term_grace: Duration,
    pub(crate) globs: GlobSet,
    /// The allowlist of the job's proxy, if it has one.
    pub(crate) allowed: Option<Arc<Allowlist>>,
}

/// A job that runs or has ended. Dropped, it is killed and removed.
#[derive(Debug)]
pub struct Running {
    workspace: Option<Arc<OwnedFd>>,
    globs: GlobSet,
    allowed: Option<Arc<Allowlist>>,
    max_bytes: u64,
    /// The part of the job's memory that its inputs use, in bytes.
    staged: u64,
    stop: watch::Sender<Option<Stop>>,
    ended: watch::Receiver<Option<(End, Usage)>>,
    release: CancellationToken,
    removed: CancellationToken,
    /// Keeps the thread that the sandbox lives with.
    _host: Arc<Host>,
}

impl Running {
    /// Supervises a sandbox whose process starts now, and whose inputs take `staged` bytes.
    pub(crate) fn supervise(
        host: &Arc<Host>,
        sandbox: Sandbox,
        staged: u64,
        sink: mpsc::Sender<Bytes>,
    ) -> Self {
        let (stop, stop_asked) = watch::channel(None);
        let (publish, ended) = watch::channel(None);
        let (release, removed) = (CancellationToken::new(), CancellationToken::new());
        let running = Self {
            workspace: sandbox.volumes.first().cloned(),
            globs: sandbox.globs.clone(),
            allowed: sandbox.allowed.clone(),
            max_bytes: sandbox.limits.disk,
            staged,
            stop,
            ended,
            release: release.clone(),
            removed: removed.clone(),
            _host: host.clone(),
        };
        let removed = removed.drop_guard();
        host.tasks.spawn(async move {
            let (end, leftovers) = sandbox.run(sink, stop_asked, &release).await;
            publish.send_replace(Some(end));
            release.cancelled().await;
            leftovers.clear().await;
            drop(removed);
        });
        running
    }

    /// Waits for the end. No process of the job exists afterwards. Cancel-safe.
    ///
    /// The end comes after the consumer took all output, or dropped its receiver.
    pub async fn wait(&mut self) -> End {
        match self.ended.wait_for(Option::is_some).await {
            Ok(ended) => ended.as_ref().map(|(end, _)| end.clone()),
            Err(_) => None,
        }
        .unwrap_or_else(|| End::EngineFailed { why: "the supervisor of the job ended".into() })
    }

    /// Returns what the job used; nothing before its end.
    pub fn usage(&self) -> Usage {
        let mut usage = self.ended.borrow().as_ref().map(|(_, usage)| *usage).unwrap_or_default();
        // Not every engine knows what its jobs use.
        if usage.memory_peak > 0 {
            usage.memory_peak += self.staged;
        }
        usage
    }

    /// Returns which connections the job's proxy refused, and why: the first few.
    pub fn refused_connections(&self) -> Vec<String> {
        self.allowed.as_ref().map(|allowed| allowed.refused()).unwrap_or_default()
    }

    /// Asks the job to end: SIGTERM, then SIGKILL after the grace. Does not wait.
    pub fn stop(&self, reason: Stop) {
        self.stop.send_if_modified(|asked| asked.is_none().then(|| *asked = Some(reason)).is_some());
    }

    /// Collects the outputs of a job that has ended.
    pub async fn collect(&self) -> Result<Collected, CollectError> {
        if self.ended.borrow().is_none() {
            return Err(CollectError::Running);
        }
        match &self.workspace {
            Some(work) => collect::collect(work.clone(), self.globs.clone(), self.max_bytes).await,
            None => Ok(Collected::default()),
        }
    }

    /// Removes all that there is of the job, its processes too if it still runs.
    pub async fn remove(mut self) {
        self.workspace = None;
        self.release.cancel();
        self.removed.cancelled().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.release.cancel();
    }
}

/// What ended a job, if it was not the job itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    ByItself,
    Released,
    Stopped(Stop),
    Output,
}

impl Sandbox {
    async fn run(
        mut self,
        sink: mpsc::Sender<Bytes>,
        mut stop: watch::Receiver<Option<Stop>>,
        release: &CancellationToken,
    ) -> ((End, Usage), Leftovers) {
        let started = Instant::now();
        let over = Arc::new(Notify::new());
        let mut pump = JoinSet::new();
        pump.spawn(output::pump(self.output, sink, self.limits.output, over.clone()));
        let asked = async {
            // A `Running` that is gone has released the job.
            match stop.wait_for(Option::is_some).await.map(|it| *it) {
                Ok(Some(stop)) => stop,
                _ => std::future::pending().await,
            }
        };
        let ended = tokio::select! {
            biased;
            // Cancel-safe: `wait` only waits.
            waited = self.monitor.wait() => waited.map(|_| Ended::ByItself),
            () = release.cancelled() => Ok(Ended::Released),
            stop = asked => Ok(Ended::Stopped(stop)),
            () = over.notified() => Ok(Ended::Output),
            () = tokio::time::sleep(self.limits.time) => Ok(Ended::Stopped(Stop::Timeout)),
        };
        if let Ok(Ended::Stopped(_)) = ended {
            self.leftovers.ask_to_end(self.monitor.id(), self.reports_by_code).await;
            tokio::select! {
                waited = timeout(self.term_grace, self.monitor.wait()) => drop(waited),
                () = release.cancelled() => {}
            }
        }
        // Orphans, stopped processes, those that ignore SIGTERM.
        self.leftovers.kill();
        let remote_end = self.leftovers.remote_end().await;
        let killed = self.leftovers.kill_remote().await;
        // A node without the right to kill cannot end its jobs: it says so instead of waiting for them.
        let exit = timeout(END_DEADLINE, self.monitor.wait()).await;
        let exit = exit.unwrap_or_else(|_| Err(io::Error::other("the process does not end after SIGKILL")));
        let emptied = killed.and(self.leftovers.empty().await);
        let pumped = if exit.is_ok() && emptied.is_ok() {
            pump.join_next().await
        } else {
            // What still runs may write for ever.
            pump.shutdown().await;
            None
        };
        self.helpers.shutdown().await;
        let (output_bytes, exceeded) = match pumped {
            Some(Ok(Ok(pumped))) => pumped,
            _ => (0, false),
        };
        let (cpu_ms, memory_peak) = self.leftovers.used();
        let wall_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let usage = Usage { cpu_ms, memory_peak, wall_ms, output_bytes };
        let is_full = self.volumes.iter().any(|volume| is_full(volume));
        let end = match (ended, emptied, exit) {
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => {
                End::EngineFailed { why: format!("cannot end the sandbox: {error}") }
            }
            _ if exceeded => End::Output,
            (Ok(Ended::Stopped(Stop::Timeout)), ..) => End::Timeout,
            (Ok(Ended::Stopped(Stop::Cancelled) | Ended::Released), ..) => End::Cancelled,
            (Ok(Ended::Output), ..) => End::Output,
            _ if self.leftovers.oom_kills() > 0 => End::Oom,
            (Ok(Ended::ByItself), Ok(()), Ok(exit)) => match remote_end {
                Some(end) => end,
                None => described(exit, self.reports_by_code, is_full),
            },
        };
        ((end, usage), self.leftovers)
    }
}

fn described(exit: Exit, by_code: bool, is_full: bool) -> End {
    match exit {
        Exit::Code(0) => End::Exited { code: 0 },
        _ if is_full => End::Disk,
        // The monitor of a sandbox is not the job, and ends by a signal only from outside.
        Exit::Signal(signal) if by_code => {
            End::EngineFailed { why: format!("signal {signal} ended the sandbox") }
        }
        Exit::Signal(signal) => End::Signalled { signal },
        Exit::Code(code @ 129..=159) if by_code => End::Signalled { signal: code - 128 },
        Exit::Code(code) => End::Exited { code },
    }
}

/// Returns whether a file system has no space or no inodes left.
fn is_full(volume: &OwnedFd) -> bool {
    fstatfs(volume).is_ok_and(|it| it.f_bavail == 0 || (it.f_files > 0 && it.f_ffree == 0))
}

/// The signals that ask processes to end: those that are stopped must run to see the first.
pub(crate) const ASK_TO_END: [Signal; 2] = [Signal::TERM, Signal::CONT];

pub(crate) fn in_context(doing: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{doing}: {error}"))
}
