//! What a job is: its command, its limits, what it may reach, and how it may end.

use std::{fmt, path::PathBuf, time::Duration};

use bytes::Bytes;

/// The most that command and environment of a job may take, in bytes.
pub const MAX_ARGUMENT_BYTES: usize = 256 * 1024;
/// The least memory that processes of a job can have, in bytes.
pub(crate) const MIN_MEMORY: u64 = 4 << 20;

/// One job.
#[derive(Clone, Debug)]
pub struct Spec {
    /// Names the job on this machine: 1 to 64 of `a-z`, `0-9` and `-`.
    pub id: String,
    /// The program and its arguments. The program is looked up on the sandbox's `PATH`.
    pub command: Vec<String>,
    /// Variables besides `PATH`, `HOME` and `LANG`, which it may replace.
    pub env: Vec<(String, String)>,
    /// The digest of the image whose files the job sees. Without one, `bwrap` shows the host's programs.
    pub image: Option<String>,
    pub limits: Limits,
    pub network: Network,
    /// Files that the workspace holds when the process starts.
    pub inputs: Vec<InputFile>,
    /// Globs, relative to the workspace, of the files that [`Running::collect`](crate::Running::collect)
    /// returns.
    pub outputs: Vec<String>,
    /// Unix sockets of the host that the job may connect to, each with its name below `/run/cynode`.
    pub sockets: Vec<(PathBuf, String)>,
    /// How long the job may take to end after SIGTERM.
    pub term_grace: Duration,
}

impl Spec {
    /// Describes a job with default limits, without network, inputs and outputs.
    pub fn new(id: impl Into<String>, command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            id: id.into(),
            command: command.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            image: None,
            limits: Limits::default(),
            network: Network::None,
            inputs: Vec::new(),
            outputs: Vec::new(),
            sockets: Vec::new(),
            term_grace: Duration::from_secs(5),
        }
    }
}

/// The limits of a job. All of them are enforced, or the engine is not offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Processor time per second, in cores.
    pub cpu: f64,
    /// Bytes of memory. Files in `/work`, `/tmp` and `/dev/shm` are in memory and count too. Inputs count
    /// until the end of the job, also if it deletes them.
    pub memory: u64,
    /// Processes and threads at the same time.
    pub pids: u32,
    /// Bytes of files in each of `/work` and `/tmp`.
    pub disk: u64,
    /// From the start of the process to SIGTERM.
    pub time: Duration,
    /// Bytes of standard output and standard error together.
    pub output: u64,
    /// Open files per process.
    pub files: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu: 1.0,
            memory: 512 << 20,
            pids: 128,
            disk: 256 << 20,
            time: Duration::from_secs(300),
            output: 1 << 20,
            files: 1024,
        }
    }
}

/// The network access of a job.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Network {
    /// Nothing but a loopback interface of its own.
    #[default]
    None,
    /// These hosts, through an HTTP proxy at `127.0.0.1:3128`, each in the form of a
    /// [`NetworkHost`](crate::NetworkHost). Those with internal addresses only if
    /// [`HostSettings::internal_hosts`](crate::HostSettings::internal_hosts) names them too.
    Hosts(Vec<String>),
}

/// A file that the workspace holds when the process starts.
#[derive(Clone, Debug)]
pub struct InputFile {
    /// Relative to the workspace, without `..`.
    pub path: String,
    pub content: Bytes,
    pub executable: bool,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The process ended by itself.
    Exited { code: i32 },
    /// A signal ended the process. A shell that reports a signal as exit code 128 + n looks the same.
    Signalled { signal: i32 },
    /// The job used more memory than its limit.
    Oom,
    /// The job ran longer than its limit.
    Timeout,
    /// The job wrote more output than its limit.
    Output,
    /// The job failed after it had filled its disk.
    Disk,
    /// The job was stopped by [`Stop::Cancelled`].
    Cancelled,
    /// The sandbox failed, not the job.
    EngineFailed { why: String },
}

/// Why a running job is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    Cancelled,
    Timeout,
}

/// The resource usage of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_ms: u64,
    /// The most memory that was in use at once, in bytes, and the inputs.
    pub memory_peak: u64,
    pub wall_ms: u64,
    /// Bytes of output that were delivered.
    pub output_bytes: u64,
}

/// A job that cannot be run as it is described.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("cannot run job: {field} {problem}")]
pub struct SpecError {
    pub field: &'static str,
    pub problem: String,
}

