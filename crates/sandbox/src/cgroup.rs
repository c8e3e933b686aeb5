//! Limits of a job by a control group, version 1 or 2: made, joined, read, emptied, removed.

mod layout;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    fmt::Display,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

pub(crate) use layout::{Layout, NoCgroup};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::spec::Limits;

/// The period over which processor time is counted, in microseconds.
const CPU_PERIOD_US: u64 = 100_000;
/// How long killed processes may take to disappear.
const EMPTY_DEADLINE: Duration = Duration::from_secs(20);

/// The control groups of one job: one folder in version 2, one per hierarchy in version 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    version: Version,
    memory: PathBuf,
    pids: PathBuf,
    cpu: Option<PathBuf>,
    cpuacct: Option<PathBuf>,
    /// Folders that an engine makes by itself: removed, but neither made nor read.
    #[serde(default)]
    others: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Version {
    V1,
    V2,
}

impl Group {
    /// Makes the folders and writes the limits. `helpers` processes of the engine come on top of the job's.
    pub(crate) fn create(&self, limits: &Limits, helpers: u32) -> io::Result<()> {
        self.create_unlimited()?;
        let pids = u64::from(limits.pids) + u64::from(helpers);
        write(&self.pids, "pids.max", &pids)?;
        let quota = cpu_quota(limits.cpu);
        match self.version {
            Version::V1 => {
                write(&self.memory, "memory.limit_in_bytes", &limits.memory)?;
                // Absent where the kernel does not count swap.
                optional(write(&self.memory, "memory.memsw.limit_in_bytes", &limits.memory))?;
                if let Some(cpu) = &self.cpu {
                    write(cpu, "cpu.cfs_period_us", &CPU_PERIOD_US)?;
                    write(cpu, "cpu.cfs_quota_us", &quota)?;
                }
            }
            Version::V2 => {
                write(&self.memory, "memory.max", &limits.memory)?;
                optional(write(&self.memory, "memory.swap.max", &0))?;
                optional(write(&self.memory, "memory.oom.group", &1))?;
                if let Some(cpu) = &self.cpu {
                    write(cpu, "cpu.max", &format!("{quota} {CPU_PERIOD_US}"))?;
                }
            }
        }
        Ok(())
    }

    /// Makes the folders without limits.
    pub(crate) fn create_unlimited(&self) -> io::Result<()> {
        let make = |folder: &Path| fs::create_dir(folder).map_err(|error| named(&error, "making", folder));
        self.folders().into_iter().try_for_each(make)
    }

    /// Moves a process into the group. Processes that it starts later are in it too.
    pub(crate) fn join(&self, pid: i32) -> io::Result<()> {
        self.folders().into_iter().try_for_each(|folder| write(folder, "cgroup.procs", &pid))
    }

    /// Returns the processes in the group; none if there is no such group.
    pub(crate) fn processes(&self) -> BTreeSet<i32> {
        let listed =
            self.folders().into_iter().filter_map(|it| fs::read_to_string(it.join("cgroup.procs")).ok());
        listed.flat_map(|text| text.lines().filter_map(|it| it.parse().ok()).collect::<Vec<_>>()).collect()
    }

    /// Sends a signal to the processes in the group.
    pub(crate) fn signal(&self, signal: Signal, except: &[i32]) {
        let open = |pid: i32| Some((pid, pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?));
        let opened: Vec<_> = self.processes().into_iter().filter_map(open).collect();
        // A process that is still in the group is the one that the descriptor was opened for.
        let still = self.processes();
        for (pid, pidfd) in opened.iter().filter(|(pid, _)| still.contains(pid) && !except.contains(pid)) {
            if let Err(error) = pidfd_send_signal(pidfd, signal) {
                tracing::debug!(pid, %error, "Signal not delivered.");
            }
        }
    }

    /// Kills all processes in the group once. New ones may appear until it is empty.
    pub(crate) fn kill(&self) {
        match self.version {
            Version::V2 if fs::write(self.pids.join("cgroup.kill"), "1").is_ok() => {}
            _ => self.signal(Signal::KILL, &[]),
        }
    }

    /// Kills until the group is empty.
    pub(crate) async fn empty(&self) -> io::Result<()> {
        let deadline = Instant::now() + EMPTY_DEADLINE;
        let mut pause = Duration::from_micros(200);
        while !self.processes().is_empty() {
            // Nothing forks from here on, so that one look finds all.
            optional(write(&self.pids, "pids.max", &0)).unwrap_or_default();
            self.kill();
            if Instant::now() > deadline {
                let message = format!("processes {:?} do not end after SIGKILL", self.processes());
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Removes the folders; those that are gone already count as removed.
    pub(crate) fn remove(&self) -> io::Result<()> {
        // Those of engines may be inside the group's own.
        for folder in self.others.iter().map(PathBuf::as_path).chain(self.folders()) {
            match fs::remove_dir(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(named(&error, "removing", folder));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns whether a folder of the group exists.
    pub(crate) fn exists(&self) -> bool {
        self.folders().into_iter().any(Path::exists)
    }

    /// Returns how many processes the kernel killed since the group had no memory left.
    pub(crate) fn oom_kills(&self) -> u64 {
        let file = match self.version {
            Version::V1 => "memory.oom_control",
            Version::V2 => "memory.events",
        };
        keyed(&self.memory.join(file), "oom_kill")
    }

    /// Returns the processor time in milliseconds, and the most memory in use at once in bytes.
    pub(crate) fn used(&self) -> (u64, u64) {
        match self.version {
            Version::V1 => {
                let cpu = self.cpuacct.as_ref().map_or(0, |it| number(&it.join("cpuacct.usage"))) / 1_000_000;
                (cpu, number(&self.memory.join("memory.max_usage_in_bytes")))
            }
            Version::V2 => {
                let cpu = keyed(&self.pids.join("cpu.stat"), "usage_usec") / 1000;
                (cpu, number(&self.memory.join("memory.peak")))
            }
        }
    }

    /// The folders, each once: hierarchies may be mounted together.
    fn folders(&self) -> BTreeSet<&Path> {
        let always = [Some(&self.memory), Some(&self.pids), self.cpu.as_ref(), self.cpuacct.as_ref()];
        always.into_iter().flatten().map(PathBuf::as_path).collect()
    }
}

fn cpu_quota(cores: f64) -> u64 {
    // The kernel takes no less than one millisecond.
    ((cores * CPU_PERIOD_US as f64).round() as u64).max(1000)
}

fn write(folder: &Path, file: &str, value: &dyn Display) -> io::Result<()> {
    let path = folder.join(file);
    fs::write(&path, value.to_string()).map_err(|error| named(&error, "writing", &path))
}

/// Lets a file be absent.
fn optional(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            Ok(())
        }
        other => other,
    }
}

fn named(error: &io::Error, doing: &str, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{doing} {}: {error}", path.display()))
}

fn number(path: &Path) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default()
}

/// Reads the number after a key of a file with a key and a value per line.
fn keyed(path: &Path, key: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value.and_then(|it| it.trim().parse().ok()).unwrap_or_default()
}
