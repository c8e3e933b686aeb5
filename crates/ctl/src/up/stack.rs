//! The running processes of a stack.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use secrets::file::with_suffix;
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    POLL_INTERVAL, START_TIMEOUT,
    child::{self, ProcessState},
    config::ProcessSpec,
    lock::{self, PidFile},
};
use crate::{error::Error, print};

const LOG_TAIL_LINES: usize = 8;

/// The beginnings of the names of processes, in the order in which they stop. Those of one group stop
/// together: what runs has one grace period to finish, and clients of the orchestrator still get its answers.
/// Workers hand back their handoffs, the node its jobs and the runner its workflows, before the gateway and
/// NATS stop.
pub(super) const STOP_ORDER: [&[&str]; 3] =
    [&["orchestrator", "manager-", "analyst-", "node", "workflow"], &["gateway"], &["nats"]];

/// The running processes, in the order in which they were started.
pub(super) struct Stack {
    data: PathBuf,
    pids: Arc<PidFile>,
    running: Vec<Running>,
}

struct Running {
    name: String,
    /// Whether the stack cannot work without it.
    is_essential: bool,
    state: Arc<ProcessState>,
    stop: CancellationToken,
    supervisor: JoinSet<()>,
}

impl Stack {
    pub(super) fn new(data: PathBuf) -> Self {
        Self { pids: Arc::new(PidFile::new(&data)), data, running: Vec::new() }
    }

    /// Starts a process with its supervisor and records its id.
    pub(super) fn start(&mut self, spec: ProcessSpec) -> Result<(), Error> {
        self.start_as(spec, true)
    }

    /// Starts a process without which the stack starts too, should it end at once.
    pub(super) fn start_optional(&mut self, spec: ProcessSpec) -> Result<(), Error> {
        self.start_as(spec, false)
    }

    fn start_as(&mut self, spec: ProcessSpec, is_essential: bool) -> Result<(), Error> {
        let (log, name) = (self.log(&spec.name), spec.name.clone());
        keep_previous(&log)?;
        let state = Arc::new(ProcessState::new(name.clone(), Arc::clone(&self.pids)));
        let stop = CancellationToken::new();
        let child = child::spawn(&spec, &log, &state)?;
        let mut supervisor = JoinSet::new();
        supervisor.spawn(child::supervise(spec, log, child, Arc::clone(&state), stop.clone()));
        self.running.push(Running { name, is_essential, state, stop, supervisor });
        Ok(())
    }

    /// Polls until `condition` returns a value. Fails with the end of a log if a process ends meanwhile, or
    /// after the start timeout.
    pub(super) async fn wait_until<T>(
        &self,
        what: &'static str,
        condition: impl AsyncFn() -> Option<T>,
    ) -> Result<T, Error> {
        let began = Instant::now();
        loop {
            if let Some(found) = condition().await {
                return Ok(found);
            }
            let mut essential = self.running.iter().filter(|running| running.is_essential);
            let last = essential.clone().next_back();
            let dead = essential.find(|running| running.state.exits() > 0);
            let timed_out = began.elapsed() > START_TIMEOUT;
            if let Some(failed) = dead.or_else(|| last.filter(|_| timed_out)) {
                let log = self.log(&failed.name);
                let text = fs::read_to_string(&log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let tail = lines[lines.len().saturating_sub(LOG_TAIL_LINES)..].join("\n");
                return Err(Error::NotReady { what, process: failed.name.clone(), log, tail });
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Returns the id of a process, if it is running.
    pub(super) fn pid(&self, name: &str) -> Option<u32> {
        self.running.iter().find(|running| running.name == name)?.state.pid()
    }

    /// Stops all processes in their order, and says so of each if `is_shown`.
    pub(super) async fn stop(&mut self, is_shown: bool) {
        for group in STOP_ORDER {
            let belongs = |running: &&mut Running| group.iter().any(|name| running.name.starts_with(name));
            let mut stopping: Vec<&mut Running> = self.running.iter_mut().filter(belongs).collect();
            stopping.iter().for_each(|running| running.stop.cancel());
            for running in &mut stopping {
                while running.supervisor.join_next().await.is_some() {}
                if is_shown {
                    print::note(&stopped(&running.name));
                }
            }
        }
        self.running.clear();
        lock::remove_pids(&self.data);
    }

    fn log(&self, name: &str) -> PathBuf {
        self.data.join(format!("{name}.log"))
    }
}

/// Says that a process has stopped.
pub(super) fn stopped(name: &str) -> String {
    format!("{name} has stopped")
}

/// Keeps the log of an earlier stack as `….log.1`, in the place of one that is older still.
fn keep_previous(log: &Path) -> Result<(), Error> {
    match fs::rename(log, with_suffix(log, ".1")) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::Write(log.to_owned(), error)),
        _ => Ok(()),
    }
}