fn bad(field: &'static str, problem: impl fmt::Display) -> SpecError {
    SpecError { field, problem: problem.to_string() }
}

impl Spec {
    /// Checks that each part can be passed to an engine unchanged.
    pub fn check(&self) -> Result<(), SpecError> {
        let id_byte = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if self.id.is_empty() || self.id.len() > 64 || !self.id.bytes().all(id_byte) {
            return Err(bad("id", "must be 1 to 64 of a-z, 0-9 and -"));
        }
        match self.command.first() {
            None => return Err(bad("command", "is empty")),
            Some(program) if program.is_empty() => return Err(bad("command", "has an empty program")),
            Some(_) => {}
        }
        if self.command.iter().any(|argument| argument.contains('\0')) {
            return Err(bad("command", "contains a NUL byte"));
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(bad("env", format!("has the invalid variable {name:?}")));
            }
        }
        let longest =
            self.command.iter().chain(self.env.iter().map(|(_, value)| value)).map(String::len).max();
        if longest.unwrap_or_default() > MAX_ARGUMENT_BYTES / 4 {
            return Err(bad("command", format!("or env has a string over {} bytes", MAX_ARGUMENT_BYTES / 4)));
        }
        let variables = self.env.iter().map(|(name, value)| name.len() + value.len() + 10);
        let size = self.command.iter().map(|argument| argument.len() + 1).chain(variables).sum::<usize>();
        if size > MAX_ARGUMENT_BYTES {
            return Err(bad("command", format!("and env take {size} bytes; at most {MAX_ARGUMENT_BYTES}")));
        }
        for input in &self.inputs {
            check_path(&input.path)
                .map_err(|problem| bad("inputs", format!("{problem}: {:?}", input.path)))?;
        }
        for glob in &self.outputs {
            check_path(glob).map_err(|problem| bad("outputs", format!("{problem}: {glob:?}")))?;
        }
        for (_, name) in &self.sockets {
            if check_path(name).is_err() || name.contains('/') || name.len() > 64 {
                return Err(bad("sockets", format!("has the invalid name {name:?}")));
            }
        }
        self.limits.check()
    }
}

impl Limits {
    fn check(&self) -> Result<(), SpecError> {
        if !self.cpu.is_finite() || self.cpu < 0.01 {
            return Err(bad("limits.cpu", "must be at least 0.01 cores"));
        }
        if self.memory < MIN_MEMORY {
            return Err(bad("limits.memory", "must be at least 4 MiB"));
        }
        if self.pids == 0 || self.files < 16 || self.disk < 4096 || self.time.is_zero() {
            return Err(bad("limits", "need at least 1 process, 16 files, 4096 bytes of disk, some time"));
        }
        Ok(())
    }
}

/// Checks that a path stays below the folder that it is relative to.
pub(crate) fn check_path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() || path.len() > 1024 {
        return Err("has an empty or too long path");
    }
    if path.contains('\0') {
        return Err("has a path with a NUL byte");
    }
    if path.split('/').any(|part| part.is_empty() || part == "." || part == ".." || part.len() > 255) {
        return Err("has a path that is absolute or has empty, `.` or `..` parts");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_spec_is_valid_and_bad_parts_are_named() {
        assert_eq!(Spec::new("a-1", ["true"]).check(), Ok(()));
        assert_eq!(Spec::new("A", ["true"]).check().unwrap_err().field, "id");
        assert_eq!(Spec::new("a/b", ["true"]).check().unwrap_err().field, "id");
        assert_eq!(Spec::new("a", Vec::<String>::new()).check().unwrap_err().field, "command");
        assert_eq!(Spec::new("a", ["a\0b"]).check().unwrap_err().field, "command");
        let mut spec = Spec::new("a", ["true"]);
        spec.env = vec![("A=B".into(), String::new())];
        assert_eq!(spec.check().unwrap_err().field, "env");
        let mut spec = Spec::new("a", ["x".repeat(MAX_ARGUMENT_BYTES + 1)]);
        assert_eq!(spec.check().unwrap_err().field, "command");
        spec.command = vec!["true".into()];
        spec.limits.cpu = f64::NAN;
        assert_eq!(spec.check().unwrap_err().field, "limits.cpu");
    }

    #[test]
    fn path_that_leaves_its_folder_is_refused() {
        for path in ["", "/a", "a//b", "..", "a/../b", "./a", "a\0", "a/"] {
            assert!(check_path(path).is_err(), "{path:?}");
        }
        assert!(check_path("a/b.txt").is_ok());
    }
}
