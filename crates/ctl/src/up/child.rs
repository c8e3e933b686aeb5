//! One process of the stack: started, supervised, restarted and stopped.

#![expect(
    clippy::disallowed_types,
    reason = "an operator's supervisor starts the processes of a local stack"
)]

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    config::{ProcessSpec, is_inherited},
    lock::PidFile,
};
use crate::{error::Error, print};

/// Longer than a worker's grace period.
const STOP_TIMEOUT: Duration = Duration::from_secs(25);
/// Longer than the self-test of all engines takes on a busy machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);
const MIN_RESTART_DELAY: Duration = Duration::from_millis(200);
const MAX_RESTART_DELAY: Duration = Duration::from_secs(10);
/// A process that ran for this long did not fail at start-up, so the restart delay is reset.
const STEADY_AFTER: Duration = Duration::from_secs(20);

/// State of a supervised process, shared with the stack.
#[derive(Debug)]
pub(super) struct ProcessState {
    name: String,
    pid: AtomicU32,
    exits: AtomicU32,
    /// Where a later command finds the process, also one that was started again.
    pids: Arc<PidFile>,
}

impl ProcessState {
    pub(super) fn new(name: String, pids: Arc<PidFile>) -> Self {
        Self { name, pid: AtomicU32::new(0), exits: AtomicU32::new(0), pids }
    }

    /// Records the process that was started.
    fn set_running(&self, pid: u32) -> Result<(), Error> {
        self.pid.store(pid, Ordering::Relaxed);
        self.pids.record(&self.name, pid)
    }

    /// Returns the process id; `None` while the process is not running.
    pub(super) fn pid(&self) -> Option<u32> {
        Some(self.pid.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
    }

    /// Returns how often the process ended by itself.
    pub(super) fn exits(&self) -> u32 {
        self.exits.load(Ordering::Relaxed)
    }
}

/// Starts a process and appends its output to a log file.
pub(super) fn spawn(spec: &ProcessSpec, log: &Path, state: &ProcessState) -> Result<Child, Error> {
    let write_error = |error| Error::Write(log.to_owned(), error);
    let out = File::options().create(true).append(true).open(log).map_err(write_error)?;
    let child = command(spec)
        .stdout(out.try_clone().map_err(write_error)?)
        .stderr(out)
        // Ctrl-C must reach only the supervisor, which stops the others in order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| Error::NotStarted(spec.program.clone(), error))?;
    state.set_running(child.id().unwrap_or(0))?;
    Ok(child)
}

/// Runs a process to its end. Returns how it ended and what it wrote, standard error last.
pub(super) async fn run(spec: &ProcessSpec) -> Result<(ExitStatus, String), Error> {
    let done = timeout(RUN_TIMEOUT, command(spec).kill_on_drop(true).output()).await;
    let done = done.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    let done = done.map_err(|error| Error::NotStarted(spec.program.clone(), error))?;
    let text = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Ok((done.status, text.concat()))
}

fn command(spec: &ProcessSpec) -> Command {
    let inherited = std::env::vars_os().filter(|(name, _)| name.to_str().is_none_or(is_inherited));
    let mut command = Command::new(&spec.program);
    command.args(&spec.arguments).env_clear().envs(inherited).stdin(Stdio::null());
    command
}

/// Restarts a process whenever it ends, until `stop`; then terminates it.
pub(super) async fn supervise(
    spec: ProcessSpec,
    log: PathBuf,
    mut child: Child,
    state: Arc<ProcessState>,
    stop: CancellationToken,
) {
    let mut delay = MIN_RESTART_DELAY;
    loop {
        let started = Instant::now();
        let Some(ended) = stop.run_until_cancelled(child.wait()).await else {
            terminate_and_wait(&mut child).await;
            return;
        };
        state.pid.store(0, Ordering::Relaxed);
        state.exits.fetch_add(1, Ordering::Relaxed);
        if started.elapsed() > STEADY_AFTER {
            delay = MIN_RESTART_DELAY;
        }
        print::note(&format!("{} {}; restarting", spec.name, describe_exit(ended.ok())));
        loop {
            if stop.run_until_cancelled(sleep(delay)).await.is_none() {
                return;
            }
            delay = (delay * 2).min(MAX_RESTART_DELAY);
            match spawn(&spec, &log, &state) {
                Ok(again) => {
                    child = again;
                    break;
                }
                Err(error) => print::note(&broker::Chain(&error).to_string()),
            }
        }
    }
}

fn describe_exit(ended: Option<ExitStatus>) -> String {
    use std::os::unix::process::ExitStatusExt;
    match ended.map(|status| (status.code(), status.signal())) {
        Some((Some(code), _)) => format!("exited with code {code}"),
        Some((None, Some(signal))) => format!("was killed by signal {signal}"),
        _ => "ended".to_owned(),
    }
}

async fn terminate_and_wait(child: &mut Child) {
    if let Some(pid) = child.id() {
        terminate(pid);
    }
    if timeout(STOP_TIMEOUT, child.wait()).await.is_err() {
        drop(child.kill().await);
    }
}

/// Sends SIGTERM to a process.
pub(super) fn terminate(pid: u32) {
    signal(pid, Signal::SIGTERM);
}

/// Sends a signal to a process; does nothing if it has ended.
pub(super) fn signal(pid: u32, signal: Signal) {
    if let Ok(pid) = i32::try_from(pid) {
        let _gone = kill(Pid::from_raw(pid), signal).is_err();
    }
}
