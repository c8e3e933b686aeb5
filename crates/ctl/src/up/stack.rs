//! The running processes of a stack.

use std::{fs, path::PathBuf, sync::Arc, time::Instant};

use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{
    POLL_INTERVAL, START_TIMEOUT,
    child::{self, ProcessState},
    config::ProcessSpec,
    lock::{self, PidFile},
};
use crate::error::Error;

const LOG_TAIL_LINES: usize = 8;

/// The running processes, in the order in which they were started.
pub(super) struct Stack {
    data: PathBuf,
    pids: Arc<PidFile>,
    running: Vec<Running>,
}

struct Running {
    name: String,
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
        let (log, name) = (self.log(&spec.name), spec.name.clone());
        // The log of an earlier stack.
        drop(fs::remove_file(&log));
        let state = Arc::new(ProcessState::new(name.clone(), Arc::clone(&self.pids)));
        let stop = CancellationToken::new();
        let child = child::spawn(&spec, &log, &state)?;
        let mut supervisor = JoinSet::new();
        supervisor.spawn(child::supervise(spec, log, child, Arc::clone(&state), stop.clone()));
        self.running.push(Running { name, state, stop, supervisor });
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
            let dead = self.running.iter().find(|running| running.state.deaths() > 0);
            let timed_out = began.elapsed() > START_TIMEOUT;
            if let Some(failed) = dead.or_else(|| self.running.last().filter(|_| timed_out)) {
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

    /// Stops all in reverse order: no request arrives when the workers stop, and they hand back their
    /// handoffs before NATS stops. Workers stop together.
    pub(super) async fn stop(&mut self) {
        for group in [&["orchestrator"][..], &["manager-", "analyst-"], &["gateway"], &["nats"]] {
            let belongs = |running: &&mut Running| group.iter().any(|name| running.name.starts_with(name));
            let mut stopping: Vec<&mut Running> = self.running.iter_mut().filter(belongs).collect();
            stopping.iter().for_each(|running| running.stop.cancel());
            for running in &mut stopping {
                while running.supervisor.join_next().await.is_some() {}
            }
        }
        self.running.clear();
        lock::remove_pids(&self.data);
    }

    fn log(&self, name: &str) -> PathBuf {
        self.data.join(format!("{name}.log"))
    }
}
