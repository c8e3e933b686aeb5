//! Starts the process of an upstream in its own process group, and ends the whole group.
//!
//! If the gateway itself is killed, the pipes are closed, and MCP requires a server to exit at the end of its
//! input. Making the kernel kill it (`PR_SET_PDEATHSIG`) would require `unsafe` code, which this project
//! forbids.

#![expect(
    clippy::disallowed_types,
    reason = "a server behind the gateway may be a program, started here only"
)]

use std::{ffi::OsString, io, path::Path, process::Stdio};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::process::{self, ChildStderr, ChildStdin, ChildStdout, Command};

pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// A process and all processes of its group. Killed when it is dropped.
#[derive(Debug)]
pub(super) struct Child {
    child: process::Child,
    /// The process group; `None` once the process is being waited for, since its id may be reused after that.
    group: Option<Pid>,
}

pub(super) fn start(
    program: &str,
    arguments: &[String],
    environment: Vec<(OsString, OsString)>,
    folder: Option<&Path>,
) -> io::Result<(Child, Pipes)> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(environment)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    let mut child = command.spawn()?;
    let group = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let child = Child { child, group };
    match pipes {
        (Some(stdin), Some(stdout), Some(stderr)) => Ok((child, Pipes { stdin, stdout, stderr })),
        _ => Err(io::Error::other("a pipe to the process is missing")),
    }
}

impl Child {
    pub(super) fn has_ended(&self) -> bool {
        self.group.is_none()
    }

    /// Sends SIGTERM to the group.
    pub(super) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Sends SIGKILL to the group, waits for the process and returns how it ended.
    pub(super) async fn kill_and_wait(&mut self) -> String {
        self.signal(Signal::SIGKILL);
        self.group = None;
        match self.child.wait().await {
            Ok(status) => format!("its process ended: {status}"),
            Err(error) => format!("its process ended: {error}"),
        }
    }

    fn signal(&self, signal: Signal) {
        // Fails if the group has already ended, which is fine.
        self.group.map(|group| killpg(group, signal).ok());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}
