//! Ensures one stack per data folder, and finds the processes of one whose supervisor was killed.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use nix::sys::signal::Signal;
use tokio::time::{sleep, timeout};

use super::{
    child::{signal, terminate},
    config::RUNNER_PROGRAM,
    stack::{STOP_ORDER, stopped},
};
use crate::{
    error::{Error, Exit},
    print,
};

const LOCK: &str = "up.lock";
const PIDS: &str = "up.pids";
/// Programs that a recorded process id may belong to.
const STACK_PROGRAMS: [&str; 6] =
    ["nats-server", "cynode-gateway", "cynode-pma", "cynode-orchestrator", "cynode-node", "cynodectl"];
const STOP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Locks the data folder for a stack. The operating system releases the lock when the process ends, however
/// it ends. Fails if a stack is running, or if a killed one left processes behind.
pub(super) fn take(data: &Path) -> Result<File, Error> {
    let path = data.join(LOCK);
    let write_error = |error| Error::Write(path.clone(), error);
    let options = File::options().create(true).truncate(false).read(true).write(true).open(&path);
    let mut file = options.map_err(write_error)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            drop(file.read_to_string(&mut pid));
            return Err(Error::AlreadyRunning { data: data.to_owned(), pid: pid.trim().to_owned() });
        }
        Err(TryLockError::Error(error)) => return Err(write_error(error)),
    }
    let leftover = leftover_processes(data).into_iter();
    let left: Vec<String> = leftover.map(|(name, pid)| format!("{name} ({pid})")).collect();
    if !left.is_empty() {
        return Err(Error::LeftoverProcesses { data: data.to_owned(), left: left.join(", ") });
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(write_error)?;
    write!(file, "{}", std::process::id()).map_err(write_error)?;
    Ok(file)
}

/// Records the running processes, so that a later command finds them if this supervisor is killed.
#[derive(Debug)]
pub(super) struct PidFile {
    path: PathBuf,
    pids: Mutex<BTreeMap<String, u32>>,
}

impl PidFile {
    pub(super) fn new(data: &Path) -> Self {
        Self { path: data.join(PIDS), pids: Mutex::default() }
    }

    /// Records a process that was started, in the place of an earlier one of the same name.
    pub(super) fn record(&self, name: &str, pid: u32) -> Result<(), Error> {
        let mut pids = self.pids.lock().unwrap_or_else(PoisonError::into_inner);
        pids.insert(name.to_owned(), pid);
        let lines: Vec<String> = pids.iter().map(|(name, pid)| format!("{name} {pid}")).collect();
        fs::write(&self.path, lines.join("\n")).map_err(|error| Error::Write(self.path.clone(), error))
    }
}

pub(super) fn remove_pids(data: &Path) {
    drop(fs::remove_file(data.join(PIDS)));
}

/// Returns the recorded processes that still run.
fn leftover_processes(data: &Path) -> Vec<(String, u32)> {
    let text = fs::read_to_string(data.join(PIDS)).unwrap_or_default();
    let read = |line: &str| {
        let (name, pid) = line.split_once(' ')?;
        Some((name.to_owned(), pid.parse().ok()?))
    };
    text.lines().filter_map(read).filter(|(_, pid)| probe_stack_process(*pid)).collect()
}

/// Reads the program of a process from /proc and returns whether it belongs to a stack. The id may have been
/// reused.
fn probe_stack_process(pid: u32) -> bool {
    let program = fs::read_link(PathBuf::from(format!("/proc/{pid}/exe")));
    let name = program.ok().and_then(|program| program.file_name()?.to_str().map(str::to_owned));
    name.is_some_and(|name| {
        // Linux marks a program that was rebuilt since.
        let name = name.trim_end_matches(" (deleted)");
        STACK_PROGRAMS.contains(&name) || (name.starts_with("python") && probe_runner(pid))
    })
}

/// Returns whether a Python runs the runner of workflows: it is a script, the first argument of its Python.
fn probe_runner(pid: u32) -> bool {
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let script = line.split('\0').nth(1).map(Path::new);
    script.and_then(Path::file_name).is_some_and(|name| name == RUNNER_PROGRAM)
}

/// Stops the stack of a data folder: through its supervisor, or the processes that a killed supervisor left
/// behind.
pub(super) async fn stop_stack(data: &Path) -> Result<Exit, Error> {
    match take(data) {
        Ok(_) => {
            print::note("no stack is running here");
            Ok(Exit::Done)
        }
        Err(Error::AlreadyRunning { pid, .. }) => {
            let Ok(pid) = pid.parse() else {
                return Err(Error::Other(format!("{LOCK} contains no process id")));
            };
            let running = leftover_processes(data);
            terminate(pid);
            report_each(running, pid).await?;
            print::line("the stack has stopped");
            Ok(Exit::Done)
        }
        Err(Error::LeftoverProcesses { .. }) => {
            let left = leftover_processes(data);
            for group in STOP_ORDER {
                let belongs =
                    |(name, _): &&(String, u32)| group.iter().any(|prefix| name.starts_with(prefix));
                let stopping: Vec<&(String, u32)> = left.iter().filter(belongs).collect();
                stopping.iter().for_each(|(_, pid)| terminate(*pid));
                for (name, pid) in stopping {
                    if wait_until_gone(*pid).await.is_err() {
                        signal(*pid, Signal::SIGKILL);
                    }
                    print::line(&stopped(name));
                }
            }
            remove_pids(data);
            Ok(Exit::Done)
        }
        Err(other) => Err(other),
    }
}

/// Waits until the supervisor has ended, and reports each process that ends meanwhile.
async fn report_each(mut running: Vec<(String, u32)>, supervisor: u32) -> Result<(), Error> {
    let gone = async {
        loop {
            let is_last = !probe_stack_process(supervisor);
            for (name, _) in running.extract_if(.., |(_, pid)| !probe_stack_process(*pid)) {
                print::line(&stopped(&name));
            }
            if is_last {
                return;
            }
            sleep(POLL_INTERVAL).await;
        }
    };
    let late = |_| Error::Other(format!("process {supervisor} did not exit in time"));
    timeout(STOP_TIMEOUT, gone).await.map_err(late)
}

async fn wait_until_gone(pid: u32) -> Result<(), Error> {
    let gone = async {
        while probe_stack_process(pid) {
            sleep(POLL_INTERVAL).await;
        }
    };
    timeout(STOP_TIMEOUT, gone).await.map_err(|_| Error::Other(format!("process {pid} did not exit in time")))
}
